/**
 * A run's use of a repository: where it is, and what is delivered.
 */
import type { Canary } from "@cogni/sandbox-core/Canary"
import type { AuditHead } from "@cogni/sandbox-core/RunFigures"
import type { Effect } from "effect"
import { Schema } from "effect"

/** A clone, as the run that works in it sees it. */
export interface RepositoryPlace {
  /** Directory on the host that becomes the run's workspace. */
  readonly workspacePath: string
  /** Wraps a command so that it runs in the repository. */
  readonly within: (argv: readonly [string, ...ReadonlyArray<string>]) => readonly [string, ...Array<string>]
}

/** Path of the repository inside the sandbox. */
export const repositoryPath = "/workspace/repo"

/** The outcome of the work in a clone. Commits are delivered only after success. */
export interface RepositoryUse {
  readonly succeeded: boolean
  readonly auditHead?: AuditHead | undefined
}

/** The outcome of a run's commits. */
export interface RepositoryDelivery {
  readonly status: "skipped" | "pushed" | "unchanged" | "kept" | "failed"
  readonly branch: string
  readonly pullRequestUrl?: string | undefined
  /** Why the commits were not delivered, and what to do. */
  readonly problem?: { readonly reason: string; readonly message: string } | undefined
  /** Annotation of the run's record, under the key `relay`. */
  readonly record: Schema.Json
  /** Further annotations of the run's record, by their keys, such as what the commits change. */
  readonly annotations?: Readonly<Record<string, Schema.Json>> | undefined
}

/**
 * Runs `use` in a clone, made by this port or by a relay that is composed directly.
 *
 * `use` calls `began` when an agent starts to work in the clone. From then on, its work is kept if `use` fails.
 */
export type InClone<D, E, R> = <A extends RepositoryUse, E2, R2>(
  canaries: ReadonlyArray<Canary>,
  use: (place: RepositoryPlace, began: Effect.Effect<void>) => Effect.Effect<A, E2, R2>
) => Effect.Effect<{ readonly value: A; readonly delivery: D }, E | E2, R | R2>

const Name = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(250))

/** A repository for a run to work in. */
export const RepositoryRequest = Schema.Struct({
  /** URL without a credential: credentials belong to the relay. */
  url: Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(2000)),
  /** Default: the branch that the origin's HEAD names. */
  baseBranch: Schema.optionalKey(Name),
  /** Branch for the commits, below `sandbox/`. Default: `sandbox/<run id>`. */
  branch: Schema.optionalKey(Name),
  /** Commits of history that the agent sees. Default: 1. */
  depth: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10_000 }))),
  /** Opens a pull request. Default: false. */
  pullRequest: Schema.optionalKey(Schema.Boolean)
})

export type RepositoryRequest = typeof RepositoryRequest.Type

/** The repository cannot be provided. No agent was started. */
export class RepositoryUnavailable extends Schema.TaggedError<RepositoryUnavailable>()(
  "RepositoryUnavailable",
  {
    /** The relay's specific reason, such as `CredentialsUnavailable`. */
    reason: Schema.String,
    detail: Schema.String
  }
) {
  override get message(): string {
    return this.detail
  }
}
