import { assert, it, vi } from "@effect/vitest"
import { ContainerRuntime, type ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { RunId } from "@cogni/sandbox-core/RunId"
import { ContainerFailed, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Layer, Logger } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { hostname, release, tmpdir } from "node:os"
import { join } from "node:path"
import * as DockerApi from "../src/DockerApi.ts"
import * as DockerContainerRuntime from "../src/DockerContainerRuntime.ts"
import * as GVisor from "../src/internal/container/GVisor.ts"
import { written } from "./ContainerSpecs.ts"

const away = new RuntimeUnavailable({ detail: "does not answer", remedy: "Start it" })

it.effect(
  "asks the engine again whether it is on this host, if it did not answer, and then never again",
  () => {
    const answers = [Effect.fail(away), Effect.fail(away)]
    let asked = 0
    const here = { Name: hostname(), KernelVersion: release() } as DockerApi.Info
    const engine = Layer.mock(DockerApi.DockerApi, {
      address: { type: "unix", path: "/nowhere" },
      info: Effect.suspend(() => {
        asked += 1
        return answers.pop() ?? Effect.succeed(here)
      }),
      events: () => Effect.never
    })
    return Effect.gen(function* () {
      const { sharesHost } = yield* ContainerRuntime
      assert.strictEqual((yield* Effect.flip(sharesHost))._tag, "RuntimeUnavailable")
      assert.strictEqual((yield* Effect.flip(sharesHost))._tag, "RuntimeUnavailable")
      assert.isTrue(yield* sharesHost)
      assert.isTrue(yield* sharesHost)
      assert.strictEqual(asked, 3)
    }).pipe(Effect.provide(Layer.provide(DockerContainerRuntime.layerApi(), engine)))
  }
)

const limitedTo = (processesMax: number, role: ContainerSpec["role"] = "agent"): ContainerSpec => ({
  ...written,
  role,
  limits: { ...written.limits, processesMax }
})

const { argv: _argv, env: _env, network: _network, role: _role, runId: _runId, ...shape } = limitedTo(63)

const waiting = { ...shape, waitingId: RunId.make("waiting-000000000000"), waitSecondsMax: 60 }

it.effect.each([
  {
    what: "a run",
    fails: ({ acquire }: ContainerRuntime["Service"]) => Effect.asVoid(acquire(limitedTo(63))),
    remedy: "Set limits.processesMax to at least 64"
  },
  {
    what: "the limits of a run",
    fails: ({ checkLimits }: ContainerRuntime["Service"]) => checkLimits!(limitedTo(63)),
    remedy: "Set limits.processesMax to at least 64"
  },
  {
    what: "a sandbox that waits",
    fails: ({ prepare }: ContainerRuntime["Service"]) => Effect.asVoid(prepare!(waiting)),
    remedy: "Set limits.processesMax to at least 64"
  },
  {
    what: "a model proxy",
    fails: ({ acquire }: ContainerRuntime["Service"]) => Effect.asVoid(acquire(limitedTo(32, "proxy"))),
    remedy: "Use GatewayLlmProxy"
  }
])("refuses $what with too few processes for gVisor before the engine creates it", ({ fails, remedy }) => {
  const engine = Layer.mock(DockerApi.DockerApi, {
    address: { type: "unix", path: "/nowhere" },
    events: () => Effect.never
  })
  return Effect.gen(function* () {
    const runtime = yield* ContainerRuntime
    const error = yield* Effect.flip(Effect.scoped(fails(runtime)))
    assert.strictEqual(error._tag, "ContainerFailed")
    assert.include(error.message, "gVisor hangs in a container with fewer than 64 processes")
    assert.include(error.message, remedy)
  }).pipe(Effect.provide(Layer.provide(DockerContainerRuntime.layerApi({ engineRuntime: "runsc" }), engine)))
})

it("lets gVisor start a container with just enough processes", () => {
  assert.isUndefined(GVisor.refusal(limitedTo(64)))
})

it.effect("checks no limits without gVisor", () =>
  Effect.gen(function* () {
    yield* (yield* ContainerRuntime).checkLimits!(limitedTo(4))
  }).pipe(
    Effect.provide(
      Layer.provide(
        DockerContainerRuntime.layerApi(),
        Layer.mock(DockerApi.DockerApi, {
          address: { type: "unix", path: "/nowhere" },
          events: () => Effect.never
        })
      )
    )
  )
)

it.effect("warns when a waiting sandbox cannot mount its hosts file, and prepares it once more without", () =>
  Effect.gen(function* () {
    const directory = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-refused-mount-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
    )
    yield* Effect.addFinalizer(() => Effect.sync(() => vi.unstubAllEnvs()))
    vi.stubEnv("TMPDIR", directory)
    const warnings: Array<string> = []
    const log = Logger.make(({ logLevel, message }) => void warnings.push(`${logLevel}: ${String(message)}`))
    const networksDisabled: Array<boolean | undefined> = []
    const refused = (detail: string) => new ContainerFailed({ operation: "create", detail, remedy: "none" })
    const engine = Layer.mock(DockerApi.DockerApi, {
      address: { type: "unix", path: "/nowhere" },
      events: () => Effect.never,
      info: Effect.succeed({ Name: hostname(), KernelVersion: release() } as DockerApi.Info),
      create: ({ networkDisabled }) => {
        networksDisabled.push(networkDisabled)
        return Effect.fail(
          refused(networkDisabled === true ? "cannot mount /etc/hosts: denied" : "it has no such image")
        )
      }
    })
    const error = yield* Effect.gen(function* () {
      const { prepare } = yield* ContainerRuntime
      const wanted = Effect.flip(Effect.scoped(prepare!(waiting)))
      yield* wanted
      return yield* wanted
    }).pipe(
      Effect.provide(
        Layer.merge(Layer.provide(DockerContainerRuntime.layerApi(), engine), Logger.layer([log]))
      )
    )
    assert.include(error.message, "it has no such image")
    assert.deepStrictEqual(networksDisabled, [true, false, false], "the next one does not try again")
    assert.strictEqual(warnings.length, 1, warnings.join("; "))
    assert.match(
      String(warnings[0]),
      /^Warn: a network that the engine does not configure could not be used: .*cannot mount \/etc\/hosts/u
    )
  }).pipe(Effect.scoped)
)
