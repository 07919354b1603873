/**
 * What an agent has written down about its workspace, for the next time: `.cogni/index.json`.
 *
 * An agent writes it as any other file. It is read inside the sandbox, never on the host; it is bounded and checked,
 * and what is in it is an agent's word, to be told to an agent again and to nobody else.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { problemsOf } from "@cogni/sandbox-core/SandboxSpec"
import { Data, Effect, Schema } from "effect"

/** In the workspace. */
export const path = ".cogni/index.json"

export const memoryBytesMax = 256 * 1024

const text = (charactersMax: number) => Schema.String.check(Schema.isMaxLength(charactersMax))

export const Note = Schema.Struct({
  /** What the note is about: a path in the workspace, or any other name. */
  subject: text(500),
  note: text(4000),
  /** ISO 8601. */
  updatedAt: Schema.optionalKey(text(40))
})

export const RepoMemory = Schema.Struct({
  version: Schema.Literal(1),
  /** What the workspace is, in a few sentences. */
  summary: Schema.optionalKey(text(16_000)),
  /** Commands that are worth knowing, such as how the tests are run. */
  commands: Schema.optionalKey(Schema.Record(text(100), text(2000))),
  notes: Schema.optionalKey(Schema.Array(Note).check(Schema.isMaxLength(500)))
})

export type RepoMemory = typeof RepoMemory.Type

/** There is a memory, and it is none that can be read. */
export class RepoMemoryInvalid extends Data.TaggedError("RepoMemoryInvalid")<{
  readonly problems: ReadonlyArray<string>
}> {
  override get message(): string {
    return `${path} is not a memory of the workspace: ${this.problems.join("; ").slice(0, 1000)}. Have the agent write it anew, or remove it`
  }
}

const decode = Schema.decodeUnknownEffect(RepoMemory, { errors: "all", onExcessProperty: "error" })

const parse = (bytes: Uint8Array) =>
  Effect.try({
    try: (): unknown => JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)),
    catch: () => new RepoMemoryInvalid({ problems: ["it is no JSON in UTF-8"] })
  })

/** What there is; `undefined` where nothing was written. */
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
