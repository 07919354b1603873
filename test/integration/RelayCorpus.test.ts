/**
 * The corpus of workspaces, tested twice: on a careless host, to prove that each attack works, and on the relay, to
 * prove that none works and that ordinary commits arrive with an unchanged ID. Then hostile streams instead of bundles.
 */
import { assert, describe, it, layer } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { type Clone } from "@cogni/sandbox-git-relay/RelaySteps"
import type { GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import * as HostGitRelay from "@cogni/sandbox-git-relay/HostGitRelay"
import * as PullRequests from "@cogni/sandbox-git-relay/forge/PullRequests"
import { Context, Effect, Layer, Queue, Redacted, Result, Schedule, Semaphore } from "effect"
import { readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import * as RelayHarness from "../harness/RelayHarness.ts"
import * as Corpus from "../relay-corpus/Corpus.ts"
import * as Harm from "../relay-corpus/Harm.ts"
import * as LocalRuntime from "../relay-corpus/LocalRuntime.ts"
import { git, run, work } from "../relay-corpus/Making.ts"
import * as Naive from "../relay-corpus/Naive.ts"
import * as Observation from "../relay-corpus/Observation.ts"
import * as RemoteOrigin from "../relay-corpus/Origin.ts"
import * as Scene from "../relay-corpus/Scene.ts"
import * as StreamedRuntime from "../relay-corpus/StreamedRuntime.ts"
import * as Streams from "../relay-corpus/Streams.ts"
import { type Trial, trialsOf } from "../relay-corpus/Trials.ts"

/** Time after which a command counts as hanging. An ordinary command takes a hundredth of it. */
const denialMillis = 1500
/** Time limit of the relay for an export. An ordinary export takes a tenth of it. */
const collectSeconds = 8

/** The origin, and the permits that limit concurrent scenes. */
class Stage extends Context.Service<Stage, Scene.Stage & { readonly places: Semaphore.Semaphore }>()(
  "test/Stage"
) {
  static readonly layer = Layer.effect(
    Stage,
    Effect.gen(function* () {
      const stage = yield* Scene.stage(yield* RemoteOrigin.acquire)
      return { ...stage, places: yield* Semaphore.make(6) }
    })
  )
}

/** Runs `use` in a new scene. The six permits allow three scenes at a time, or six that mostly wait. */
const inScene = <A, E, R>(
  workspace: Pick<Corpus.Workspace, "attack"> & { readonly benign?: boolean },
  use: (scene: Scene.Scene) => Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const stage = yield* Stage
    const places = workspace.attack === "denial" && workspace.benign !== true ? 1 : 2
    return yield* stage.places.withPermits(places)(Effect.scoped(Effect.flatMap(Scene.acquire(stage), use)))
  })

const live = { excludeTestServices: true } as const

const careless = (workspace: Corpus.Workspace) =>
  inScene(workspace, (scene) =>
    Effect.promise(async () => {
      const context = Scene.prepare(scene)
      const tip = (await workspace.make(context)) ?? undefined
      assert.isFalse(Scene.isThere(context.marker), "its payload ran while the workspace was made")
      const was = await Observation.before(scene)
      const hangs = workspace.attack === "denial" && workspace.benign !== true
      return Naive.handle(scene, context, workspace, was, {
        tip,
        millis: hangs ? denialMillis : Naive.millisDefault,
        ...(workspace.benign === true ? {} : { until: workspace.attack })
      })
    })
  )

/** Every fourth control, without renamed branches: a careless host pushes those under the new name. */
const sampled = Corpus.controls.filter(({ name }, index) => index % 4 === 0 && !name.includes("renamed"))

describe.concurrent("a careless host", () => {
  it("each exception of Harm.ts is an attack of the corpus", () => {
    const names = Corpus.hostile.map(({ name }) => name)
    assert.includeMembers(names, [...Harm.named])
  })
  layer(Stage.layer, live)("", (it) => {
    for (const workspace of Corpus.hostile) {
      const { attack, name, unshown } = workspace
      if (unshown !== undefined) continue
      it.effect(`is harmed (${attack}): ${name}`, () =>
        Effect.map(careless(workspace), ({ fired, last }) => {
          const seen = `${JSON.stringify(fired)}; the last was ${last}`
          assert.include(
            fired.map((one) => one.attack),
            attack,
            `the attack had no effect on the commands "${Harm.flowOf(workspace)}" of Naive.ts: ${seen}`
          )
        })
      )
    }
    for (const workspace of sampled) {
      it.effect(`is not harmed: ${workspace.name}`, () =>
        Effect.map(careless(workspace), ({ fired }) => {
          assert.deepStrictEqual(fired, [])
        })
      )
    }
  })
})

interface Outcome {
  /** Tip of the branch at the origin. */
  readonly head: string | undefined
  /** Commit that the workspace is meant to deliver. */
  readonly tip: string | undefined
  readonly fired: ReadonlyArray<Observation.Fired>
  readonly refusal: GitRelayError | undefined
}

/** Gives the workspace to the agent's user, as after a real run. */
const handOver = (workspacePath: string, owner: { readonly uid: number; readonly gid: number }) =>
  run(["chown", "-R", "-P", "-h", `${owner.uid}:${owner.gid}`, workspacePath])

const contextOf = (scene: Scene.Scene, { baseCommit, branch, workspacePath }: Clone): Corpus.Context => ({
  ...scene.planted,
  repository: join(workspacePath, "repo"),
  branch,
  base: baseCommit
})

const headOf = (scene: Scene.Scene, branch: string) =>
  Effect.sync(() => RemoteOrigin.refsOf(scene.repository.path).get(`refs/heads/${branch}`))

/** Relays a trial from clone to push. An error of the relay is its refusal. */
const relayed = (trial: Trial): Effect.Effect<Outcome, GitRelayError, Stage | GitRelay> =>
  inScene(trial, (scene) =>
    Effect.gen(function* () {
      const relay = yield* GitRelay
      const runId = yield* RunId.generate
      const canaries = [{ name: "the run's key", secret: scene.planted.runKey }]
      const clone = yield* relay.clone({ runId, url: scene.repository.url, canaries })
      const context = contextOf(scene, clone)
      const { tip, was } = yield* Effect.promise(async () => {
        const owner = statSync(context.repository)
        const tip = (await trial.make(context)) ?? undefined
        await handOver(clone.workspacePath, owner)
        return { tip, was: await Observation.before(scene) }
      })
      const ended = yield* relay
        .collect(clone)
        .pipe(Effect.flatMap(relay.check), Effect.flatMap(relay.push), Effect.result)
      const forbidden = trial.wants === "refused"
      const fired = yield* Effect.promise(() => Observation.observe(scene, context, was, { forbidden, tip }))
      const head = yield* headOf(scene, clone.branch)
      yield* relay.discard(runId)
      return { head, tip, fired, refusal: Result.isFailure(ended) ? ended.failure : undefined }
    })
  )

const judge = ({ wants }: Trial, { fired, head, refusal, tip }: Outcome): void => {
  assert.deepStrictEqual(fired, [])
  if (wants === "delivered") assert.strictEqual(head, tip, `the commits did not arrive: ${refusal?.message}`)
  if (wants === "refused") assert.isDefined(refusal, "nothing was refused")
  if (refusal !== undefined) assert.isUndefined(head, "it was refused, but the branch arrived")
}

/** Defines a test for each workspace, on the relay that `relayOf` makes for an origin. */
export const relayHalf = <E, R>(
  how: string,
  workspaces: ReadonlyArray<Corpus.Workspace>,
  relayOf: (stage: Scene.Stage) => Layer.Layer<GitRelay | R, E>
): void => {
  const relay = Layer.unwrap(Effect.map(Stage, relayOf)).pipe(Layer.provideMerge(Stage.layer))
  describe.concurrent(`the relay ${how}`, () => {
    layer(relay, live)("", (it) => {
      for (const trial of trialsOf(workspaces)) {
        it.effect(`${trial.wants} (${trial.benign ? "benign" : trial.attack}): ${trial.name}`, () =>
          Effect.map(relayed(trial), (outcome) => judge(trial, outcome))
        )
      }
    })
  })
}

const credentialsFor = ({ origin }: Scene.Stage) =>
  GitCredentials.layerTokens([
    { server: origin.url, username: origin.username, token: Redacted.make(origin.token) }
  ])

/** Options of a relay that keeps its files in the memory of the stage. */
const optionsFor = ({ origin }: Scene.Stage, name: string) => ({
  directory: join(origin.directory, "..", name),
  // Each origin is cloned once.
  cache: undefined,
  limits: { collectSecondsMax: collectSeconds, checkSecondsMax: 20, transferSecondsMax: 20 }
})

/** Limits for deliveries that must succeed even on a machine that is a hundred times slower. */
const patientLimits = { collectSecondsMax: 300, checkSecondsMax: 300, transferSecondsMax: 300 }

/** Makes a relay on containers, or on a substitute for them. */
const relayOver =
  (runtime: Layer.Layer<ContainerRuntime>, name: string, collectSecondsMax = collectSeconds) =>
  (stage: Scene.Stage) => {
    const options = optionsFor(stage, name)
    return HostGitRelay.layer({
      ...options,
      image: "none",
      owners: HostOwner,
      limits: { ...options.limits, collectSecondsMax }
    }).pipe(Layer.provide([runtime, credentialsFor(stage), PullRequests.layerNoop]))
  }

/** Reports whether a workspace is refused for its committed content alone. */
const isContent = ({ attack, wants }: Corpus.Workspace) => attack === "content" && wants === "refused"

relayHalf(
  "over Docker",
  Corpus.workspaces.filter((one) => one.benign !== true && !isContent(one)),
  (stage) => RelayHarness.layer(optionsFor(stage, "relays"), credentialsFor(stage))
)

relayHalf(
  "over Docker, with long time limits",
  Corpus.workspaces.filter((one) => one.benign === true),
  (stage) =>
    RelayHarness.layer({ ...optionsFor(stage, "patient"), limits: patientLimits }, credentialsFor(stage))
)

relayHalf("over a process", Corpus.workspaces.filter(isContent), relayOver(LocalRuntime.layer, "local"))

const streamSeconds = 3

/** Pool of clones that wait for a stream. A refusal leaves a clone unchanged, so each is used many times. */
class Clones extends Context.Service<Clones, Queue.Queue<Waiting>>()("test/Clones") {
  static readonly layer = Layer.effect(
    Clones,
    Effect.gen(function* () {
      const clones = yield* Queue.unbounded<Waiting>()
      yield* Effect.forEach([1, 2, 3], () => Effect.flatMap(waiting, (one) => Queue.offer(clones, one)))
      return clones
    })
  )
}

interface Waiting {
  readonly scene: Scene.Scene
  readonly clone: Clone
  readonly made: Streams.StreamContext
}

const waiting = Effect.gen(function* () {
  const relay = yield* GitRelay
  const scene = yield* Scene.acquire(yield* Stage)
  const clone = yield* relay.clone({ runId: yield* RunId.generate, url: scene.repository.url })
  const made = yield* Effect.promise(() => bundleOf(contextOf(scene, clone)))
  yield* Effect.addFinalizer(() => Effect.ignore(relay.discard(clone.request.runId)))
  return { scene, clone, made } satisfies Waiting
})

/** Commits in the clone, and makes the bundle that its agent's git would make. */
const bundleOf = async (context: Corpus.Context): Promise<Streams.StreamContext> => {
  const tip = await work(context)
  const path = join(context.repository, "../good.bundle")
  await git(context, "bundle", "create", "--quiet", path, context.branch, `^${context.base}`)
  return { branch: context.branch, base: context.base, tip, goodBundle: readFileSync(path) }
}

/** Lists the processes of a directory, and waits up to a minute for them to end. */
const leftOf = (directory: string) =>
  Effect.sync(() => Observation.processesOf(directory)).pipe(
    Effect.repeat({ schedule: Schedule.spaced("20 millis"), times: 3000, until: (left) => left.length === 0 })
  )

const pour = (stream: Streams.HostileStream, { clone, made, scene }: Waiting) =>
  Effect.gen(function* () {
    const relay = yield* GitRelay
    const sources = yield* StreamedRuntime.Sources
    sources.set(clone.request.runId, [stream, made])
    const ended = yield* relay
      .collect(clone)
      .pipe(Effect.flatMap(relay.check), Effect.flatMap(relay.push), Effect.result)
    const head = yield* headOf(scene, clone.branch)
    const refs = RemoteOrigin.refsOf(scene.repository.path)
    const left = yield* leftOf(clone.directory)
    const refusal = Result.isFailure(ended) ? ended.failure : undefined
    assert.deepStrictEqual(left, [], "a process is left behind")
    assert.strictEqual(refs.size - (head === undefined ? 0 : 1), 4, "another ref was added or removed")
    if (refusal === undefined) assert.strictEqual(head, made.tip)
    else assert.isUndefined(head, "it was refused, but the branch arrived")
    return refusal
  })

const streamed = (
  stream: Streams.HostileStream
): Effect.Effect<
  GitRelayError | undefined,
  GitRelayError,
  Clones | Stage | GitRelay | StreamedRuntime.Sources
> =>
  stream.wants === "refused" && stream.bringsTip === undefined
    ? Effect.flatMap(Clones, (clones) =>
        Effect.acquireUseRelease(
          Queue.take(clones),
          (one) => pour(stream, one),
          (one) => Queue.offer(clones, one)
        )
      )
    : Effect.scoped(Effect.flatMap(waiting, (one) => pour(stream, one)))

const isQuick = ({ name, wants }: Streams.HostileStream) => wants === "refused" && name.includes("truncated")

describe.concurrent("a stream instead of a bundle", () => {
  const relay = Layer.unwrap(
    Effect.gen(function* () {
      const stage = yield* Stage
      const sources = yield* StreamedRuntime.Sources
      const streams = Layer.provide(StreamedRuntime.layer, Layer.succeed(StreamedRuntime.Sources, sources))
      return relayOver(streams, "streams", streamSeconds)(stage)
    })
  )
  const services = Clones.layer.pipe(
    Layer.provideMerge(relay),
    Layer.provideMerge(StreamedRuntime.Sources.layer),
    Layer.provideMerge(Stage.layer)
  )
  layer(services, live)("", (it) => {
    for (const stream of Streams.streams) {
      it.effect(`${stream.wants}: ${stream.name}`, () =>
        Effect.map(streamed(stream), (refusal) => {
          if (stream.wants === "refused") assert.isDefined(refusal, "nothing was refused")
          if (stream.wants === "delivered") assert.isUndefined(refusal?.message)
        })
      )
    }
    it.effect("objects of a refused stream are not available to the next one", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const one = yield* waiting
          const named = (name: string) => Streams.streams.find((stream) => stream.name === name)!
          assert.isDefined(yield* pour(named("a complete bundle, then a stall"), one))
          assert.isDefined(yield* pour(named("a pack without the tip"), one))
        })
      )
    )
    it.effect("a clone that has refused some streams accepts a good one", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const one = yield* waiting
          for (const stream of Streams.streams.filter(isQuick)) assert.isDefined(yield* pour(stream, one))
          assert.isUndefined(yield* pour(Streams.control, one))
        })
      )
    )
  })
})
