/** Settings and services of every step of a relay. */
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
  /** Maximum bytes of a bundle, uncompressed: as much as the policy allows a run to add, and its listings. */
  bundleBytesMax: 256 * MiB,
  objectsMax: 60_000,
  /** Time limit for exporting the commits from the workspace, in seconds. */
  collectSecondsMax: 120,
  /** Time limit for listing the base, and for checking commits against the policy, in seconds. */
  checkSecondsMax: 120,
  /** Maximum bytes that an origin may send, packed; counted as they arrive. */
  cloneBytesMax: 4096 * MiB,
  /** Maximum number of objects that a repository of this host may send. */
  cloneObjectsMax: 20_000_000,
  /** Maximum files and directories of the base when it is checked out. A workspace with more cannot be watched. */
  checkoutPathsMax: 1_000_000,
  /** Maximum bytes of its files together, uncompressed. */
  checkoutBytesMax: 16 * 1024 * MiB,
  /** Time limit for one conversation with the origin, in seconds. */
  transferSecondsMax: 900,
  patchBytesMax: 64 * MiB
}

export type RelayLimits = Readonly<typeof limits>

/** Settings of the operator for every step. */
export interface RelaySettings {
  /** The runtime image of this project, with git and `cogni-repo`. */
  readonly image: string
  /** Policy for pushed commits, as returned by `CommitPolicy.decode`. Defaults to `CommitPolicy.defaults`. */
  readonly policies?: CommitPolicy.Policies | undefined
  /** Secrets of the host that must not be in any commit, such as the key of the model and tokens. */
  readonly secrets?: ReadonlyArray<NamedSecret> | undefined
  readonly network?: GitNetwork | undefined
  /** Servers whose addresses may be private or belong to this host. Defaults to no server. */
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

/** Options for the communication with an origin over a network. */
export const originAt = (url: string): Effect.Effect<OriginOptions, never, RelayContext> =>
  Effect.map(RelayContext, ({ limits, network, privateServers = [] }) => ({
    url,
    network,
    privateServers,
    transferSecondsMax: limits.transferSecondsMax,
    cloneBytesMax: limits.cloneBytesMax
  }))
