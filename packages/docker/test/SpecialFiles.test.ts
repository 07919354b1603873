import { assert, describe, it } from "@effect/vitest"
import { specialFilesWarning } from "@cogni/sandbox-core/SpecialFiles"
import * as SpecialFiles from "../src/internal/host/SpecialFiles.ts"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const listen = (path: string) =>
  Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<ReturnType<typeof createServer>>((resolve) => {
          const server = createServer()
          server.listen(path, () => resolve(server))
        })
    ),
    (server) => Effect.sync(() => server.close())
  )

const find = (path: string) =>
  Effect.scoped(Effect.flatMap(HeldDirectory.hold(path), (held) => SpecialFiles.find(held)))

describe("SpecialFiles", () => {
  it.effect("finds sockets, FIFOs and devices down to the third level, and follows no link", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const elsewhere = yield* directory
      mkdirSync(join(path, "a/b/c"), { recursive: true })
      yield* listen(join(path, "one.sock"))
      yield* listen(join(path, "a/b/three.sock"))
      yield* listen(join(path, "a/b/c/four.sock"))
      yield* listen(join(elsewhere, "linked.sock"))
      execFileSync("mkfifo", [join(path, "a/pipe")])
      symlinkSync(elsewhere, join(path, "link"))
      writeFileSync(join(path, "file"), "")
      assert.deepStrictEqual(yield* find(path), {
        files: [
          { path: "one.sock", kind: "socket" },
          { path: "a/pipe", kind: "FIFO" },
          { path: "a/b/three.sock", kind: "socket" }
        ],
        isWhole: true
      })
      assert.deepStrictEqual(
        yield* find("/dev/pts").pipe(Effect.map(({ files }) => files[0]?.kind)),
        "device"
      )
    })
  )

  it.effect("reports an incomplete search when a maximum is reached", () =>
    Effect.gen(function* () {
      const path = yield* directory
      for (let n = 0; n <= SpecialFiles.directoriesMax; n++) mkdirSync(join(path, `d${n}`))
      assert.deepStrictEqual(yield* find(path), { files: [], isWhole: false })
    })
  )

  it("formats the warning in one line, with each name quoted", () => {
    assert.isUndefined(specialFilesWarning({ files: [], isWhole: true }))
    const text = specialFilesWarning({
      files: Array.from({ length: 12 }, (_, n) => ({ path: `s\n${n}`, kind: "socket" as const })),
      isWhole: true
    })!
    assert.notInclude(text, "\n")
    assert.include(text, 'socket "s\\n0"')
    assert.include(text, "and 2 more")
    assert.include(text, "even without a network")
  })
})
