/** Progress that git of the host reports while it runs. */
import { assert, describe, it } from "@effect/vitest"
import * as HostGit from "../src/internal/git/HostGit.ts"

describe("the progress in a piece of git's stderr", () => {
  it.each([
    ["remote: Total 3 (delta 0)\n", "remote: Total 3 (delta 0)"],
    ["Receiving objects:  33% (1/3)\rReceiving objects: 100% (3/3)\r", "Receiving objects: 100% (3/3)"],
    [
      "Receiving objects: 100% (3/3), done.\nFrom https://git.example/a\n * branch  main -> FETCH_HEAD\n",
      "Receiving objects: 100% (3/3), done."
    ],
    ["\n\r\n", undefined]
  ])("%j is %j", (text, line) => assert.strictEqual(HostGit.progressIn(text), line))
})
