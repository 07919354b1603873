/**
 * The graphs of `sandbox:*`: each is an agent, run in a sealed container.
 *
 * What may not start is refused before anything is made: sandboxes are off unless switched on, and a run needs a grant
 * that opens them. Who pays and in whose name comes from that grant, never from the request. However a run goes, its
 * usage is reported from what the host's side of the proxy saw.
 */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { CanaryPolicy, LlmBudget, WorkspaceSource } from "@cogni/sandbox-core/SandboxSpec"
import { Context, Effect, Layer } from "effect"
import * as AgentRun from "../AgentRun.ts"
import { defaultImage } from "../agents/Agent.ts"
import { AgentRegistry } from "../agents/AgentRegistry.ts"
import type { GraphProvider, GraphRunRequest, RunContext } from "./GraphProvider.ts"
import type { GrantStore } from "../grants/GrantStore.ts"
import * as Admission from "../internal/Admission.ts"
import * as GraphEnd from "../internal/GraphEnd.ts"
import * as GraphRefusal from "../internal/GraphRefusal.ts"
import * as GraphSpec from "../internal/GraphSpec.ts"
import * as GraphWork from "../internal/GraphWork.ts"
import type { Repositories } from "../Repositories.ts"
import { sandboxNamespace } from "./GraphId.ts"

export interface SandboxGraphOptions {
  /** Nothing runs unless this is true. */
  readonly enabled: boolean
  /** Patterns of the models that a grant opens when it names none itself. None of them: such a grant opens no model. */
  readonly models: ReadonlyArray<string>
  /** The most that any run may have of its model, whatever its grant and its request say. Absent: as those say. */
  readonly budget?: LlmBudget | undefined
  /** The tag of an agent's image. Absent: `cogni-sandbox/<image>:latest`. */
  readonly imageOf?: ((image: string) => string) | undefined
  /** Whether canaries are planted in every run. Absent: off. */
  readonly canaries?: CanaryPolicy | undefined
  /** Where an agent works, unless its request names a repository. Absent: a directory that ends with the run. */
  readonly workspaceOf?: ((request: GraphRunRequest, context: RunContext) => WorkspaceSource) | undefined
  /** What no request can exceed. Absent: an hour. */
  readonly runtimeSecondsMax?: number | undefined
}

export class SandboxGraphProvider extends Context.Service<SandboxGraphProvider, GraphProvider>()(
  "@cogni/sandbox-graph-provider/SandboxGraphProvider"
) {}

const defaultRuntimeSecondsMax = 3600

/** The host's options, each with a value. */
export const settled = (options: SandboxGraphOptions): GraphSpec.SettledOptions => ({
  enabled: options.enabled,
  canaries: options.canaries ?? "off",
  imageOf: options.imageOf ?? defaultImage,
  offer: { models: options.models, budget: options.budget },
  runtimeSecondsMax: options.runtimeSecondsMax ?? defaultRuntimeSecondsMax,
  workspaceOf: options.workspaceOf ?? (() => ({ type: "temporary" }))
})

export const make = Effect.fnUntraced(function* (options: SandboxGraphOptions) {
  const agents = yield* AgentRegistry
  const runner = yield* SandboxRunner
  const host = settled(options)
  const admit = yield* Admission.make(host, (request, context) =>
    Effect.gen(function* () {
      const agent = yield* Effect.mapError(
        agents.get(Admission.agentIdOf(request)),
        GraphRefusal.as("not_found")
      )
      yield* Effect.mapError(
        Effect.fromResult(AgentRun.check(agent, GraphSpec.requestOf(request))),
        GraphRefusal.as("invalid_request")
      )
      return (granted) => ({ agent, spec: GraphSpec.make(agent, granted, request, context, host) })
    })
  )
  const provider = yield* GraphWork.provider(
    (graphId) => graphId.startsWith(`${sandboxNamespace}:`),
    admit,
    ({ agent, spec }, { claimed, inClone, tell }) =>
      AgentRun.live(
        spec,
        agent.reader,
        (event, said) => {
          if (event._tag !== "PhaseEnded") return tell(said)
          claimed()
          return tell([{ type: "status", phase: event.phase }])
        },
        inClone
      ).pipe(Effect.map(GraphEnd.ended), Effect.provideService(SandboxRunner, runner))
  )
  return SandboxGraphProvider.of(provider)
})

export const layer = (
  options: SandboxGraphOptions
): Layer.Layer<
  SandboxGraphProvider,
  never,
  AgentRegistry | GrantStore | Repositories | RunStore | SandboxRunner
> => Layer.effect(SandboxGraphProvider, make(options))
