/**
 * An agent's notes on its workspace, kept for the next time: `.cogni/index.json`.
 *
 * An agent writes the file like any other. It is read inside the sandbox, never on the host, and its size and form are
 * checked. Its content comes from an agent: pass it on only to an agent.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import { Data, Effect, Schema } from "effect"

/** Path in the workspace. */
export const path = ".cogni/index.json"

export const memoryBytesMax = 256 * 1024

const text = (charactersMax: number) => Schema.String.check(Schema.isMaxLength(charactersMax))

export const Note = Schema.Struct({
  /** Subject of the note: a path in the workspace, or any other name. */
  subject: text(500),
  note: text(4000),
  /** ISO 8601. */
  updatedAt: Schema.optionalKey(text(40))
})

export const RepoMemory = Schema.Struct({
  version: Schema.Literal(1),
  /** Describes the workspace in a few sentences. */
  summary: Schema.optionalKey(text(16_000)),
  /** Useful commands, such as how to run the tests. */
  commands: Schema.optionalKey(Schema.Record(text(100), text(2000))),
  notes: Schema.optionalKey(Schema.Array(Note).check(Schema.isMaxLength(500)))
})

export type RepoMemory = typeof RepoMemory.Type

/** The notes exist, but cannot be read or are invalid. */
export class RepoMemoryInvalid extends Data.TaggedError("RepoMemoryInvalid")<{
  readonly problems: ReadonlyArray<string>
}> {
  override get message(): string {
    return `${path} is not a valid workspace memory: ${this.problems.join("; ").slice(0, 1000)}. Ask the agent to rewrite it, or remove it`
  }
}

const decode = Schema.decodeUnknownEffect(RepoMemory, { errors: "all", onExcessProperty: "error" })

const parse = (bytes: Uint8Array) =>
  Effect.try({
    try: (): unknown => JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)),
    catch: () => new RepoMemoryInvalid({ problems: ["it is not JSON in UTF-8"] })
  })

/** Reads the notes; `undefined` if none were written. */
export const read = (
  executor: Pick<Executor, "files">
): Effect.Effect<RepoMemory | undefined, SandboxError | RepoMemoryInvalid> =>
  executor.files.read(path, { bytesMax: memoryBytesMax }).pipe(
    Effect.flatMap(parse),
    Effect.flatMap((found) =>
      decode(found).pipe(Effect.mapError((error) => new RepoMemoryInvalid({ problems: problemsOf(error) })))
    ),
    Effect.catchTag("SandboxError", (error): Effect.Effect<undefined, SandboxError | RepoMemoryInvalid> => {
      const { reason } = error
      if (reason._tag !== "FileRefused") return Effect.fail(error)
      return reason.problem === "not_found"
        ? Effect.succeed(undefined)
        : Effect.fail(new RepoMemoryInvalid({ problems: [reason.message] }))
    })
  )
