/** What every step of a relay works with. */
import { Context, Effect, type Redacted } from "effect"
import type * as CommitPolicy from "../../CommitPolicy.ts"
import type { PrivateServers } from "../../OriginAddress.ts"
import type { GitNetwork } from "../git/GitEnvironment.ts"
import type { MirrorCache } from "../origin/MirrorCache.ts"
import type { OriginOptions } from "../origin/RemoteOrigin.ts"
import type { KeptRuns } from "./KeptRuns.ts"

export interface RelayLimits {
  readonly bundleBytesMax: number
  readonly objectsMax: number
  /** To take the commits out of the workspace. */
  readonly collectSecondsMax: number
  /** To list what is checked out, and to hold what comes back to the policy. */
  readonly checkSecondsMax: number
  /** What an origin may send; counted as it comes, packed. */
  readonly cloneBytesMax: number
  /** Objects that a repository of this host may send. */
  readonly cloneObjectsMax: number
  /** Files and directories that the base may have when it is checked out. */
  readonly checkoutPathsMax: number
  /** What its files may weigh together, not compressed. */
  readonly checkoutBytesMax: number
  /** For one conversation with the origin. */
  readonly transferSecondsMax: number
  readonly patchBytesMax: number
}

const MiB = 1024 * 1024

export const limits: RelayLimits = {
  // Not compressed: as much as the policy lets a run add, and its listings.
  bundleBytesMax: 256 * MiB,
  objectsMax: 60_000,
  collectSecondsMax: 120,
  checkSecondsMax: 120,
  cloneBytesMax: 4096 * MiB,
  cloneObjectsMax: 20_000_000,
  // With more, no workspace can be watched.
  checkoutPathsMax: 1_000_000,
  checkoutBytesMax: 16 * 1024 * MiB,
  transferSecondsMax: 900,
  patchBytesMax: 64 * MiB
}

export class RelayContext extends Context.Service<
  RelayContext,
  {
    readonly runs: KeptRuns
    readonly cache: MirrorCache | undefined
    readonly image: string
    readonly limits: RelayLimits
    readonly policies?: CommitPolicy.Policies | undefined
    readonly secrets?:
      | ReadonlyArray<{ readonly name: string; readonly secret: Redacted.Redacted<string> }>
      | undefined
    readonly network?: GitNetwork | undefined
    readonly privateServers?: PrivateServers | undefined
  }
>()("@cogni/sandbox-git-relay/RelayContext") {}

/** How an origin is spoken to over a network. */
export const originAt = (url: string): Effect.Effect<OriginOptions, never, RelayContext> =>
  Effect.map(RelayContext, ({ limits, network, privateServers = [] }) => ({
    url,
    network,
    privateServers,
    transferSecondsMax: limits.transferSecondsMax,
    cloneBytesMax: limits.cloneBytesMax
  }))
