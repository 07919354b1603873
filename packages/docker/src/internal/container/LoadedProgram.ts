/**
 * Lets a waiting sandbox load a program, which becomes the agent of its run (decision 0047).
 *
 * The program is not trusted. The sandbox stops it before it writes the report that is read here.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { notLoaded } from "@cogni/sandbox-core/WaitingSandbox"
import { Effect } from "effect"
import { randomBytes } from "node:crypto"
import * as Binding from "./Binding.ts"
import * as PostureReport from "./PostureReport.ts"

/** A random number, so that the program cannot write the report that repeats it. */
export const nonce = (): string => randomBytes(16).toString("hex")

interface Sandbox {
  /** Sends a message to the sandbox, and returns the report that follows. */
  readonly load: (text: string) => Effect.Effect<string, ContainerError>
  /** Why no run can get it. */
  readonly troubled: () => string | undefined
}

/** Returns the report of the sandbox with its program. Fails if the program wrote something, or was not loaded. */
export const load = (preload: ReadonlyArray<string>, sandbox: Sandbox) =>
  Effect.gen(function* () {
    const asked = nonce()
    const report = yield* sandbox
      .load(Binding.encodeLoad(preload, asked))
      .pipe(Effect.catchTag("ContainerFailed", ({ detail }) => Effect.fail(notLoaded(detail))))
    const why = PostureReport.programMismatches(report, asked)[0] ?? sandbox.troubled()
    return why === undefined ? report : yield* notLoaded(why)
  })
