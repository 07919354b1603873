/** Starts a run up to the agent's first instruction: record, workspace, proxy, and a container of verified posture. */
import { Effect, Scope } from "effect"
import type { Container, ContainerError, ContainerRuntime, ContainerSpec } from "../ContainerRuntime.ts"
import type { LlmProxy } from "../LlmProxy.ts"
import { mismatches, type Posture } from "../Posture.ts"
import type { RunStore } from "../RunStore.ts"
import { HostFailed, PostureMismatch, StoreUnavailable } from "../SandboxReason.ts"
import type { Cold, SandboxPools, Warm } from "../SandboxPool.ts"
import type { SandboxSpec } from "../SandboxSpec.ts"
import { socketTarget } from "./SocketPlace.ts"
import type { Asked } from "../SandboxShape.ts"
import type { ExaminedDirectory, PreparedDirectories } from "../WaitingSandbox.ts"
import type * as Workspace from "../Workspace.ts"
import * as SpecialFiles from "../SpecialFiles.ts"
import * as Release from "./Release.ts"
import * as RunLife from "./RunLife.ts"
import * as TraceContext from "./TraceContext.ts"
import * as WayOut from "./WayOut.ts"

/** The ports that a run uses. */
export interface Ports {
  readonly pool: SandboxPools
  readonly proxy: LlmProxy["Service"]
  readonly runtime: ContainerRuntime["Service"]
  readonly store: RunStore["Service"]
  readonly workspaces: Workspace.Workspace["Service"]
}

/** Starts a sandbox, up to its agent's first instruction or its first command. */
export const make = Effect.fnUntraced(function* (
  ports: Ports,
  life: RunLife.RunLife,
  spec: SandboxSpec,
  { supervised }: { readonly supervised: boolean }
) {
  yield* life.begun
  const traceparent = yield* TraceContext.traceparent
  yield* WayOut.promised(spec, ports.proxy.capabilities)
  const { directory } = yield* claim(ports, life, spec)
  // A run that is refused spends no waiting sandbox, and the pool learns no limits from it.
  yield* ports.runtime.checkLimits?.({ role: "agent", limits: spec.limits }) ?? Effect.void
  yield* admitted(ports, life, spec)
  const examined = yield* examinedFor(ports, spec)
  const pooled = yield* pooledFor(ports, life, { spec, supervised, directory: examined })
  const prepared = pooled._tag === "Warm" ? pooled.prepared : undefined
  const [workspace, endpoint] = yield* Effect.all(
    [
      acquireWorkspace(ports, life, spec, { directory, prepared, examined }),
      acquireWayOut(ports, life, spec, { directory, prepared, traceparent })
    ],
    { concurrency: "unbounded" }
  )
  const inside = WayOut.isInside(spec) ? endpoint : undefined
  const asked: ContainerSpec = {
    runId: life.runId,
    role: "agent",
    image: spec.image,
    argv: spec.argv,
    env: inside === undefined ? spec.env : WayOut.environment(spec, life.runId, inside.token),
    user: workspace.user,
    mounts: prepared === undefined ? [...workspace.mounts, ...(inside?.mounts ?? [])] : workspace.mounts,
    network: spec.network,
    limits: spec.limits,
    supervised,
    ...(supervised || spec.preload === undefined ? {} : { preload: spec.preload })
  }
  const created = yield* create(ports, life, pooled, asked).pipe(life.phase("create"))
  const [{ container, posture }] = yield* Effect.all(
    [
      created.start.pipe(life.phase("start")),
      endpoint === undefined ? Effect.void : endpoint.ready.pipe(life.phase("proxy")),
      warned(workspace)
    ],
    { concurrency: "unbounded" }
  )
  yield* life.verified(posture)
  yield* container.proceed.pipe(life.phase("entrypoint"))
  return { container, endpoint, workspace, posture }
})

/** Logs a warning if a workspace contains special files. */
const warned = ({ specialFiles }: Pick<Workspace.AcquiredWorkspace, "specialFiles">) =>
  Effect.flatMap(specialFiles, (found) => {
    const warning = SpecialFiles.specialFilesWarning(found)
    return warning === undefined ? Effect.void : Effect.logWarning(warning)
  })

/** Examines the directory of a run, if it may be bound into a waiting sandbox. */
const examinedFor = Effect.fnUntraced(function* ({ pool, workspaces }: Ports, { workspace }: SandboxSpec) {
  const { examine } = workspaces
  if (workspace.type !== "directory" || examine === undefined) return undefined
  if ((yield* pool.whyUnbound) !== undefined) return undefined
  return yield* Release.owned("directory", examine(workspace.path)).pipe(
    RunLife.within(
      (seconds) =>
        new HostFailed({
          path: workspace.path,
          problem: "too_slow",
          detail: `could not be examined within ${seconds} s`,
          remedy: "Check the disk that it is on, then try again"
        })
    )
  )
})

/** Takes a waiting sandbox, if there is one for this run. */
const pooledFor = ({ pool, proxy }: Ports, life: RunLife.RunLife, asked: Omit<Asked, "proxy">) =>
  Release.owned("waiting sandbox", pool.claim({ ...asked, proxy: proxy.capabilities })).pipe(
    Effect.tap((pooled) => {
      const use = pooled._tag === "Warm" ? "hit" : pooled.use
      return use === undefined ? Effect.void : life.pooled(use)
    })
  )

/** A created container, whose `start` returns a container of verified posture. */
const startable = (container: Container, asked: ContainerSpec) => ({
  start: Effect.map(
    Effect.flatMap(container.start, (reported) => verifiedPosture(reported, asked)),
    (posture) => ({ container, posture })
  )
})

/**
 * Creates the container, or binds the waiting sandbox to the run. Until its agent may start, nothing of the run has
 * happened in that sandbox: if it fails, it is removed, and the run starts cold.
 */
const create = Effect.fnUntraced(function* (
  { runtime }: Ports,
  life: RunLife.RunLife,
  pooled: Cold | Warm,
  asked: ContainerSpec
) {
  const coldly = Effect.map(Release.owned("container", runtime.acquire(asked)), (container) =>
    startable(container, asked)
  )
  if (pooled._tag === "Cold") return yield* coldly
  const scope = yield* Effect.scope
  const otherwise = (error: ContainerError | PostureMismatch) =>
    Effect.andThen(
      Effect.andThen(life.pooled("unusable"), pooled.discard(error)),
      Scope.provide(coldly, scope)
    )
  return yield* Release.owned("container", pooled.bind(asked)).pipe(
    Effect.map((container) => ({
      start: startable(container, asked).start.pipe(
        Effect.catch((error) => Effect.flatMap(otherwise(error), ({ start }) => start))
      )
    })),
    Effect.catch(otherwise)
  )
})

/** Claims the run ID permanently. */
const claim = ({ store }: Ports, life: RunLife.RunLife, spec: SandboxSpec) =>
  Release.owned(
    "run record",
    store.open(life.runId, spec).pipe(
      // Noted at once, so that an interruption directly afterwards still writes the final record.
      Effect.tap(life.opened),
      RunLife.within(
        (seconds) =>
          new HostFailed({
            path: life.runId,
            problem: "too_slow",
            detail: `got no run record within ${seconds} s`,
            remedy: "Check the disk that stores the runs, then try again"
          })
      )
    )
  )

/**
 * Asks whether the account may pay for the run, before anything of it is made. Acquired first, so it is returned last:
 * what the run has used is known by then.
 */
const admitted = ({ proxy }: Ports, { runId }: RunLife.RunLife, { limits, llm }: SandboxSpec) =>
  proxy.admissions === undefined || llm === undefined
    ? Effect.void
    : Release.owned(
        "account",
        proxy.admissions.admit({ runId, llm, runtimeSecondsMax: limits.runtimeSecondsMax })
      ).pipe(
        RunLife.within(
          (seconds) =>
            new StoreUnavailable({
              detail: `did not say within ${seconds} s whether the account may start a run`,
              remedy: "Check the database and what decides about accounts, then try again"
            })
        )
      )

/** Where the host keeps what a run needs. */
interface Places {
  /** The run's directory. */
  readonly directory: string | undefined
  /** Directories of the waiting sandbox that the run has. */
  readonly prepared: PreparedDirectories | undefined
  /** The directory that is the workspace of the run, if it was examined. */
  readonly examined?: ExaminedDirectory | undefined
}

const acquireWorkspace = (
  { workspaces }: Ports,
  { egress, phase, runId }: RunLife.RunLife,
  spec: SandboxSpec,
  { directory, examined, prepared }: Places
) =>
  Release.owned(
    "workspace",
    workspaces.acquire({
      runId,
      source: spec.workspace,
      inputs: [...spec.inputs, ...egress.planted.inputs],
      planted: [...egress.planted.directories, ...WayOut.directories(spec)],
      memory: spec.memory,
      workspaceBytesMax: spec.limits.workspaceBytesMax,
      directory,
      examined,
      prepared
    })
  ).pipe(phase("workspace"))

const acquireWayOut = (
  { proxy }: Ports,
  { egress, phase, runId }: RunLife.RunLife,
  spec: SandboxSpec,
  { directory, prepared, traceparent }: Places & { readonly traceparent: string | undefined }
) => {
  const { canaries, limits, llm, packages, toolRules, tools } = spec
  return !WayOut.isOpen(spec)
    ? Effect.succeed(undefined)
    : Release.owned(
        "proxy",
        proxy.acquire({
          runId,
          ...(llm === undefined ? {} : { llm }),
          runtimeSecondsMax: limits.runtimeSecondsMax,
          directory,
          socketMount: prepared?.mounts.find(({ target }) => target === socketTarget),
          tools,
          ...(toolRules === undefined ? {} : { toolRules }),
          ...(packages.length === 0 ? {} : { packages }),
          canaries: { policy: canaries, planted: egress.planted.canaries },
          observe: egress.observe,
          traceparent
        })
      ).pipe(phase("socket"))
}

/** Returns the reported posture, or fails with its mismatches. */
const verifiedPosture = (
  reported: Posture | undefined,
  asked: Parameters<typeof mismatches>[1]
): Effect.Effect<Posture, PostureMismatch> => {
  if (reported === undefined)
    return Effect.fail(PostureMismatch.of(["the sandbox did not report its posture"]))
  const found = mismatches(reported, asked)
  return found.length === 0 ? Effect.succeed(reported) : Effect.fail(PostureMismatch.of(found))
}
