/** What every step of a relay works with. */
import { Context, Effect } from "effect"
import type * as CommitPolicy from "../../CommitPolicy.ts"
import type { PrivateServers } from "../../OriginAddress.ts"
import type { NamedSecret } from "../git/CredentialUse.ts"
import type { GitNetwork } from "../git/GitEnvironment.ts"
import type { MirrorCache } from "../origin/MirrorCache.ts"
import type { OriginOptions } from "../origin/RemoteOrigin.ts"
import type { KeptRuns } from "./KeptRuns.ts"

const MiB = 1024 * 1024

export const limits = {
  /** Not compressed: as much as the policy lets a run add, and its listings. */
  bundleBytesMax: 256 * MiB,
  objectsMax: 60_000,
  /** To take the commits out of the workspace. */
  collectSecondsMax: 120,
  /** To list what is checked out, and to hold what comes back to the policy. */
  checkSecondsMax: 120,
  /** What an origin may send; counted as it comes, packed. */
  cloneBytesMax: 4096 * MiB,
  /** Objects that a repository of this host may send. */
  cloneObjectsMax: 20_000_000,
  /** Files and directories that the base may have when it is checked out. With more, no workspace can be watched. */
  checkoutPathsMax: 1_000_000,
  /** What its files may weigh together, not compressed. */
  checkoutBytesMax: 16 * 1024 * MiB,
  /** For one conversation with the origin. */
  transferSecondsMax: 900,
  patchBytesMax: 64 * MiB
}

export type RelayLimits = Readonly<typeof limits>

/** What an operator sets, and every step reads. */
export interface RelaySettings {
  /** An image of ours, with git and `cogni-repo` in it: the runtime image. */
  readonly image: string
  /** What may be pushed, as `CommitPolicy.decode` has it. Left out: `CommitPolicy.defaults`. */
  readonly policies?: CommitPolicy.Policies | undefined
  /** Secrets of the host that must not be in any commit: the key of the model, tokens. */
  readonly secrets?: ReadonlyArray<NamedSecret> | undefined
  readonly network?: GitNetwork | undefined
  /** Servers whose addresses may be private, or this host's own. Left out: none. */
  readonly privateServers?: PrivateServers | undefined
}

export class RelayContext extends Context.Service<
  RelayContext,
  RelaySettings & {
    readonly runs: KeptRuns
    readonly cache: MirrorCache | undefined
    readonly limits: RelayLimits
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
