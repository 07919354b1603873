/**
 * Makes threads of a gateway misbehave, from outside: by the inspector that every Node process has, so that nothing in
 * the gateway is there for tests.
 */
import { Effect, type Scope } from "effect"
import { Session } from "node:inspector"
import type { Worker } from "node:worker_threads"

export interface ShardFaults {
  /** Evaluate this in the thread that was started last, and do not wait for its end. */
  readonly evaluate: (expression: string) => Effect.Effect<void>
  /** Threads that serve runs and were started since, the oldest first. */
  readonly shards: ReadonlyArray<Worker>
}

/** Looks at the threads that are started from now on. */
export const acquire: Effect.Effect<ShardFaults, never, Scope.Scope> = Effect.gen(function* () {
  const shards: Array<Worker> = []
  const sessions: Array<string> = []
  const onWorker = (worker: Worker) => void shards.push(worker)
  const session = new Session()
  session.connect()
  session.on("NodeWorker.attachedToWorker", ({ params }) => {
    if (params.workerInfo.url.includes("ShardWorker")) sessions.push(params.sessionId)
  })
  yield* Effect.promise(
    () =>
      new Promise<void>((resolve, reject) =>
        session.post("NodeWorker.enable", { waitForDebuggerOnStart: false }, (error) =>
          error === null ? resolve() : reject(error)
        )
      )
  )
  process.on("worker", onWorker)
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      process.off("worker", onWorker)
      session.disconnect()
    })
  )
  let id = 0
  return {
    shards,
    evaluate: (expression) =>
      Effect.sync(() => {
        id += 1
        session.post("NodeWorker.sendMessageToWorker", {
          sessionId: sessions.at(-1)!,
          message: JSON.stringify({ id, method: "Runtime.evaluate", params: { expression } })
        })
      })
  }
})
