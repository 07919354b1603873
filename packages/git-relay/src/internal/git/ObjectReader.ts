/** Raw objects of a repository that the host owns. What is in them was written by an agent, or by the origin. */
import type { Effect } from "effect"
import type { CommitId } from "../../Refs.ts"

/** @internal */
export type ObjectType = "commit" | "tree" | "blob" | "tag"

/** What is known of an object without looking into it. */
export interface ObjectInfo {
  readonly type: ObjectType
  readonly bytes: number
}

export interface ListedCommit {
  readonly id: CommitId
  readonly parents: ReadonlyArray<CommitId>
}

/** Object ids are lower-case hexadecimal. What is missing is `undefined`; `E` is a fault of the reader's own. */
export interface ObjectReader<E = never> {
  readonly info: (ids: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<ObjectInfo | undefined>, E>
  /** Whole: ask `info` first. */
  readonly content: (id: string) => Effect.Effect<Uint8Array | undefined, E>
  /** Commits that `tip` has and `base` has not, parents with each, children before their parents. At most `max`. */
  readonly commits: (
    tip: CommitId,
    base: CommitId,
    max: number
  ) => Effect.Effect<ReadonlyArray<ListedCommit>, E>
  readonly isAncestor: (ancestor: CommitId, descendant: CommitId) => Effect.Effect<boolean, E>
}
