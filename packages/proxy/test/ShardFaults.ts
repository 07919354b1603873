/**
 * Causes faults in the threads of a gateway through Node's inspector, so that the gateway itself needs no code for
 * tests.
 */
import { Effect, type Scope } from "effect"
import { Session } from "node:inspector"
import type { Worker } from "node:worker_threads"

export interface ShardFaults {
  /** Evaluates an expression in the thread that started last, without waiting for its end. */
  readonly evaluate: (expression: string) => Effect.Effect<void>
  /** Worker threads that started since then, oldest first. */
  readonly shards: ReadonlyArray<Worker>
}

/** Observes the threads that start from now on. */
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
