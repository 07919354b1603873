/** A session's tools: a registry is immutable, and changes apply only to copies. */
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import * as Tool from "@cogni/sandbox-loop/Tool"
import * as ToolProfile from "@cogni/sandbox-loop/ToolProfile"
import * as ToolRegistry from "@cogni/sandbox-loop/ToolRegistry"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema, Tracer } from "effect"
import { context, toolNamed } from "./ToolWorld.ts"

const made = (...tools: ReadonlyArray<Tool.Tool>) => Result.getOrThrow(ToolRegistry.make(tools))
const base = made(
  toolNamed("file__read", "host"),
  toolNamed("shell__exec", "host", "state_change"),
  toolNamed("web__fetch", "host")
)
const full = Result.getOrThrow(base.restrict("full"))
const called = (registry: ToolRegistry.ToolRegistry, name: string, input: unknown = {}) =>
  registry.call(name, input, context).pipe(
    Effect.match({
      onSuccess: (result) => (result as { mark: string }).mark,
      onFailure: ({ code }) => code as string
    })
  )

describe("names", () => {
  it.prop(
    "survive the conversion to wire names and back",
    [Schema.Array(Schema.Literals(["a", "get_time", "x9", "exec"])).check(Schema.isMinLength(2))],
    ([words]) => {
      const dotted = words.join(".")
      assert.strictEqual(Tool.dottedName(Tool.wireName(dotted)), dotted)
      assert.match(Tool.wireName(dotted), /^[a-z0-9_]+$/u)
    },
    { arbitrary: { runs: 100, seed: "tool-names" } }
  )

  it("are refused if model APIs do not accept them", () => {
    for (const name of [
      "shell.exec",
      "exec",
      "Shell__exec",
      "shell__",
      "__proto__",
      "a__b c",
      `a__${"b".repeat(63)}`
    ]) {
      assert.isTrue(Result.isFailure(ToolRegistry.make([{ ...toolNamed("a__b", "x"), name }])), name)
      assert.throws(
        () => toolNamed(name, "x"),
        /has a name that model APIs do not accept\. Name it namespace__name/u
      )
    }
  })
})

describe("a registry", () => {
  it("lists its tools in order of registration", () => {
    assert.deepStrictEqual(
      base.list.map(({ name }) => name),
      ["file__read", "shell__exec", "web__fetch"]
    )
  })

  it("refuses a duplicate tool, and an override of an unknown one", () => {
    const twice = base.register(toolNamed("file__read", "again"))
    assert.match(Result.isFailure(twice) ? twice.failure.message : "", /already registered/u)
    const absent = base.override(toolNamed("file__write", "x"))
    assert.match(Result.isFailure(absent) ? absent.failure.message : "", /does not exist/u)
  })

  it.effect("allows no calls until it is restricted", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(base.offered, [])
      assert.strictEqual(yield* called(base, "file.read"), "policy_denied")
      assert.strictEqual(yield* called(full, "file.read"), "host")
      assert.strictEqual(yield* called(full, "file__read"), "host")
    })
  )

  it.effect("answers unknown and forbidden tools alike, with the allowed ones", () =>
    Effect.gen(function* () {
      const minimal = Result.getOrThrow(base.restrict("minimal"))
      const denied = yield* Effect.flip(minimal.call("shell.exec", {}, context))
      const absent = yield* Effect.flip(minimal.call("shell.exce", {}, context))
      assert.deepStrictEqual([denied.code, absent.code], ["policy_denied", "policy_denied"])
      assert.strictEqual(
        denied.message.replace("shell__exec", "X"),
        absent.message.replace("shell__exce", "X")
      )
      assert.include(denied.message, "file__read")
      assert.notInclude(absent.message, "shell__exec")
    })
  )

  it.effect("never allows more when restricted again or extended", () =>
    Effect.gen(function* () {
      const minimal = Result.getOrThrow(base.restrict("minimal"))
      const again = Result.getOrThrow(minimal.restrict("full", { allow: ["shell.exec"] }))
      assert.strictEqual(yield* called(again, "shell.exec"), "policy_denied")
      assert.strictEqual(yield* called(again, "file.read"), "host")
      const later = Result.getOrThrow(full.register(toolNamed("mail__send", "later")))
      assert.strictEqual(yield* called(later, "mail.send"), "policy_denied")
      assert.strictEqual(
        yield* called(Result.getOrThrow(later.restrict("full")), "mail.send"),
        "policy_denied"
      )
    })
  )

  it.effect("does not allow an override of another effect class", () =>
    Effect.gen(function* () {
      const minimal = Result.getOrThrow(base.restrict("minimal"))
      const wider = Result.getOrThrow(
        minimal.override(toolNamed("file__read", "wider", "external_side_effect"))
      )
      assert.strictEqual(yield* called(wider, "file.read"), "policy_denied")
      assert.deepStrictEqual(wider.offered, [])
      const again = Result.getOrThrow(wider.restrict("full", { allow: ["file.read"] }))
      assert.strictEqual(yield* called(again, "file.read"), "policy_denied")
      // Another allowed tool has the wider class; it does not allow this one.
      const writing = Result.getOrThrow(full.override(toolNamed("file__read", "wider", "state_change")))
      assert.strictEqual(yield* called(writing, "shell.exec"), "host")
      assert.strictEqual(yield* called(writing, "file.read"), "policy_denied")
    })
  )

  it("refuses an unknown name in overrides", () => {
    const failure = base.restrict("coding", { deny: ["shel.exec"] })
    assert.isTrue(Result.isFailure(failure))
  })
})

const names = ["file.read", "shell.exec", "web.fetch", "mail.send"] as const
const Name = Schema.Literals(names)
const Operation = Schema.Union([
  Schema.Struct({
    _tag: Schema.Literal("override"),
    of: Schema.Int,
    name: Name,
    mark: Schema.Literals(["m1", "m2"])
  }),
  Schema.Struct({ _tag: Schema.Literal("register"), of: Schema.Int, name: Name }),
  Schema.Struct({
    _tag: Schema.Literal("restrict"),
    of: Schema.Int,
    profile: ToolProfile.ToolProfile,
    deny: Schema.Array(Name).check(Schema.isMaxLength(2))
  })
])

interface Model {
  readonly marks: ReadonlyMap<string, string>
  /** Allowed tools; absent if the registry is not restricted yet. */
  readonly allowed?: ReadonlySet<string>
}

const inProfile: Readonly<Record<ToolProfile.ToolProfile, ReadonlyArray<string>>> = {
  minimal: ["file.read"],
  messaging: ["file.read", "shell.exec"],
  coding: ["file.read", "shell.exec"],
  full: names
}

const effectOf = (name: string) => (name === "shell.exec" ? "state_change" : "read_only")
const tool = (name: string, mark: string) => toolNamed(Tool.wireName(name), mark, effectOf(name))

describe("sequences of changes to registries", () => {
  it.effect.prop(
    "affect only the new registry",
    [Schema.Array(Operation).check(Schema.isMaxLength(30))],
    ([operations]) =>
      Effect.gen(function* () {
        const registries = [made(tool("file.read", "host"), tool("shell.exec", "host"))]
        const models: Array<Model> = [
          {
            marks: new Map([
              ["file.read", "host"],
              ["shell.exec", "host"]
            ])
          }
        ]
        for (const operation of operations) {
          const at = Math.abs(operation.of) % registries.length
          const [registry, model] = [registries[at]!, models[at]!]
          switch (operation._tag) {
            case "override": {
              const next = registry.override(tool(operation.name, operation.mark))
              assert.strictEqual(Result.isSuccess(next), model.marks.has(operation.name))
              if (Result.isFailure(next)) break
              registries.push(next.success)
              models.push({ ...model, marks: new Map(model.marks).set(operation.name, operation.mark) })
              break
            }
            case "register": {
              const next = registry.register(tool(operation.name, "new"))
              assert.strictEqual(Result.isSuccess(next), !model.marks.has(operation.name))
              if (Result.isFailure(next)) break
              registries.push(next.success)
              models.push({ ...model, marks: new Map(model.marks).set(operation.name, "new") })
              break
            }
            case "restrict": {
              const known = new Set([
                ...model.marks.keys(),
                ...ToolProfile.profiledTools.map(({ name }) => name)
              ])
              const next = registry.restrict(operation.profile, { deny: operation.deny })
              assert.strictEqual(
                Result.isSuccess(next),
                operation.deny.every((name) => known.has(name))
              )
              if (Result.isFailure(next)) break
              const allowed = [...model.marks.keys()]
                .filter((name) => inProfile[operation.profile].includes(name))
                .filter((name) => !operation.deny.includes(name as never))
                .filter((name) => model.allowed?.has(name) !== false)
              registries.push(next.success)
              models.push({ ...model, allowed: new Set(allowed) })
            }
          }
        }
        for (const [index, registry] of registries.entries()) {
          const { allowed, marks } = models[index]!
          assert.deepStrictEqual(
            registry.list.map(({ name }) => Tool.dottedName(name)),
            [...marks.keys()]
          )
          for (const name of names) {
            assert.strictEqual(
              registry.list.find((found) => found.name === Tool.wireName(name))?.description,
              marks.get(name)
            )
            const expected =
              allowed?.has(name) === true ? (marks.get(name) ?? "policy_denied") : "policy_denied"
            assert.strictEqual(yield* called(registry, name), expected)
          }
        }
      }),
    { arbitrary: { runs: 300, seed: "registries" } }
  )
})

describe("the span of a call", () => {
  const traced = Effect.fnUntraced(function* (name: string, input: unknown) {
    const spans: Array<Tracer.NativeSpan> = []
    const tracer = Tracer.make({
      span: (options) => {
        const span = new Tracer.NativeSpan(options)
        spans.push(span)
        return span
      }
    })
    yield* Effect.ignore(full.call(name, input, { ...context, requestId: `call_${"x".repeat(1000)}` })).pipe(
      Effect.withTracer(tracer)
    )
    return spans.map(({ attributes, name: spanName, status }) => ({
      name: spanName,
      ok: status._tag === "Ended" && status.exit._tag === "Success",
      attributes: Object.fromEntries(attributes)
    }))
  })

  it.effect("has the attributes of OpenTelemetry's conventions", () =>
    Effect.gen(function* () {
      const [span] = yield* traced("shell.exec", { text: "secret of the caller" })
      assert.containSubset(span, {
        name: "execute_tool shell.exec",
        ok: true,
        attributes: {
          [Telemetry.attribute.operation]: "execute_tool",
          [Telemetry.attribute.toolName]: "shell__exec",
          [Telemetry.attribute.runId]: context.runId
        }
      })
      assert.match(String(span?.attributes[Telemetry.attribute.toolCallId]), /^call_x{195}$/u)
      assert.notInclude(JSON.stringify(span), "secret")
      assert.strictEqual(Telemetry.attribute.toolName, "gen_ai.tool.name")
      assert.strictEqual(Telemetry.attribute.toolCallId, "gen_ai.tool.call.id")
    })
  )

  it.effect("has the code of a failure, and never a name that the model made up", () =>
    Effect.gen(function* () {
      const [invalid] = yield* traced("shell.exec", { text: 1 })
      assert.containSubset(invalid, {
        ok: false,
        attributes: { [Telemetry.attribute.errorType]: "validation" }
      })
      const [denied] = yield* traced("made.up_by_a_model", {})
      assert.containSubset(denied, {
        name: "execute_tool",
        ok: false,
        attributes: { [Telemetry.attribute.errorType]: "policy_denied" }
      })
      assert.notInclude(JSON.stringify(denied), "made")
    })
  )
})
