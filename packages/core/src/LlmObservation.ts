/**
 * Abilities of a proxy, and events that it reports during a run.
 */
import type { Approval } from "./Approval.ts"
import { type Registry } from "./PackagePattern.ts"
import type { Evidence, Exhaustion } from "./RunFigures.ts"

/** Capabilities of a proxy. Callers check them and never assume more. */
export interface LlmProxyCapabilities {
  readonly name: string
  /** Reads and rebuilds request bodies, so that it can enforce models and budgets and detect canaries. */
  readonly inspectsBodies: boolean
  /** Its sockets are on this host, so that a host-side loop can use one as an agent does. */
  readonly servesHost: boolean
  /** Names of the host tools that it can serve. */
  readonly tools: ReadonlyArray<string>
  /** Registries whose packages it can serve (default none). */
  readonly packages?: ReadonlyArray<Registry> | undefined
  /** Name of the upstream's profile, such as `litellm`. Absent if the proxy does not know it. */
  readonly upstream?: string | undefined
  /** False if it serves no model, only packages (default true). */
  readonly servesModel?: boolean | undefined
  /** True if it can listen in a directory that is already mounted: {@link LlmRequest}`.socketMount` (default false). */
  readonly listensInMount?: boolean | undefined
}

/** Reported by a proxy during a run. */
export type LlmObservation =
  | { readonly _tag: "ExfiltrationSuspected"; readonly evidence: Evidence }
  /** Reported once, for the first budget that waiting does not restore. */
  | { readonly _tag: "BudgetExhausted"; readonly exhaustion: Exhaustion }
  /** Reported once, for the first budget of the subagents' share that waiting does not restore. The run goes on. */
  | { readonly _tag: "SubagentShareSpent"; readonly exhaustion: Exhaustion }
  /** A call of a host tool waits for an approval. */
  | { readonly _tag: "ApprovalRequested"; readonly approval: Approval }
  /** An approval has ended: by a decision, without one in time, or with its run. */
  | { readonly _tag: "ApprovalDecided"; readonly approval: Approval }
