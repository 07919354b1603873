/** Tools of an agent by profile and overrides. */
import { assert, describe, it } from "@effect/vitest"
import * as ToolProfile from "@cogni/sandbox-loop/ToolProfile"
import { dottedName, wireName } from "@cogni/sandbox-loop/Tool"
import { Result } from "effect"
import { toolNamed } from "./ToolWorld.ts"

const all = [
  ...ToolProfile.profiledTools.map(({ effect, name }) => toolNamed(wireName(name), "profiled", effect)),
  toolNamed("mail__send", "mail", "external_side_effect"),
  toolNamed("web__fetch", "web")
]

const namesOf = (made: ReturnType<typeof ToolProfile.allowedOf>) =>
  Result.isSuccess(made)
    ? made.success.map(({ name }) => dottedName(name))
    : assert.fail(made.failure.message)
const allowed = (...given: [ToolProfile.ToolProfile, ToolProfile.ToolOverrides?]) =>
  namesOf(ToolProfile.allowedOf(all, ...given))

describe("profiles", () => {
  it("list each tool once", () => {
    const names = ToolProfile.profiledTools.map(({ name }) => name)
    assert.strictEqual(new Set(names).size, names.length)
  })

  it("minimal includes only read-only tools", () => {
    assert.deepStrictEqual(allowed("minimal"), ["core.get_current_time", "file.read", "file.list"])
  })

  it("each includes the previous ones, and full also unlisted tools", () => {
    const [minimal, messaging, coding, full] = [
      allowed("minimal"),
      allowed("messaging"),
      allowed("coding"),
      allowed("full")
    ]
    assert.includeMembers([...messaging], [...minimal])
    assert.includeMembers([...coding], [...messaging])
    assert.includeMembers([...full], [...coding])
    assert.deepStrictEqual(messaging, [
      "core.get_current_time",
      "file.read",
      "file.list",
      "file.write",
      "shell.exec"
    ])
    assert.notInclude(messaging, "process.start")
    assert.include(coding, "process.start")
    assert.notInclude(coding, "web.fetch")
    assert.includeMembers([...full], ["web.fetch", "mail.send"])
  })

  it("a listed name does not allow a tool whose effect the profile excludes", () => {
    const disguised = [toolNamed("file__read", "disguised", "state_change")]
    assert.deepStrictEqual(namesOf(ToolProfile.allowedOf(disguised, "minimal")), [])
    const named = ToolProfile.allowedOf(disguised, "minimal", { allow: ["file.read"] })
    assert.deepStrictEqual(namesOf(named), ["file.read"])
  })
})

describe("overrides", () => {
  it("add and remove tools by name and by group", () => {
    assert.include(allowed("minimal", { allow: ["shell.exec"] }), "shell.exec")
    assert.includeMembers(
      [...allowed("minimal", { allow: ["process.*"] })],
      ["process.start", "process.wait"]
    )
    assert.notInclude(allowed("coding", { deny: ["process.*"] }).join(), "process.")
    assert.include(allowed("minimal", { allow: ["mail.send"] }), "mail.send")
  })

  it("deny takes precedence over allow, by name or group", () => {
    for (const deny of ["shell.exec", "shell.*", "shell*"]) {
      for (const allow of ["shell.exec", "shell.*"]) {
        for (const profile of ["minimal", "messaging", "coding", "full"] as const) {
          assert.notInclude(allowed(profile, { allow: [allow], deny: [deny] }), "shell.exec")
        }
      }
    }
  })

  it("a group matches whole names, and is not a pattern", () => {
    assert.isFalse(ToolProfile.covers("file.read", "file.readlink"))
    assert.isFalse(ToolProfile.covers("file.*", "filex.read"))
    assert.isFalse(ToolProfile.covers("f.le.read", "file.read"))
    assert.isTrue(ToolProfile.covers("file.*", "file.read"))
  })

  it("an unknown name in allow or deny is an error that lists the known tools", () => {
    for (const overrides of [
      { allow: ["shell.exce"] },
      { deny: ["shell.exce"] },
      { deny: ["web.search*"] },
      { allow: ["memory.*"] },
      { allow: ["__proto__"] }
    ]) {
      const made = ToolProfile.allowedOf(all, "full", overrides)
      if (Result.isSuccess(made)) return assert.fail(`${JSON.stringify(overrides)} was accepted`)
      assert.include(made.failure.message, (overrides.allow ?? overrides.deny)![0]!)
      assert.include(made.failure.message, "shell.exec")
    }
  })

  it("a known tool that is not registered is not an error, and not allowed", () => {
    const made = ToolProfile.allowedOf([toolNamed("file__read", "x")], "minimal", { allow: ["shell.exec"] })
    assert.deepStrictEqual(namesOf(made), ["file.read"])
  })
})
