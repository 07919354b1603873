/**
 * A host of durable runs: an engine of its own, a keeper and a worker. Each can be killed and started again, and the
 * worker can be cut off from the Temporal server.
 */
import { Effect, Scope } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { CliProcess, Started } from "../CliProcess.ts"
import { freePort } from "../FreePort.ts"
import * as Images from "../Images.ts"
import * as PrivateEngine from "../PrivateEngine.ts"
import * as TcpDoor from "../TcpDoor.ts"
import type { DurableWorld } from "./DurableWorld.ts"

export interface HostOptions {
  readonly name: string
  /** Address of the Temporal server. */
  readonly temporal: string
  /** Concurrent runs, as the worker and the keeper count them. */
  readonly runsMax: number
  /** URL of the run database that all hosts share. */
  readonly database: string
}

export const acquire = Effect.fnUntraced(function* (
  cli: CliProcess["Service"],
  world: DurableWorld,
  { database, name, runsMax, temporal }: HostOptions
) {
  const scope = yield* Effect.scope
  const state = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), `cogni-${name}-`))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const engine = yield* PrivateEngine.acquire(Images.runtime)
  yield* engine.load(Images.runtime)
  const door = yield* TcpDoor.acquire(`http://${temporal}`)
  const port = yield* freePort
  const startKeeper = world
    .keeper({
      port,
      runsMax,
      env: { DOCKER_HOST: engine.host, COGNI_STATE_DIR: state, COGNI_DATABASE_URL: database }
    })
    .pipe(Scope.provide(scope))
  const argv = ["--name", name, "--keeper", `http://127.0.0.1:${port}`, "--token-file", world.tokenFile]
  const startWorker = Effect.gen(function* () {
    const server = ["--temporal", new URL(door.url).host, "--max-runs", String(runsMax), "--drain", "10m"]
    const started = yield* cli.start(["worker", ...argv, ...server])
    yield* started.said(/ takes runs$/mu)
    return started
  }).pipe(Scope.provide(scope))
  let keeper: Started = yield* startKeeper
  let worker: Started = yield* startWorker
  const killed = (one: Started) => Effect.andThen(one.kill("SIGKILL"), one.ended)

  return {
    name,
    /** Sends SIGTERM to the worker, waits until its runs have ended, and returns the exit code. */
    drain: Effect.suspend(() => Effect.andThen(worker.kill("SIGTERM"), worker.ended)),
    killWorker: Effect.suspend(() => killed(worker)),
    startWorker: Effect.map(startWorker, (next) => {
      worker = next
    }),
    /** Kills the keeper and the worker. The containers of its runs go on. */
    kill: Effect.suspend(() => Effect.all([killed(keeper), killed(worker)], { concurrency: 2 })),
    start: Effect.gen(function* () {
      keeper = yield* startKeeper
      worker = yield* startWorker
    }),
    /** Ends all connections of the worker to the Temporal server. */
    cutOff: door.close,
    reconnect: door.open,
    /** The sandboxes of its runs, and all else that is labelled at its engine. */
    labelled: PrivateEngine.labelledAt(engine.host)
  }
})

export type DurableHost = Effect.Success<ReturnType<typeof acquire>>
