/**
 * Checks that the library and the images agree on the variables that are read when a process starts: a list that is
 * shorter would let a loaded program begin its run with the values of another.
 */
import { assert, it } from "@effect/vitest"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

const pattern = /const readAtStart =\s+\/(.+)\/([a-z]*)$/mu

/** Names that every list accepts, and others that look like them. */
const accepted = [
  "BUN_OPTIONS",
  "GLIBC_TUNABLES",
  "LANG",
  "LANGUAGE",
  "LC_ALL",
  "LD_PRELOAD",
  "MALLOC_ARENA_MAX",
  "NODE_OPTIONS",
  "OPENSSL_CONF",
  "PERL5OPT",
  "PYTHONPATH",
  "SSL_CERT_FILE",
  "TZ",
  "UV_THREADPOOL_SIZE",
  "HTTPS_PROXY",
  "no_proxy"
]
const others = ["HOME", "PATH", "LANGUAGES", "TZDIR", "OPENCODE_CONFIG", "PROXY_URL", "XLD_PRELOAD"]

const expressionIn = (path: string) => {
  const [, source = "", flags = ""] = pattern.exec(SourceTree.read(path)) ?? []
  assert.isAbove(source.length, 0, `${path} has no readAtStart`)
  return new RegExp(source, flags)
}

it("the library and the images accept the same variables as those that are read at a start", () => {
  const paths = ["packages/core/src/SandboxShape.ts", "images/runtime/preload.mjs"]
  for (const expression of paths.map(expressionIn)) {
    assert.deepStrictEqual(
      accepted.filter((name) => !expression.test(name)),
      []
    )
    assert.deepStrictEqual(
      others.filter((name) => expression.test(name)),
      []
    )
  }
})

it("the guide of the pool lists them all, but those that no run can set", () => {
  const row = /^\| `variables` \|.*$/mu.exec(SourceTree.read("docs/guides/pool.md"))?.[0] ?? ""
  const listed = [...row.matchAll(/`([^`]+)`/gu)].map(([, text = ""]) => text.split("…"))
  const isListed = (name: string) =>
    listed.some(([start = "", end]) =>
      end === undefined ? name === start : name.startsWith(start) && name.endsWith(end)
    )
  const unlisted = accepted.filter((name) => !isListed(name.toUpperCase()))
  assert.deepStrictEqual(unlisted, ["GLIBC_TUNABLES", "LD_PRELOAD"])
  assert.deepStrictEqual(others.filter(isListed), [])
})

it("no other program of an image has a list of its own", () => {
  const lists = SourceTree.files("images/**/*preload*.mjs").filter(
    (path) =>
      path !== "images/runtime/preload.mjs" && /\bLD_|\|LD\||\bLC_|\|LC\|/u.test(SourceTree.read(path))
  )
  none(lists, "Use isReadAtStart of images/runtime/preload.mjs")
})
