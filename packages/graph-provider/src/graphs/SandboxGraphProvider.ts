/**
 * Provider of the graphs `sandbox:*`: each is an agent, run in a sealed container.
 *
 * Admission comes before any resource is created: sandboxes are off by default, and a run needs a grant that allows
 * them. The paying account and the user come from that grant, never from the request. Usage is reported on every path,
 * from the host's side of the proxy.
 */
import { RunJournal } from "@cogni/sandbox-core/RunJournal"
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { CanaryPolicy, LlmBudget, WorkspaceSource } from "@cogni/sandbox-core/SpecFields"
import { Context, Effect, Layer, Result } from "effect"
import * as AgentRun from "../AgentRun.ts"
import { defaultImage } from "../agents/AgentParts.ts"
import { AgentRegistry } from "../agents/AgentRegistry.ts"
import type { GraphObserver } from "./GraphObserver.ts"
import type { GraphProvider, GraphRunRequest, RunContext } from "./GraphProvider.ts"
import type { GrantStore } from "../grants/GrantStore.ts"
import * as Admission from "../internal/Admission.ts"
import * as GraphRefusal from "../internal/GraphRefusal.ts"
import * as GraphSpec from "../internal/GraphSpec.ts"
import * as GraphWork from "../internal/GraphWork.ts"
import * as RememberedTurn from "../internal/RememberedTurn.ts"
import type { Repositories } from "../Repositories.ts"
import { Threads } from "../threads/Threads.ts"
import { sandboxNamespace } from "./GraphId.ts"

export interface SandboxGraphOptions {
  /** Nothing runs unless this is true. */
  readonly enabled: boolean
  /** Patterns of the models that a grant without `models` allows. If empty, such a grant allows no model. */
  readonly models: ReadonlyArray<string>
  /** Maximum model budget of any run, whatever its grant and its request allow. Default: only their limits. */
  readonly budget?: LlmBudget | undefined
  /** Returns the tag of an agent's image. Default: `cogni-sandbox/<image>:latest`. */
  readonly imageOf?: ((image: string) => string) | undefined
  /** Policy for the canaries of every run. Default: `off`. */
  readonly canaries?: CanaryPolicy | undefined
  /** Returns the agent's workspace, unless its request names a repository. Default: a temporary directory. */
  readonly workspaceOf?: ((request: GraphRunRequest, context: RunContext) => WorkspaceSource) | undefined
  /** Maximum time limit of any request. Default: 3600. */
  readonly runtimeSecondsMax?: number | undefined
}

export class SandboxGraphProvider extends Context.Service<SandboxGraphProvider, GraphProvider>()(
  "@cogni/sandbox-graph-provider/SandboxGraphProvider"
) {}

const defaultRuntimeSecondsMax = 3600

/** Returns the host's options with their defaults. */
export const settled = (options: SandboxGraphOptions): GraphSpec.SettledOptions => ({
  enabled: options.enabled,
  canaries: options.canaries ?? "off",
  imageOf: options.imageOf ?? defaultImage,
  offer: { models: options.models, budget: options.budget },
  runtimeSecondsMax: options.runtimeSecondsMax ?? defaultRuntimeSecondsMax,
  workspaceOf: options.workspaceOf ?? (() => ({ type: "temporary" }))
})

/** The share for subagents that an agent must be able to keep to. */
const shareOf = (budget: LlmBudget | undefined): Pick<LlmBudget, "subagentShareMax"> =>
  budget?.subagentShareMax === undefined ? {} : { subagentShareMax: budget.subagentShareMax }

const make = Effect.fnUntraced(function* (options: SandboxGraphOptions) {
  const agents = yield* AgentRegistry
  const runner = yield* SandboxRunner
  const journal = yield* RunJournal
  const threads = yield* Threads
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
      const turn = yield* RememberedTurn.open(threads, agent, request, context)
      return (granted) =>
        Result.mapBoth(
          AgentRun.check(agent, { ...GraphSpec.requestOf(request), ...shareOf(granted.budget) }),
          {
            onFailure: GraphRefusal.as("invalid_request"),
            onSuccess: () => ({
              agent,
              turn,
              spec: GraphSpec.make(agent, granted, request, context, host, turn)
            })
          }
        )
    })
  )
  const provider = yield* GraphWork.provider(
    (graphId) => graphId.startsWith(`${sandboxNamespace}:`),
    admit,
    ({ agent, spec, turn }, { claimed, inClone, tell }) =>
      RememberedTurn.around(
        turn,
        AgentRun.live(
          spec,
          agent.reader,
          (event, said) => {
            if (event._tag !== "PhaseEnded") return tell(said)
            claimed()
            return tell([{ type: "status", phase: event.phase }])
          },
          inClone
        ).pipe(Effect.provideService(SandboxRunner, runner), Effect.provideService(RunJournal, journal))
      )
  )
  return SandboxGraphProvider.of(provider)
})

export const layer = (
  options: SandboxGraphOptions
): Layer.Layer<
  SandboxGraphProvider,
  never,
  AgentRegistry | GrantStore | GraphObserver | Repositories | RunStore | SandboxRunner
> => Layer.effect(SandboxGraphProvider, make(options))
