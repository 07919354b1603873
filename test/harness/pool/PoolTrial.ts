/**
 * Runs through a pool, four at once, while waiting sandboxes are killed, the image of all of them is replaced, and
 * other runs start cold or are refused. Counts the runs that were right, and finds what is left of them.
 *
 * A run is right if it printed its own number, found an empty workspace, ended with its own exit code, and was served
 * by an image that had the name at some moment of the run. A refused run is right if its error is the expected one. A
 * run whose sandbox was killed as it got it may fail.
 */
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import type { PoolReport } from "@cogni/sandbox-core/PoolReport"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostSandboxPool from "@cogni/sandbox-docker/HostSandboxPool"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import { Effect, Layer, Schedule, Semaphore } from "effect"
import { chmodSync, mkdirSync } from "node:fs"
import { join } from "node:path"
import { docker } from "../Docker.ts"
import * as Engine from "../Engine.ts"
import * as Images from "../Images.ts"
import * as LeakCheck from "../LeakCheck.ts"
import { waitingIn } from "../RunHarness.ts"
import * as PoolPlan from "./PoolPlan.ts"

/** Runs at the same time. */
const atOnce = 4

/** Sandboxes that the pool keeps. */
const kept = 4

/** How long a patient run waits for a sandbox. */
const patienceSecondsMax = 5

/** Images that take turns under one name. */
const imagesCount = 3

interface Options {
  readonly seed: string
  readonly runs: number
  /** Empty directory for records, workspaces and waiting sandboxes. */
  readonly directory: string
  /** Image that the replaced images are made from. */
  readonly base: string
  readonly secondsMax: number
}

interface Outcome {
  readonly runs: number
  readonly right: number
  /** A sentence for each run that was not right. */
  readonly wrong: ReadonlyArray<string>
  /** Runs of which a killed sandbox was already theirs, and that failed. */
  readonly lost: number
  readonly killed: number
  readonly imageChanges: number
  readonly refused: number
  readonly pool: Pick<PoolReport, "hits" | "misses" | "cold" | "discarded" | "started">
  /** Sandboxes that two runs had. */
  readonly shared: number
  /** Containers and directories that exist afterwards. */
  readonly left: ReadonlyArray<string>
}

/** An image name that means one image after the other. */
const changingImage = Effect.fnUntraced(function* (base: string) {
  const name = `cogni-sandbox/pool-trial:${crypto.randomUUID().slice(0, 8)}`
  const numbered = (number: number) => `${name}-${number}`
  const build = (number: number) =>
    Effect.acquireUseRelease(
      docker("create", base),
      (id) => docker("commit", "--change", `ENV IMAGE_NUMBER=${number}`, id, numbered(number)),
      (id) => docker("rm", id)
    )
  for (let number = 0; number < imagesCount; number++)
    yield* Effect.acquireRelease(build(number), () => docker("rmi", numbered(number)))
  yield* Effect.acquireRelease(docker("tag", numbered(0), name), () => docker("rmi", name))
  const turn = yield* Semaphore.make(1)
  let [begun, done] = [0, 0]
  return {
    name,
    changes: () => done,
    /** Gives the name to the next image. */
    change: turn.withPermits(1)(
      Effect.gen(function* () {
        begun += 1
        yield* docker("tag", numbered(begun % imagesCount), name)
        done = begun
      })
    ),
    /** Notes a moment. The function that it returns lists the images that had the name since then. */
    since: () => {
      const from = done
      return () => Array.from({ length: begun - from + 1 }, (_, index) => (from + index) % imagesCount)
    }
  }
})

/** Notes which sandboxes wait, and which run got which. The engine learns the name of a run after its start. */
const makeWatched = () => {
  const waiting = new Set<string>()
  const boundBy = new Map<string, string>()
  const runtime = Layer.effect(
    ContainerRuntime,
    Effect.map(ContainerRuntime, (inner) => {
      const { prepare } = inner
      return ContainerRuntime.of({
        ...inner,
        prepare:
          prepare &&
          ((spec) =>
            Effect.map(prepare(spec), (prepared) => {
              waiting.add(prepared.id)
              return {
                ...prepared,
                bind: (run) => {
                  waiting.delete(prepared.id)
                  boundBy.set(run.runId, prepared.id)
                  return prepared.bind(run)
                }
              }
            }))
      })
    })
  )
  return { waiting, boundBy, runtime }
}

type Watched = ReturnType<typeof makeWatched>

const layerOf = (directory: string, image: string, { runtime }: Watched) =>
  SandboxRunner.layer.pipe(
    Layer.provideMerge(HostSandboxPool.layer({ keep: [{ image, count: kept }] })),
    Layer.provideMerge(
      Layer.mergeAll(
        LlmProxy.layerNoop,
        HostWorkspace.layer({ waiting: waitingIn(directory) }),
        FileRunStore.layer({ directory, trafficOf: "unknown" }),
        Layer.provide(runtime, DockerContainerRuntime.layerApi(Engine.runtime))
      )
    )
  )

/** Reason of the error that each kind of refused run must have. */
const refusals: Partial<Record<PoolPlan.Kind, string>> = {
  "bad-limit": "InvalidSpec",
  "no-image": "ImageNotFound",
  "no-network": "ContainerFailed"
}

const specOf = (
  { exitCode, index, kind }: PoolPlan.PlannedRun,
  { directory, image }: { readonly directory: string; readonly image: string }
): SandboxSpecInput => {
  const steps = ["echo $IMAGE_NUMBER", "uname -n", "ls -A /workspace | wc -l", `echo ${index} | tee f`]
  const spec: SandboxSpecInput = { image, argv: ["sh", "-c", [...steps, `exit ${exitCode}`].join("; ")] }
  switch (kind) {
    case "waiting":
      return spec
    case "directory":
      return { ...spec, workspace: { type: "directory", path: directory } }
    case "long":
      return { ...spec, env: { LONG: "x".repeat(70_000) } }
    case "bad-limit":
      return { ...spec, limits: { memoryBytesMax: -1 } }
    case "no-image":
      return { ...spec, image: Images.absent }
    case "no-network":
      return { ...spec, network: { mode: "internal", networkName: `cogni-absent-${index}` } }
  }
}

/** Returns why a result is wrong; `undefined` if it is right. Pure. */
export const whyWrong = (
  { exitCode, index }: Pick<PoolPlan.PlannedRun, "exitCode" | "index">,
  result: { readonly exitCode: number; readonly text: string },
  images: ReadonlyArray<number>
): string | undefined => {
  const [image, , files, own] = result.text.split("\n")
  if (own !== String(index)) return `it printed ${own}, not its number`
  if (result.exitCode !== exitCode) return `it ended with ${result.exitCode}, not ${exitCode}`
  if (files !== "1") return `it found ${files} files in its workspace, not only its inputs`
  return images.map(String).includes(image ?? "")
    ? undefined
    : `it ran in image ${image}, while the name meant ${images.join(", ")}`
}

/** Runs all of the plan through one pool. */
const play = Effect.fnUntraced(function* (
  plan: ReadonlyArray<PoolPlan.PlannedRun>,
  directory: string,
  image: Effect.Success<ReturnType<typeof changingImage>>,
  { boundBy, waiting }: Watched
) {
  const runner = yield* SandboxRunner.SandboxRunner
  const pool = yield* SandboxPool.SandboxPool
  const api = yield* DockerApi.DockerApi
  const wrong: Array<string> = []
  const killed = new Set<string>()
  const hosts: Array<string> = []
  let [lost, refused] = [0, 0]

  const oneWaits = pool.report.pipe(
    Effect.repeat({ schedule: Schedule.spaced("10 millis"), while: ({ waiting }) => waiting.length === 0 }),
    Effect.timeoutOption(`${patienceSecondsMax} seconds`)
  )

  const trouble = Effect.fnUntraced(function* ({ kills, replacesImage }: PoolPlan.PlannedRun) {
    if (replacesImage) yield* image.change
    const victim = kills === undefined ? undefined : [...waiting][Math.floor(kills * waiting.size)]
    if (victim === undefined) return
    killed.add(victim)
    waiting.delete(victim)
    yield* Effect.ignore(api.kill(victim, "SIGKILL"))
  })

  const failed = ({ index, kind }: PoolPlan.PlannedRun, runId: RunId.RunId, error: SandboxError) => {
    const { message, reason } = error
    if (refusals[kind] === reason._tag) refused += 1
    else if (refusals[kind] === undefined && killed.has(boundBy.get(runId) ?? "")) lost += 1
    else wrong.push(`run ${index} (${kind}) failed: ${message}`)
  }

  const one = Effect.fnUntraced(function* (planned: PoolPlan.PlannedRun) {
    const { index, kind } = planned
    if (planned.isPatient) yield* oneWaits
    yield* trouble(planned)
    const runId = yield* RunId.generate
    const own = join(directory, "given", String(index))
    if (kind === "directory") {
      mkdirSync(own, { recursive: true })
      // The agent's user is not that of this process.
      chmodSync(own, 0o777)
    }
    const imagesSince = image.since()
    yield* runner.run({ runId, ...specOf(planned, { directory: own, image: image.name }) }).pipe(
      Effect.match({
        onFailure: (error) => failed(planned, runId, error),
        onSuccess: ({ exitCode, output }: RunResult) => {
          const { text } = output.stdout
          hosts.push(text.split("\n")[1] ?? "")
          const why =
            refusals[kind] === undefined
              ? whyWrong(planned, { exitCode, text }, imagesSince())
              : "it was not refused"
          if (why !== undefined) wrong.push(`run ${index} (${kind}): ${why}`)
        }
      })
    )
  })

  yield* Effect.forEach(plan, one, { concurrency: atOnce, discard: true })
  const { cold, discarded, hits, misses, started } = yield* pool.report
  return {
    runs: plan.length,
    right: plan.length - wrong.length,
    wrong,
    lost,
    refused,
    killed: killed.size,
    imageChanges: image.changes(),
    shared: boundBy.size - new Set(boundBy.values()).size + hosts.length - new Set(hosts).size,
    pool: { cold, discarded, hits, misses, started }
  }
})

/** Runs a plan, ends the pool, and looks for what is left. */
export const run = Effect.fnUntraced(
  function* (options: Options): Effect.fn.Return<Outcome, unknown, DockerApi.DockerApi> {
    const { base, directory } = options
    const before = new Set(yield* LeakCheck.leftovers)
    const watched = makeWatched()
    const plan = yield* PoolPlan.make(options)
    const played = yield* Effect.gen(function* () {
      const image = yield* changingImage(base)
      return yield* play(plan, directory, image, watched).pipe(
        Effect.provide(layerOf(directory, image.name, watched))
      )
    }).pipe(Effect.scoped)
    const left = [
      ...(yield* LeakCheck.leftovers).filter((name) => !before.has(name)),
      ...LeakCheck.directories(directory),
      ...LeakCheck.waiting(directory)
    ]
    return { ...played, left }
  },
  (effect, { secondsMax }) =>
    Effect.timeoutOrElse(effect, {
      duration: `${secondsMax} seconds`,
      orElse: () => Effect.die(new Error(`the runs did not end within ${secondsMax} s`))
    })
)
