/** Raw objects of a repository that the host owns. An agent or the origin wrote their content. */
import type { Effect } from "effect"
import type { CommitId } from "../../Refs.ts"

/** @internal */
export type ObjectType = "commit" | "tree" | "blob" | "tag"

/** Type and size of an object, which are known without reading its content. */
export interface ObjectInfo {
  readonly type: ObjectType
  readonly bytes: number
}

export interface ListedCommit {
  readonly id: CommitId
  readonly parents: ReadonlyArray<CommitId>
}

/**
 * Reads objects. IDs are lower-case hexadecimal. A missing object is `undefined`; `E` is a failure of the reader
 * itself.
 */
export interface ObjectReader<E = never> {
  readonly info: (ids: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<ObjectInfo | undefined>, E>
  /** Reads the whole object; check its size with `info` first. */
  readonly content: (id: string) => Effect.Effect<Uint8Array | undefined, E>
  /** Commits that `tip` has and `base` does not, with their parents, children before their parents. At most `max`. */
  readonly commits: (
    tip: CommitId,
    base: CommitId,
    max: number
  ) => Effect.Effect<ReadonlyArray<ListedCommit>, E>
  readonly isAncestor: (ancestor: CommitId, descendant: CommitId) => Effect.Effect<boolean, E>
}
