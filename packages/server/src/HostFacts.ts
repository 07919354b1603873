/** Facts about the host of a server, for a program that places runs on hosts. Default: none are known. */
import { Context, Effect } from "effect"

export const HostFacts = Context.Reference<{
  /** ID of the host's state directory. It stays the same when the server is started again. */
  readonly hostId?: string | undefined
  /** Graphs that this host offers and cannot run now, because the engine lacks their image and may not pull it. */
  readonly missingGraphIds: Effect.Effect<ReadonlyArray<string>>
}>("@cogni/sandbox-server/HostFacts", { defaultValue: () => ({ missingGraphIds: Effect.succeed([]) }) })
