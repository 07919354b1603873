/** Starts a run up to the agent's first instruction: record, workspace, proxy, and a container of verified posture. */
import { Effect } from "effect"
import type { ContainerRuntime } from "../ContainerRuntime.ts"
import type { LlmProxy } from "../LlmProxy.ts"
import { mismatches, type Posture } from "../Posture.ts"
import type { RunStore } from "../RunStore.ts"
import { HostFailed, PostureMismatch, StoreUnavailable } from "../SandboxError.ts"
import type { SandboxSpec } from "../SandboxSpec.ts"
import * as Workspace from "../Workspace.ts"
import * as Release from "./Release.ts"
import * as RunLife from "./RunLife.ts"
import * as TraceContext from "./TraceContext.ts"
import * as WayOut from "./WayOut.ts"

/** The ports that a run uses. */
export interface Ports {
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
  yield* admitted(ports, life, spec)
  const [workspace, endpoint] = yield* Effect.all(
    [
      acquireWorkspace(ports, life, spec, directory),
      acquireWayOut(ports, life, spec, { directory, traceparent })
    ],
    { concurrency: "unbounded" }
  )
  const inside = WayOut.isInside(spec) ? endpoint : undefined
  const mounts = [...workspace.mounts, ...(inside?.mounts ?? [])]
  const container = yield* Release.owned(
    "container",
    ports.runtime.acquire({
      runId: life.runId,
      role: "agent",
      image: spec.image,
      argv: spec.argv,
      env: { ...spec.env, ...(inside === undefined ? {} : WayOut.environment(spec)) },
      user: workspace.user,
      mounts,
      network: spec.network,
      limits: spec.limits,
      supervised
    })
  ).pipe(life.phase("create"))
  const [reported] = yield* Effect.all(
    [
      container.start.pipe(life.phase("start")),
      endpoint === undefined ? Effect.void : endpoint.ready.pipe(life.phase("proxy")),
      Workspace.warn(workspace)
    ],
    { concurrency: "unbounded" }
  )
  const posture = yield* verifiedPosture(reported, { user: workspace.user, network: spec.network, mounts })
  yield* life.verified(posture)
  yield* container.proceed.pipe(life.phase("entrypoint"))
  return { container, endpoint, workspace, posture }
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

const acquireWorkspace = (
  { workspaces }: Ports,
  { egress, phase, runId }: RunLife.RunLife,
  spec: SandboxSpec,
  directory: string | undefined
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
      directory
    })
  ).pipe(phase("workspace"))

const acquireWayOut = (
  { proxy }: Ports,
  { egress, phase, runId }: RunLife.RunLife,
  spec: SandboxSpec,
  {
    directory,
    traceparent
  }: { readonly directory: string | undefined; readonly traceparent: string | undefined }
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
    return Effect.fail(new PostureMismatch({ mismatches: ["the sandbox did not report its posture"] }))
  const found = mismatches(reported, asked)
  return found.length === 0
    ? Effect.succeed(reported)
    : Effect.fail(new PostureMismatch({ mismatches: found }))
}
