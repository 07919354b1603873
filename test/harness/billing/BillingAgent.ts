/**
 * The agent of a planned run: one program for a container and for a process of this host.
 *
 * It makes its calls step by step, hangs up where the plan says so, and prints `begun N` and `ended N STATUS` for each
 * call. After an error of the upstream it waits a second, as clients do. It ends when its socket is gone.
 */
import { Deferred, Effect, type Scope } from "effect"
import { spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import { createInterface } from "node:readline"
import { join } from "node:path"
import type { PlannedRun } from "./BillingPlan.ts"

/** Where the agent reaches its model. */
export type Door = { readonly socketPath: string } | { readonly host: string; readonly port: number }

/** Reads a file with a door and steps, named by its first argument. */
export const program = `
const { request } = require("node:http")
const { door, steps } = JSON.parse(require("node:fs").readFileSync(process.argv[1], "utf8"))
// Its host has been killed.
process.stdout.on("error", () => process.exit(1))
let begun = 0
const call = ({ body, hangUp, path }) => new Promise((resolve) => {
  const number = begun++
  const payload = JSON.stringify(body)
  const outgoing = request({
    ...door,
    path,
    method: "POST",
    headers: { "content-type": "application/json", "content-length": Buffer.byteLength(payload) }
  })
  let hasEnded = false
  const end = (status) => {
    if (hasEnded) return
    hasEnded = true
    console.log("ended " + number + " " + status)
    resolve(status)
  }
  const leave = () => {
    outgoing.destroy()
    end("left")
  }
  outgoing.on("error", ({ code }) => end(code))
  outgoing.on("response", (answer) => {
    answer.on("data", () => hangUp === "answering" && leave())
    answer.on("end", () => end(answer.statusCode))
    answer.on("error", () => end("broken"))
    answer.on("close", () => end("broken"))
  })
  outgoing.end(payload, () => {
    console.log("begun " + number)
    if (hangUp !== undefined && hangUp !== "answering") setTimeout(leave, hangUp.millis)
  })
})
;(async () => {
  for (const step of steps) {
    const statuses = await Promise.all(step.map(call))
    if (statuses.some((status) => status === "ECONNREFUSED" || status === "ENOENT")) return
    if (statuses.some((status) => status >= 500)) await new Promise((resolve) => setTimeout(resolve, 1000))
  }
})()
`

/** The file that the program reads. */
export const input = (door: Door, { steps }: Pick<PlannedRun, "steps">): string =>
  JSON.stringify({ door, steps })

/** Calls `begun` with the number of each call that the program reports. */
export const hear = (line: string, begun: (call: number) => void): void => {
  const number = /^begun (\d+)$/u.exec(line)?.[1]
  if (number !== undefined) begun(Number(number))
}

export interface BillingAgent {
  /** Settles when the program has ended. */
  readonly ended: Effect.Effect<void>
  /** Ends it at once. */
  readonly kill: Effect.Effect<void>
}

/** Starts the program as a process of this host. Closing the scope kills it. */
export const start = Effect.fnUntraced(function* (
  directory: string,
  door: Door,
  run: PlannedRun,
  begun: (call: number) => void
): Effect.fn.Return<BillingAgent, never, Scope.Scope> {
  const path = join(directory, "calls.json")
  writeFileSync(path, input(door, run))
  const done = yield* Deferred.make<void>()
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const made = spawn(process.execPath, ["-e", program, path], { stdio: ["ignore", "pipe", "inherit"] })
      createInterface({ input: made.stdout }).on("line", (line) => hear(line, begun))
      made.once("close", () => Deferred.doneUnsafe(done, Effect.void))
      return made
    }),
    (made) => Effect.sync(() => made.kill("SIGKILL"))
  )
  const ended = Deferred.await(done)
  return {
    ended,
    kill: Effect.andThen(
      Effect.sync(() => child.kill("SIGKILL")),
      ended
    )
  }
})
