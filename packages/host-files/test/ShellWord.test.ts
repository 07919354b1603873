/** Words of commands that a user can type, as a shell reads them. */
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"
import { assert, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"

it.each([
  ["a plain path stays as it is", "/srv/git/app-1.0_x.git", "/srv/git/app-1.0_x.git"],
  ["a blank is quoted", "/srv/my app", "'/srv/my app'"],
  ["a quote is quoted", "it's", `'it'\\''s'`],
  ["a substitution is quoted", "$(touch x)`y`;*", "'$(touch x)`y`;*'"],
  ["an empty text is quoted", "", "''"]
])("%s", (_, text, word) => {
  assert.strictEqual(ShellWord.quoted(text), word)
  assert.strictEqual(execFileSync("sh", ["-c", `printf %s ${word}`]).toString(), text)
})
