/** Prompts from the command line, a file and standard input, bounded while they are read. */
import { assert, describe, it } from "@effect/vitest"
import * as Prompt from "../src/Prompt.ts"
import { Effect, Result, Stdio, Stream } from "effect"
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"

const MiB = 2 ** 20
const bytes = (text: string) => new TextEncoder().encode(text)

const read = (
  source: Prompt.PromptSource,
  stdin: Stream.Stream<Uint8Array> = Stream.empty,
  workspace?: string
) => Prompt.read(source, workspace).pipe(Effect.provide(Stdio.layerTest({ stdin })))

/** A directory where no other user may write. */
const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(homedir(), ".cogni-prompt-test-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

describe("Prompt", () => {
  it("comes from one source, and - is standard input", () => {
    const of = (typed: Parameters<typeof Prompt.sourceOf>[0]) => Result.getOrThrow(Prompt.sourceOf(typed))
    assert.deepStrictEqual(of({ prompt: "-" }), { _tag: "Stdin" })
    assert.deepStrictEqual(of({ prompt: "-x" }), { _tag: "Text", text: "-x" })
    assert.deepStrictEqual(of({ promptFile: "-" }), { _tag: "Stdin" })
    assert.deepStrictEqual(of({ promptFile: "x" }), { _tag: "File", path: "x" })
    assert.isUndefined(of({}))
    assert.isTrue(Result.isFailure(Prompt.sourceOf({ prompt: "-", promptFile: "-" })))
  })

  it.effect("is unchanged, from any source and in any pieces", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* read({ _tag: "Text", text: " héllo\n" }), " héllo\n")
      const pieces = Stream.fromIterable([...bytes("héllo →")].map((byte) => Uint8Array.of(byte)))
      assert.strictEqual(yield* read({ _tag: "Stdin" }, pieces), "héllo →")
      const path = join(yield* directory, "prompt")
      writeFileSync(path, "héllo →")
      assert.strictEqual(yield* read({ _tag: "File", path }), "héllo →")
    })
  )

  it.effect("is refused if it is longer than 4 MiB, even if it never ends", () =>
    Effect.gen(function* () {
      const path = join(yield* directory, "prompt")
      writeFileSync(path, "a".repeat(5 * MiB))
      const piece = new Uint8Array(MiB).fill(97)
      const endless = Stream.fromEffectRepeat(Effect.succeed(piece))
      for (const asked of [
        read({ _tag: "Stdin" }, endless),
        read({ _tag: "File", path }),
        read({ _tag: "Text", text: "a".repeat(5 * MiB) })
      ]) {
        const error = yield* Effect.flip(asked)
        assert.strictEqual(error.exit, "input")
        assert.include(error.message, "longer than 4 MiB. Put long text into a file of the workspace")
      }
    })
  )

  it.effect("is refused if its file is a link in the workspace, with the path of the link", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const workspace = join(root, "workspace")
      mkdirSync(workspace)
      writeFileSync(join(root, "secret"), "TOPSECRET-of-host")
      symlinkSync("../secret", join(workspace, "TASK.md"))
      symlinkSync("secret", join(root, "own.md"))
      const error = yield* Effect.flip(
        read({ _tag: "File", path: join(workspace, "TASK.md") }, undefined, workspace)
      )
      assert.strictEqual(error.exit, "input")
      assert.include(error.message, `${join(workspace, "TASK.md")}" is a symbolic link`)
      const own = { _tag: "File", path: join(root, "own.md") } as const
      assert.strictEqual(yield* read(own, undefined, workspace), "TOPSECRET-of-host")
    })
  )

  it.effect("is refused if it is empty, blank, or not UTF-8", () =>
    Effect.gen(function* () {
      assert.include((yield* Effect.flip(read({ _tag: "Stdin" }))).message, "empty")
      assert.include((yield* Effect.flip(read({ _tag: "Text", text: " \n" }))).message, "empty")
      const binary = Stream.make(Uint8Array.of(0x61, 0xff, 0xfe))
      assert.include((yield* Effect.flip(read({ _tag: "Stdin" }, binary))).message, "not UTF-8")
    })
  )
})
