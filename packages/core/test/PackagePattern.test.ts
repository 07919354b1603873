/** Patterns for packages: what they allow, and which patterns lie within others. */
import * as PackagePattern from "@cogni/sandbox-core/PackagePattern"
import { assert, describe, it } from "@effect/vitest"
import { Option, Schema } from "effect"

const rows: ReadonlyArray<
  readonly [pattern: string, registry: PackagePattern.Registry, name: string, allowed: boolean]
> = [
  ["npm:left-pad", "npm", "left-pad", true],
  ["npm:left-pad", "npm", "left-pad2", false],
  ["npm:left-pad", "pypi", "left-pad", false],
  ["npm:*", "npm", "left-pad", true],
  ["npm:*", "npm", "@types/node", false],
  ["npm:@types/*", "npm", "@types/node", true],
  ["npm:@types/*", "npm", "@typesx/node", false],
  ["npm:@types/*", "npm", "types/node", false],
  ["npm:@*/*", "npm", "@any/thing", true],
  ["npm:@*/*", "npm", "thing", false],
  ["npm:react-*", "npm", "react-dom", true],
  ["npm:react-*-x", "npm", "react-a-x-b-x", true],
  ["npm:react-*-x", "npm", "react-a-x-b", false],
  ["npm:React", "npm", "react", false],
  ["pypi:Typing_Extensions", "pypi", "typing-extensions", true],
  ["pypi:zope.*", "pypi", "Zope_Interface", true],
  ["cargo:serde_json", "cargo", "serde-json", true],
  ["cargo:serde*", "cargo", "Serde", true]
]

const invalid = [
  "left-pad",
  "npm:",
  "npm:**",
  "npm:@types/**",
  "npm:@types/",
  "npm:a/b",
  "npm:@a/b/c",
  "npm:../x",
  "npm:a b",
  "npm:a\nb",
  "pypi:@a/b",
  "cargo:a.b",
  "docker:x",
  `npm:${"a".repeat(300)}`
]

describe("PackagePattern", () => {
  it.each(rows)("%s allows %s:%s: %s", (pattern, registry, name, allowed) => {
    assert.strictEqual(PackagePattern.allows([pattern], registry, name), allowed)
  })

  it("accepts a registry and a name, and no pattern that crosses a scope", () => {
    const decode = Schema.decodeUnknownOption(PackagePattern.PackagePattern)
    for (const [pattern] of rows) assert.isTrue(Option.isSome(decode(pattern)), pattern)
    for (const pattern of invalid) assert.isTrue(Option.isNone(decode(pattern)), pattern)
  })

  it("allows nothing without patterns", () => {
    assert.isFalse(PackagePattern.allows([], "npm", "left-pad"))
    assert.isFalse(PackagePattern.covers([], "npm:left-pad"))
  })

  it("matches a long pattern with many wildcards at once", () => {
    const pattern = `npm:${"a*".repeat(100)}b`
    assert.isFalse(PackagePattern.allows([pattern], "npm", "a".repeat(214)))
  })

  const Part = Schema.Literals(["a", "b", "*", "a*", "*b", "*a*"])
  const Scope = Schema.Literals(["", "@s/", "@*/", "@a*/"])
  const Name = Schema.Literals(["a", "b", "ab", "ba", "aab"])
  const Given = Schema.Literals(["", "@s/", "@t/", "@ab/"])

  it.prop(
    "a pattern that others cover allows nothing beyond them",
    [Scope, Part, Scope, Part, Given, Name],
    ([outerScope, outer, innerScope, inner, scope, name]) => {
      const wide = `npm:${outerScope}${outer}`
      const narrow = `npm:${innerScope}${inner}`
      if (!PackagePattern.covers([wide], narrow)) return
      if (!PackagePattern.allows([narrow], "npm", `${scope}${name}`)) return
      assert.isTrue(PackagePattern.allows([wide], "npm", `${scope}${name}`), `${wide} covers ${narrow}`)
    }
  )
})
