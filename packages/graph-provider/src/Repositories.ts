/**
 * Port through which a run gets a repository: cloned before the run, delivered after it.
 *
 * This package does not depend on git. An application implements this port with its relay. Credentials belong to the
 * relay and never appear in a request.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer } from "effect"
import type { RepositoryDelivery, InClone, RepositoryRequest } from "./RepositoryUse.ts"
import { RepositoryUnavailable } from "./RepositoryUse.ts"

/** A request of one run. */
interface CloneRequest extends RepositoryRequest {
  readonly runId: RunId
  /** Receives what became of the agent's work if `use` fails. */
  readonly salvaged?: ((delivery: RepositoryDelivery) => Effect.Effect<void>) | undefined
}

export class Repositories extends Context.Service<
  Repositories,
  {
    /** Checks that the relay accepts the request, without creating anything or contacting a server. */
    readonly check: (request: RepositoryRequest) => Effect.Effect<void, RepositoryUnavailable>
    readonly inClone: (request: CloneRequest) => InClone<RepositoryDelivery, RepositoryUnavailable, never>
  }
>()("@cogni/sandbox-graph-provider/Repositories") {}

/** For executors without a relay: rejects every request that names a repository. */
export const layerNoop: Layer.Layer<Repositories> = Layer.sync(Repositories, () => {
  const refuse = Effect.fail(
    new RepositoryUnavailable({
      reason: "RelayAbsent",
      detail: "this executor has no git relay, so it cannot work in a repository. Omit the repository"
    })
  )
  return Repositories.of({ check: () => refuse, inClone: () => () => refuse })
})
