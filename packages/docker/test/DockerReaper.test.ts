import { assert, describe, it, vi } from "@effect/vitest"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import { ContainerFailed, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import * as DockerReaper from "@cogni/sandbox-docker/DockerReaper"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { Effect, Exit, Fiber, Layer, Logger, Scope } from "effect"
import { TestClock } from "effect/testing"
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as DockerApi from "../src/DockerApi.ts"
import * as HostsFile from "../src/internal/container/HostsFile.ts"

type Api = DockerApi.DockerApi["Service"]

const living = HostOwner.self()
const dead: ResourceLabels.Owner = { ...living, startTicks: living.startTicks + 1 }
const elsewhere: ResourceLabels.Owner = { ...living, bootId: "another-boot-1" }

const resource = (
  name: string,
  owner: ResourceLabels.Owner,
  kind: DockerApi.Labelled["kind"] = "container"
): DockerApi.Labelled => ({
  kind,
  id: name,
  name,
  labels: ResourceLabels.make({
    runId: RunId.make("run-000000000000"),
    role: "agent",
    owner,
    startedAt: new Date("2030-01-01T00:00:00Z"),
    expiresAt: new Date("2100-01-01T00:00:00Z")
  })
})

const everyone = [
  resource("volume-of-the-dead", dead, "volume"),
  resource("of-the-dead", dead),
  resource("of-the-living", living),
  resource("of-another-machine", elsewhere)
]

/** A start that reaps, on an engine with these functions; and what it removed and logged. */
const started = Effect.fnUntraced(function* (api: Partial<Api>) {
  const removed: Array<string> = []
  const warnings: Array<string> = []
  const note = (name: string) => Effect.sync(() => void removed.push(name))
  const engine = Layer.mock(DockerApi.DockerApi, {
    address: { type: "unix", path: "/nowhere" },
    labelled: () => Effect.succeed(everyone),
    remove: note,
    removeVolume: note,
    ...api
  })
  const log = Logger.make(({ logLevel, message }) => void warnings.push(`${logLevel}: ${String(message)}`))
  const scope = yield* Scope.make()
  const fiber = yield* DockerReaper.DockerReaper.use(({ reapAtStart }) => reapAtStart).pipe(
    Effect.provide(Layer.merge(Layer.provide(DockerReaper.layerApi(), engine), Logger.layer([log]))),
    Scope.provide(scope),
    Effect.forkChild({ startImmediately: true })
  )
  return { fiber, removed, warnings, close: Scope.close(scope, Exit.void) }
})

describe("DockerReaper, at a start", () => {
  it.effect("removes what dead owners left, containers first, and nothing else", () =>
    Effect.gen(function* () {
      const { fiber, removed, warnings } = yield* started({})
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(removed, ["of-the-dead", "volume-of-the-dead"])
      assert.deepStrictEqual(warnings, [])
    })
  )

  it.effect("removes the hosts files of dead owners", () =>
    Effect.gen(function* () {
      const temporary = mkdtempSync(join(tmpdir(), "cogni-reaper-test-"))
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          vi.unstubAllEnvs()
          rmSync(temporary, { recursive: true })
        })
      )
      vi.stubEnv("TMPDIR", temporary)
      const directory = HostsFile.defaultDirectory()
      mkdirSync(directory, { mode: 0o700 })
      const left = [dead, living].map((owner) => {
        const process = crypto.randomUUID()
        writeFileSync(join(directory, `${process}.owner`), ResourceLabels.formatOwner(owner))
        writeFileSync(join(directory, `${process}.${crypto.randomUUID()}`), "")
        return process
      })
      const { fiber } = yield* started({})
      yield* Fiber.join(fiber)
      const names = readdirSync(directory)
      assert.deepStrictEqual([names.length, names.filter((name) => name.startsWith(left[1]!)).length], [2, 2])
    })
  )

  it.effect("succeeds on an engine that does not answer at all, with a warning that says what to do", () =>
    Effect.gen(function* () {
      const { fiber, warnings } = yield* started({
        labelled: () => Effect.fail(new RuntimeUnavailable({ detail: "is not running", remedy: "Start it" }))
      })
      yield* Fiber.join(fiber)
      assert.strictEqual(warnings.length, 1)
      assert.match(warnings[0]!, /^Warn.*could not be removed.*is not running.*Reaper/su)
    })
  )

  it.effect("names what an engine refuses to remove, and removes the rest", () =>
    Effect.gen(function* () {
      const { fiber, removed, warnings } = yield* started({
        remove: () =>
          Effect.fail(new ContainerFailed({ operation: "remove", detail: "device is busy", remedy: "Wait" }))
      })
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(removed, ["volume-of-the-dead"])
      assert.strictEqual(warnings.length, 1)
      assert.match(warnings[0]!, /^Warn.*1 resources.*of-the-dead \(.*device is busy/su)
    })
  )

  it.effect("previews what it would remove, and removes nothing", () =>
    Effect.gen(function* () {
      const engine = Layer.mock(DockerApi.DockerApi, {
        address: { type: "unix", path: "/nowhere" },
        labelled: () => Effect.succeed(everyone)
      })
      const preview = (all: boolean) =>
        DockerReaper.DockerReaper.use((reaper) => reaper.preview({ all })).pipe(
          Effect.provide(Layer.provide(DockerReaper.layerApi(), engine))
        )
      assert.deepStrictEqual(yield* preview(false), {
        removed: ["volume-of-the-dead", "of-the-dead"],
        failed: [],
        living: 2
      })
      assert.strictEqual((yield* preview(true)).removed.length, everyone.length)
    })
  )

  it.effect("waits 5 s for a slow engine, goes on in the background, and ends with its scope", () =>
    Effect.gen(function* () {
      let interrupted = false
      const { close, fiber, removed } = yield* started({
        labelled: () => Effect.delay(Effect.succeed(everyone), "20 seconds"),
        removeVolume: () => Effect.onInterrupt(Effect.never, () => Effect.sync(() => (interrupted = true)))
      })
      yield* TestClock.adjust("4900 millis")
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust("200 millis")
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(removed, [])
      yield* TestClock.adjust("20 seconds")
      assert.deepStrictEqual(removed, ["of-the-dead"])
      assert.isFalse(interrupted)
      yield* close
      assert.isTrue(interrupted)
    })
  )
})
