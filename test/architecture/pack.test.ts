/** The arguments of `.ci/pack.ts`: which packages it packs, and what a release refuses before anything is packed. */
import { assert, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import { existsSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import * as SourceTree from "./SourceTree.ts"

const pack = (...argv: ReadonlyArray<string>) =>
  promisify(execFile)(process.execPath, [".ci/pack.ts", ...argv], { cwd: SourceTree.root }).then(
    ({ stdout }) => ({ code: 0, stdout, stderr: "" }),
    ({ code, stderr, stdout }: { code: number; stdout: string; stderr: string }) => ({ code, stdout, stderr })
  )

const named = async (...argv: ReadonlyArray<string>) =>
  (await pack("unused", "--dry-run", ...argv)).stdout
    .trim()
    .split("\n")
    .map((name) => name.replace("@cogni/sandbox-", ""))

describe("pack", () => {
  it("names the packages that one of them needs, and no others", async () => {
    const [all, promise, mastra] = await Promise.all([
      named(),
      named("--for", "promise"),
      named("--for", "@cogni/sandbox-mastra", "--for", "deepagents")
    ])
    assert.sameMembers(all, [...SourceTree.packages, "images"])
    assert.includeMembers(promise, ["core", "docker", "promise"])
    for (const name of ["cli", "server", "sql", "sessions"]) assert.notInclude(promise, name)
    assert.sameMembers(mastra, [...promise, "mastra", "deepagents"])
    assert.match(
      (await pack("unused", "--for", "nothing")).stderr,
      /no package nothing\. Choose one of @cogni/u
    )
  })

  it("refuses a release from another repository, and one whose place is still a placeholder", async () => {
    const { url } = SourceTree.readJson("package.json").repository as { readonly url: string }
    const place = url.replace(/^git\+|\.git$/gu, "")
    const directory = join(mkdtempSync(join(tmpdir(), "cogni-pack-")), "release")
    const refused = await pack(directory, "--repository", "https://github.com/someone/else")
    assert.strictEqual(refused.code, 1)
    assert.include(refused.stderr, place)
    assert.match(refused.stderr, /package\.json/u)
    const isPlaceholder = new URL(place).host !== "github.com"
    const same = isPlaceholder ? await pack(directory, "--repository", place) : refused
    assert.strictEqual(same.code, 1)
    assert.match(same.stderr, isPlaceholder ? /is a placeholder/u : /Correct/u)
    assert.isFalse(existsSync(directory), "something was packed")
    rmSync(join(directory, ".."), { recursive: true })
  })
})
