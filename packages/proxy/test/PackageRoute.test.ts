/** Requests that the package mirror accepts, and those that it refuses. */
import { PackagePattern } from "@cogni/sandbox-core/PackagePattern"
import * as Allowed from "@cogni/sandbox-core/PackagePattern"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as PackageRoute from "../src/internal/packages/PackageRoute.ts"

const everything = ["npm:*", "npm:@*/*", "pypi:*", "cargo:*"].map((text) =>
  Schema.decodeUnknownSync(PackagePattern)(text)
)

const decide = (target: string, patterns = everything, method = "GET", accept = "*/*") =>
  PackageRoute.decide({ method, target, accept, patterns })

const shown = (decision: PackageRoute.PackageDecision): string => {
  if (decision._tag === "Refused") return `${decision.status} ${decision.code}`
  if (decision._tag === "CargoConfig") return "config"
  const { file, isAbbreviated, name, registry } = decision.ask
  return [registry, name, file, ...(isAbbreviated ? ["abbreviated"] : [])].filter(Boolean).join(" ")
}

const closed = "403 package_path_not_allowed"

const rows: ReadonlyArray<readonly [target: string, says: string]> = [
  ["/packages/npm/left-pad", "npm left-pad"],
  ["/packages/npm/left-pad?write=true&secret=x", "npm left-pad"],
  ["/packages/npm/@types%2fnode", "npm @types/node"],
  ["/packages/npm/@types%2Fnode", "npm @types/node"],
  ["/packages/npm/%40types/node", "npm @types/node"],
  ["/packages/npm/@types/node", "npm @types/node"],
  ["/packages/npm/left-pad/-/left-pad-1.3.0.tgz", "npm left-pad left-pad-1.3.0.tgz"],
  ["/packages/npm/@types/node/-/node-20.0.0-rc.1+b.tgz", "npm @types/node node-20.0.0-rc.1+b.tgz"],
  ["/packages/pypi/simple/Typing_Extensions/", "pypi typing-extensions"],
  ["/packages/pypi/simple/requests", "pypi requests"],
  [
    "/packages/pypi/files/requests/requests-2.0-py3-none-any.whl",
    "pypi requests requests-2.0-py3-none-any.whl"
  ],
  [
    "/packages/pypi/files/requests/requests-2.0-py3-none-any.whl.metadata",
    "pypi requests requests-2.0-py3-none-any.whl.metadata"
  ],
  ["/packages/cargo/index/config.json", "config"],
  ["/packages/cargo/index/se/rd/serde", "cargo serde"],
  ["/packages/cargo/index/1/a", "cargo a"],
  ["/packages/cargo/index/3/l/log", "cargo log"],
  ["/packages/cargo/crates/serde/1.0.0/download", "cargo serde 1.0.0"],
  // Everything else is closed.
  ["/packages/npm/-/npm/v1/security/advisories/bulk", closed],
  ["/packages/npm/-/v1/search?text=x", closed],
  ["/packages/npm/-/ping", closed],
  ["/packages/npm/left-pad/1.3.0", closed],
  ["/packages/npm/left-pad/-/../../secret.tgz", closed],
  ["/packages/npm/left-pad/-/..%2f..%2fsecret.tgz", closed],
  ["/packages/npm/../../v1/models", closed],
  ["/packages/npm/..%2f..%2fv1/models", closed],
  ["/packages/npm/%2e%2e/left-pad", closed],
  ["/packages/npm/.npmrc", closed],
  ["/packages/npm/left-pad%00", closed],
  ["/packages/npm/left-pad%0d%0aHost:%20evil", closed],
  ["/packages/npm/left-pad%252f..", closed],
  ["/packages/npm/left-pad\\..", closed],
  ["/packages/npm/left-pad#x", closed],
  ["/packages/npm//left-pad", closed],
  ["/packages/npm/@types/node/x", closed],
  ["/packages/npm/@types", closed],
  ["/packages/npm/%", closed],
  ["/packages/npm/h\u00e9", closed],
  ["/packages/npm/http://evil.example/x", closed],
  [`/packages/npm/${"a".repeat(215)}`, closed],
  ["/packages/pypi/simple/", closed],
  ["/packages/pypi/simple/a/b/", closed],
  ["/packages/pypi/files/requests/../../x", closed],
  ["/packages/pypi/files/requests/.netrc", closed],
  ["/packages/cargo/index/xx/xx/serde", closed],
  ["/packages/cargo/index/se/rd/../../config.json", closed],
  ["/packages/cargo/api/v1/crates/serde/owners", closed],
  ["/packages/cargo/crates/serde/../download", closed],
  ["/packages/docker/x", closed],
  ["/packages/", closed],
  ["/packages", closed]
]

describe("PackageRoute", () => {
  it.each(rows)("%s: %s", (target, says) => {
    assert.strictEqual(shown(decide(target)), says)
  })

  it("only reads", () => {
    for (const method of ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
      assert.strictEqual(
        shown(decide("/packages/npm/left-pad", everything, method)),
        "405 package_method_not_allowed"
      )
    assert.strictEqual(shown(decide("/packages/npm/left-pad", everything, "HEAD")), "npm left-pad")
  })

  it("asks for npm's short metadata if the client does", () => {
    const accept = "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*"
    assert.strictEqual(shown(decide("/packages/npm/x", everything, "GET", accept)), "npm x abbreviated")
  })

  it("names a refused package, and the patterns of its registry", () => {
    const refused = decide("/packages/npm/evil", ["npm:left-pad", "pypi:requests"])
    assert.deepInclude(refused, { status: 403, code: "package_not_allowed" })
    assert.strictEqual(
      refused._tag === "Refused" && refused.message,
      "npm:evil is not a package that this sandbox may install. It may install npm:left-pad"
    )
    const none = decide("/packages/cargo/index/se/rd/serde", ["npm:left-pad"])
    assert.include(none._tag === "Refused" ? none.message : "", "It may install none of cargo")
  })

  it("compares names as their registry does, so that no other spelling passes", () => {
    const patterns = ["npm:@types/*", "pypi:requests", "cargo:serde_json"]
    for (const target of [
      "/packages/npm/types%2fnode",
      "/packages/npm/@Types/node",
      "/packages/npm/@types%2f..%2fleft-pad",
      "/packages/npm/@typesx/node",
      "/packages/pypi/simple/requests2/",
      "/packages/pypi/simple/requests-oauthlib/"
    ])
      assert.strictEqual(decide(target, patterns)._tag, "Refused", target)
    assert.strictEqual(shown(decide("/packages/pypi/simple/ReQuests/", patterns)), "pypi requests")
    assert.strictEqual(shown(decide("/packages/cargo/index/se/rd/serde-json", patterns)), "cargo serde-json")
  })

  const Piece = Schema.Literals([
    "npm",
    "pypi",
    "cargo",
    "simple",
    "files",
    "index",
    "crates",
    "-",
    "@a",
    "a",
    "b.tgz",
    "..",
    ".",
    "%2f",
    "%2e",
    "%252e",
    "//",
    "\\",
    "\u0000",
    "?",
    "#",
    "@",
    "1.0.0",
    "download",
    "config.json",
    "%40",
    "a%2fb"
  ])

  it.prop(
    "whatever is asked for is a plain name that the patterns allow",
    [
      Schema.Array(Piece).check(Schema.isMaxLength(6)),
      Schema.Array(Schema.Literals(["npm:a", "npm:@a/*", "pypi:a", "cargo:a"])).check(Schema.isMaxLength(3))
    ],
    ([pieces, patterns]) => {
      const decision = decide(`/packages/${pieces.join("/")}`, [...patterns])
      if (decision._tag !== "Asked") return
      const { file = "", name, registry } = decision.ask
      assert.isTrue(Allowed.allows(patterns, registry, name))
      assert.match(name, /^(?:@[A-Za-z0-9][A-Za-z0-9._~-]*\/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*$/u)
      assert.notInclude(file, "/")
    }
  )
})
