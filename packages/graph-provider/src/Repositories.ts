/**
 * The port through which a run has a repository: cloned before it, delivered after it.
 *
 * This package knows nothing of git. Whoever composes it with a relay says here how a clone is lived in; credentials
 * are the relay's, and are never in a request.
 */
import type { Canary } from "@cogni/sandbox-core/Canary"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { AuditHead } from "@cogni/sandbox-core/RunResult"
import { Context, Effect, Layer, Schema } from "effect"

const Name = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(250))

/** A repository that a run is to work in. */
export const RepositoryRequest = Schema.Struct({
  /** Without a credential: those belong to the relay. */
  url: Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(2000)),
  /** Absent: the one that the origin's HEAD names. */
  baseBranch: Schema.optionalKey(Name),
  /** Below `sandbox/`. Absent: `sandbox/<run id>`. */
  branch: Schema.optionalKey(Name),
  /** A pull request only when it is asked for. */
  pullRequest: Schema.optionalKey(Schema.Boolean)
})

export type RepositoryRequest = typeof RepositoryRequest.Type

/** A clone, as the run that works in it sees it. */
export interface RepositoryPlace {
  /** A directory of the host, for the run's workspace. */
  readonly workspacePath: string
  /** The same command, run in the repository. */
  readonly within: (argv: readonly [string, ...ReadonlyArray<string>]) => readonly [string, ...Array<string>]
}

/** Where the repository is, inside the sandbox. */
export const repositoryPath = "/workspace/repo"

/** What a run came to, and whether what it committed is to be sent on. */
export interface RepositoryUse {
  readonly succeeded: boolean
  readonly auditHead?: AuditHead | undefined
}

/** What became of the commits. */
export interface RepositoryDelivery {
  readonly status: "skipped" | "pushed" | "unchanged" | "kept" | "failed"
  readonly branch: string
  readonly pullRequestUrl?: string | undefined
  /** Where it was not delivered: what happened and what to do. */
  readonly problem?: { readonly reason: string; readonly message: string } | undefined
  /** For the record of the run, under `relay`. */
  readonly record: Schema.Json
}

/** The repository could not be had; no agent was started. */
export class RepositoryUnavailable extends Schema.TaggedError<RepositoryUnavailable>()(
  "RepositoryUnavailable",
  {
    /** The relay's finer reason, such as `CredentialsUnavailable`. */
    reason: Schema.String,
    detail: Schema.String
  }
) {
  override get message(): string {
    return this.detail
  }
}

/**
 * A life in a clone: of this port, or of a relay that is composed directly. `began` says that an agent works in it now,
 * so that there may be something to lose; whatever it has done is kept when `use` fails.
 */
export type InClone<D, E, R> = <A extends RepositoryUse, E2, R2>(
  canaries: ReadonlyArray<Canary>,
  use: (place: RepositoryPlace, began: Effect.Effect<void>) => Effect.Effect<A, E2, R2>
) => Effect.Effect<{ readonly value: A; readonly delivery: D }, E | E2, R | R2>

export class Repositories extends Context.Service<
  Repositories,
  {
    /** The request as the relay understands it, or why it does not; nothing is made, and nobody asked. */
    readonly check: (request: RepositoryRequest) => Effect.Effect<void, RepositoryUnavailable>
    readonly inClone: (
      request: RepositoryRequest & { readonly runId: RunId }
    ) => InClone<RepositoryDelivery, RepositoryUnavailable, never>
  }
>()("@cogni/sandbox-graph-provider/Repositories") {}

/** For executors without a relay: every request that names a repository is refused. */
export const layerNoop: Layer.Layer<Repositories> = Layer.sync(Repositories, () => {
  const refuse = Effect.fail(
    new RepositoryUnavailable({
      reason: "RelayAbsent",
      detail: "this executor has no git relay, so it can work in no repository. Leave the repository out"
    })
  )
  return Repositories.of({ check: () => refuse, inClone: () => () => refuse })
})
