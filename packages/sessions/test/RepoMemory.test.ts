import { assert, describe, it } from "@effect/vitest"
import type { Executor } from "@cogni/sandbox-core/Executor"
import * as FilePath from "@cogni/sandbox-core/FilePath"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { ContainerFailed, type FileRefused } from "@cogni/sandbox-core/SandboxReason"
import { Effect } from "effect"
import * as RepoMemory from "../src/router/RepoMemory.ts"

/** A workspace with these notes, or with a failure to read them. */
const workspaceOf = (content: string | Uint8Array | FileRefused): Pick<Executor, "files"> => ({
  files: {
    read: (path, options) => {
      assert.strictEqual(path, ".cogni/index.json")
      assert.strictEqual(options?.bytesMax, 256 * 1024)
      if (typeof content === "string") return Effect.succeed(new TextEncoder().encode(content))
      return content instanceof Uint8Array
        ? Effect.succeed(content)
        : Effect.fail(new SandboxError({ reason: content }))
    },
    write: () => Effect.die("unexpected write"),
    list: () => Effect.die("unexpected list"),
    stat: () => Effect.die("unexpected stat"),
    remove: () => Effect.die("unexpected remove")
  }
})

describe("RepoMemory", () => {
  it.effect.prop(
    "reads back any valid notes",
    [RepoMemory.RepoMemory],
    ([memory]) =>
      Effect.gen(function* () {
        const found = yield* RepoMemory.read(workspaceOf(JSON.stringify(memory)))
        assert.deepStrictEqual(found, memory)
      }),
    { arbitrary: { runs: 100, seed: 6 } }
  )

  it.effect("returns undefined if no notes were written", () =>
    Effect.gen(function* () {
      assert.isUndefined(yield* RepoMemory.read(workspaceOf(FilePath.notFound(RepoMemory.path))))
    })
  )

  it.effect.each([
    { what: "is a directory", content: FilePath.notAFile(RepoMemory.path), says: "not a plain file" },
    { what: "is too large", content: FilePath.tooLarge(RepoMemory.path, 1), says: "more than 1 bytes" },
    { what: "leads out of the workspace", content: FilePath.outside(RepoMemory.path), says: "leads out" },
    { what: "is not JSON", content: "{", says: "not JSON" },
    { what: "is not UTF-8", content: new Uint8Array([0x22, 0xff, 0x22]), says: "UTF-8" },
    { what: "has another version", content: '{"version":2}', says: "version" },
    { what: "has unknown keys", content: '{"version":1,"run":"rm"}', says: "run" },
    {
      what: "has too long a note",
      content: JSON.stringify({ version: 1, notes: [{ subject: "a", note: "x".repeat(5000) }] }),
      says: "notes.0.note"
    },
    {
      what: "has too many notes",
      content: JSON.stringify({
        version: 1,
        notes: Array.from({ length: 501 }, () => ({ subject: "a", note: "b" }))
      }),
      says: "notes"
    },
    { what: "is a list", content: "[]", says: "Expected" }
  ])("refuses a file that $what, with the reason", ({ content, says }) =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(RepoMemory.read(workspaceOf(content)))
      assert.strictEqual(error._tag, "RepoMemoryInvalid")
      assert.include(error.message, says)
      assert.isBelow(error.message.length, 1300)
    })
  )

  it.effect("does not report an ended sandbox as invalid notes", () =>
    Effect.gen(function* () {
      const ended = new SandboxError({
        reason: new ContainerFailed({
          operation: "exec",
          detail: "the sandbox has ended",
          remedy: "Open another"
        })
      })
      const error = yield* Effect.flip(
        RepoMemory.read({ files: { ...workspaceOf("").files, read: () => Effect.fail(ended) } })
      )
      assert.strictEqual(error, ended)
    })
  )
})
