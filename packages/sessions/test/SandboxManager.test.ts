import { assert, describe, it } from "@effect/vitest"
import * as Await from "../../../test/harness/Await.ts"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { ContainerFailed } from "@cogni/sandbox-core/SandboxReason"
import { Deferred, Duration, Effect, Exit, type Fiber, Layer, Ref, Schema, Scope } from "effect"
import { TestClock } from "effect/testing"
import { type CreateOptions, DockerSandbox, type SessionSandbox } from "../src/sandbox/DockerSandbox.ts"
import * as SandboxManager from "../src/sandbox/SandboxManager.ts"
import * as SessionWorkspaces from "../src/sandbox/SessionWorkspaces.ts"

interface Made {
  readonly sessionId: string
  readonly image: string
  readonly sandbox: SessionSandbox
  readonly kill: Effect.Effect<void>
  isLeft: boolean
}

const dead = new SandboxError({
  reason: new ContainerFailed({ operation: "exec", detail: "the sandbox has ended", remedy: "Open another" })
})

/** Fake sandboxes. Creating or ending one takes the given time, and creating a broken one fails. */
const sandboxesOf = (takes: Duration.Input, broken: ReadonlySet<string> = new Set()) => {
  const made: Array<Made> = []
  let most = 0
  const left = () => made.filter(({ isLeft }) => isLeft)
  const create = Effect.fnUntraced(function* ({ sessionId, settings: { image } }: CreateOptions) {
    yield* Effect.sleep(takes)
    if (broken.has(sessionId)) return yield* dead
    const over = yield* Deferred.make<never, SandboxError>()
    const one: Made = {
      sessionId,
      image,
      sandbox: {
        sessionId,
        runId: `run-${made.length}` as RunId,
        ended: Deferred.await(over)
      } as SessionSandbox,
      kill: Effect.asVoid(Deferred.fail(over, dead)),
      isLeft: true
    }
    made.push(one)
    most = Math.max(most, left().length)
    yield* Effect.addFinalizer(() =>
      Effect.andThen(
        Effect.sleep(takes),
        Effect.sync(() => {
          one.isLeft = false
        })
      )
    )
    return one.sandbox
  })
  const layer = Layer.succeed(DockerSandbox, { create })
  return { made, left, most: () => most, layer }
}

const managed = (
  sandboxes: ReturnType<typeof sandboxesOf>,
  options: Omit<SandboxManager.ManagerOptions, "settings"> = {}
) =>
  SandboxManager.layer({ settings: { image: "memory" }, ...options }).pipe(
    Layer.provide([sandboxes.layer, SessionWorkspaces.layerTemporary])
  )

const { SandboxManager: Manager } = SandboxManager
const ask = (sessionId: string) => Manager.use((manager) => manager.getOrCreate(sessionId))
const askOnce = (sessionId: string) => Effect.scoped(ask(sessionId))
const list = Manager.use((manager) => manager.list)

const during = <A, E>(fiber: Fiber.Fiber<A, E>) => Effect.flatten(Await.ended(fiber))

describe("SandboxManager", () => {
  it.effect("adds names to the identity of each sandbox, and keeps one whose names change", () =>
    Effect.gen(function* () {
      const identities: Array<unknown> = []
      const sandboxes = sandboxesOf(0)
      const create = ({ settings, ...options }: CreateOptions) => {
        identities.push(settings.llm?.identity)
        return Effect.flatMap(DockerSandbox, (inner) => inner.create({ settings, ...options })).pipe(
          Effect.provide(sandboxes.layer)
        )
      }
      let calls = 0
      const identity = { billingAccountId: "acme", attempt: 0 }
      const layer = SandboxManager.layer({
        settings: { image: "memory", llm: { model: "m", identity, caller: "host" } },
        identityOf: (account, sessionId) =>
          Effect.sync(() => ({ ...account, sessionId, existingTraceId: `trace-${calls++}` }))
      }).pipe(Layer.provide([Layer.succeed(DockerSandbox, { create }), SessionWorkspaces.layerTemporary]))
      yield* Effect.andThen(Effect.andThen(askOnce("a"), askOnce("a")), askOnce("b")).pipe(
        Effect.provide(layer)
      )
      assert.deepStrictEqual(identities, [
        { ...identity, sessionId: "a", existingTraceId: "trace-0" },
        { ...identity, sessionId: "b", existingTraceId: "trace-1" }
      ])
    })
  )

  it.effect.prop(
    "concurrent requests for a session share one container, and closing leaves none",
    [
      Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 4 }))).check(
        Schema.isMaxLength(40)
      ),
      Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 3 }))
    ],
    ([asked, takes]) => {
      const sandboxes = sandboxesOf(Duration.seconds(takes))
      return Await.play(
        Effect.gen(function* () {
          const found = yield* Effect.forEach(asked, (id) => ask(`s${id}`), { concurrency: "unbounded" })
          const ids = new Set(asked)
          assert.strictEqual(sandboxes.made.length, ids.size)
          for (const [index, id] of asked.entries()) {
            assert.strictEqual(found[index]?.sessionId, `s${id}`)
            assert.strictEqual(found[index], found[asked.indexOf(id)])
          }
        }).pipe(Effect.scoped, Effect.provide(managed(sandboxes)))
      ).pipe(Effect.tap(() => Effect.sync(() => assert.deepStrictEqual(sandboxes.left(), []))))
    },
    { arbitrary: { runs: 100, seed: 61 } }
  )

  it.effect("ends the container of an idle session after idleSeconds", () => {
    const sandboxes = sandboxesOf(0)
    return Effect.gen(function* () {
      yield* askOnce("a")
      yield* TestClock.adjust("50 seconds")
      yield* askOnce("a")
      yield* TestClock.adjust("59 seconds")
      assert.deepStrictEqual(
        (yield* list).map(({ idleSeconds, sessionId, users }) => ({
          sessionId: String(sessionId),
          users,
          idleSeconds
        })),
        [{ sessionId: "a", users: 0, idleSeconds: 59 }]
      )
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(yield* list, [])
      assert.deepStrictEqual(sandboxes.left(), [])
      yield* askOnce("a")
      assert.strictEqual(sandboxes.made.length, 2)
    }).pipe(Effect.provide(managed(sandboxes, { idleSeconds: 60 })))
  })

  it.effect("opens 20 of 200 concurrent sessions at a limit of 20, and refuses the others", () => {
    const sandboxes = sandboxesOf("1 second")
    const ids = Array.from({ length: 200 }, (_, index) => `session ${index}`)
    return Await.play(
      Effect.gen(function* () {
        const exits = yield* Effect.forEach(ids, (id) => Effect.exit(ask(id)), { concurrency: "unbounded" })
        assert.strictEqual(exits.filter(Exit.isSuccess).length, 20)
        const error = yield* Effect.flip(ask("one more"))
        assert.strictEqual(error._tag === "SessionRefused" && error.reason, "full")
        assert.include(error.message, "20 sessions already")
        assert.include(error.message, "sessions_max")
      }).pipe(Effect.scoped, Effect.provide(managed(sandboxes, { sessionsMax: 20 })))
    )
  })

  it.effect("evicts the longest idle session at the limit, and never one in use", () => {
    const sandboxes = sandboxesOf(0)
    return Effect.gen(function* () {
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* ask("used")
          yield* askOnce("older")
          yield* TestClock.adjust("1 second")
          yield* askOnce("newer")
          yield* askOnce("another")
          assert.deepStrictEqual(
            sandboxes.left().map(({ sessionId }) => sessionId),
            ["used", "newer", "another"]
          )
        })
      )
      const all = yield* Effect.forEach(["used", "newer", "another"], ask)
      assert.strictEqual(all.length, 3)
      const error = yield* Effect.flip(ask("too many"))
      assert.include(error.message, "all of them are in use")
    }).pipe(Effect.scoped, Effect.provide(managed(sandboxes, { sessionsMax: 3, whenFull: "evict_idle" })))
  })

  it.effect("replaces a sandbox that has ended or was killed from outside", () => {
    const sandboxes = sandboxesOf(0)
    return Effect.gen(function* () {
      const first = yield* askOnce("a")
      yield* sandboxes.made[0]!.kill
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual([yield* list, sandboxes.left()], [[], []])
      assert.notStrictEqual(yield* askOnce("a"), first)
    }).pipe(Effect.provide(managed(sandboxes)))
  })

  it.effect("replaces a sandbox with outdated settings when it is no longer in use", () => {
    const sandboxes = sandboxesOf("1 second")
    const images = () => sandboxes.made.map(({ image }) => image)
    return Await.play(
      Effect.gen(function* () {
        const image = yield* Ref.make("one")
        const layer = Layer.effect(
          Manager,
          SandboxManager.make(Effect.map(Ref.get(image), (image) => ({ settings: { image } })))
        ).pipe(Layer.provide([sandboxes.layer, SessionWorkspaces.layerTemporary]))
        yield* Effect.gen(function* () {
          const first = yield* Effect.scoped(
            Effect.gen(function* () {
              const found = yield* ask("a")
              yield* Ref.set(image, "other")
              assert.strictEqual(yield* ask("a"), found, "a sandbox in use is kept")
              return found
            })
          )
          assert.deepStrictEqual(images(), ["one"])
          const second = yield* askOnce("a")
          assert.notStrictEqual(second, first)
          assert.strictEqual(yield* askOnce("a"), second)
          assert.deepStrictEqual(images(), ["one", "other"])
          assert.deepStrictEqual(
            sandboxes.left().map(({ sandbox }) => sandbox),
            [second]
          )
          assert.strictEqual(sandboxes.most(), 1)
        }).pipe(Effect.provide(layer))
      })
    )
  })

  it.effect.each([
    { what: "at once", takes: "10 seconds", waits: undefined },
    { what: "while its sandbox is created", takes: "10 seconds", waits: "5 seconds" }
  ] as const)(
    "fails all waiting callers, without interrupting them, if a session is destroyed $what",
    ({ takes, waits }) => {
      const sandboxes = sandboxesOf(takes)
      return Effect.gen(function* () {
        const { destroy } = yield* Manager
        const asked = yield* Effect.forEach([1, 2], () =>
          Effect.forkChild(Effect.flip(askOnce("a")), { startImmediately: true })
        )
        if (waits !== undefined) yield* TestClock.adjust(waits)
        yield* during(yield* Effect.forkChild(destroy("a"), { startImmediately: true }))
        for (const one of asked) {
          const error = yield* during(one)
          assert.include(error.message, "was ended while its sandbox was being made")
        }
        assert.deepStrictEqual(sandboxes.left(), [])
        assert.strictEqual((yield* Await.play(askOnce("a"))).runId, "run-0")
        yield* Await.play(destroy("a"))
      }).pipe(Effect.provide(managed(sandboxes)))
    }
  )

  it.effect("refuses sessions after it has closed", () => {
    const sandboxes = sandboxesOf(0)
    return Effect.gen(function* () {
      const scope = yield* Scope.make()
      const manager = yield* Effect.provideService(
        Effect.provide(
          SandboxManager.make({ settings: { image: "memory" } }),
          Layer.merge(sandboxes.layer, SessionWorkspaces.layerTemporary)
        ),
        Scope.Scope,
        scope
      )
      yield* Effect.scoped(manager.getOrCreate("a"))
      yield* Scope.close(scope, Exit.void)
      const error = yield* Effect.flip(Effect.scoped(manager.getOrCreate("a")))
      assert.strictEqual(error._tag === "SessionRefused" && error.reason, "closing")
    })
  })

  it.effect.each([
    { what: "an empty ID", id: "" },
    { what: "a line break", id: "a\nb" },
    { what: "a NUL", id: "a\0b" },
    { what: "half a character", id: "\ud800" },
    { what: "a long ID", id: "x".repeat(513) }
  ])("refuses an invalid ID: $what", ({ id }) =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(askOnce(id))
      assert.strictEqual(error._tag === "SessionRefused" && error.reason, "invalid_id")
    }).pipe(Effect.provide(managed(sandboxesOf(0))))
  )
})
