/**
 * Composes the broker of connections: their store in the run database, the sources that this host has, and the tokens
 * of its environment, which it offers to all accounts.
 */
import * as ConnectionBroker from "@cogni/sandbox-connections/ConnectionBroker"
import { ConnectionError } from "@cogni/sandbox-connections/ConnectionError"
import { ConnectionStoreUnavailable } from "@cogni/sandbox-connections/ConnectionReason"
import { purposes } from "@cogni/sandbox-connections/ConnectionFields"
import type { ConnectionStore } from "@cogni/sandbox-connections/ConnectionStore"
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import * as CredentialSources from "@cogni/sandbox-connections/CredentialSources"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import * as BrokerCredentials from "@cogni/sandbox-git-relay/BrokerCredentials"
import * as ForgeSources from "@cogni/sandbox-git-relay/forge/ForgeSources"
import type { GitCredentials } from "@cogni/sandbox-git-relay/GitCredentials"
import * as GrantConnections from "@cogni/sandbox-graph-provider/grants/GrantConnections"
import * as SqlConnectionStore from "@cogni/sandbox-sql/SqlConnectionStore"
import { Context, Effect, Exit, Layer, Scope, Semaphore } from "effect"
import type { ConnectionSettings } from "./ConnectionSettings.ts"
import { mapLayerError, type Refusal, refusal } from "./Failure.ts"
import type { GitSettings } from "./GitSettings.ts"
import * as Records from "./Records.ts"
import type { Settings } from "./Settings.ts"

/** The connection store, in the run database. */
export const store = (settings: Settings["Service"]): Layer.Layer<ConnectionStore, Refusal> =>
  Records.inDatabase(settings, SqlConnectionStore.layer, "connections cannot be looked up")

/** Encrypts secrets, if this host has a key. */
export const secrets = (settings: Settings["Service"]): Layer.Layer<SecretBox.SecretBox, Refusal> =>
  Layer.unwrap(
    Effect.map(Effect.fromResult(settings.connections), ({ keys }) =>
      keys === undefined
        ? SecretBox.layerNone
        : SecretBox.layer.pipe(
            Layer.provide(SecretBox.layerKeys(Effect.mapError(keys, unsealed))),
            mapLayerError(({ detail, remedy }) =>
              refusal("configuration", `COGNI_CONNECTIONS_KEY_FILE: a secret ${detail}`, remedy)
            )
          )
    )
  )

const unsealed = ({ detail, remedy }: Refusal) =>
  new SecretBox.SealFailed({ detail: `cannot be stored or read: ${detail}`, remedy, isRetryable: true })

/**
 * The operator of the command, who may use every connection of their account, and those of the host for git. Callers
 * over HTTP are not the operator: `serve` has no default user.
 */
export const operator = (
  settings: Pick<Settings["Service"], "billingAccountId">,
  { account = settings.billingAccountId, runId }: { readonly account?: string; readonly runId?: string } = {}
): ConnectionUser => ({
  billingAccountId: account,
  runId,
  authority: Effect.succeed({
    grantId: "operator",
    billingAccountId: account,
    // Tokens of the host are for tools only if a connection limits them: an agent chooses what a tool does.
    rules: [{ connection: "*", purposes }, ...GrantConnections.hostRules],
    repositories: ["**"],
    tools: ["**"],
    expiresAt: null,
    revokedAt: null
  })
})

/** The broker, on behalf of the users of grants or of one user. */
export const broker = (
  settings: Settings["Service"],
  user: ConnectionUser | undefined
): Layer.Layer<ConnectionBroker.ConnectionBroker | ConnectionStore, Refusal> =>
  Layer.unwrap(
    Effect.gen(function* () {
      const git = yield* Effect.fromResult(settings.git)
      const connections = yield* Effect.fromResult(settings.connections)
      return ConnectionBroker.layer({
        sources: sourcesOf(git, connections),
        hostConnections: CredentialSources.hostConnections(git.tokens),
        user
      })
    })
  ).pipe(Layer.provideMerge(store(settings)), Layer.provide(secrets(settings)))

/** The broker of a process: one for all that use it, so that its limits are those of the process. */
interface Shared {
  readonly turn: Semaphore.Semaphore
  open:
    | { readonly broker: ConnectionBroker.ConnectionBroker["Service"]; readonly scope: Scope.Closeable }
    | undefined
  users: number
}

const brokers = new WeakMap<object, Shared>()

const sharedOf = (settings: Settings["Service"]): Shared => {
  const known = brokers.get(settings)
  if (known !== undefined) return known
  const shared: Shared = { turn: Semaphore.makeUnsafe(1), open: undefined, users: 0 }
  brokers.set(settings, shared)
  return shared
}

/** Opens the broker unless it is open, and counts one more user of it until the scope closes. */
const joined = (shared: Shared, settings: Settings["Service"], user: Scope.Scope) =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      if (shared.open === undefined) {
        const scope = yield* Scope.make()
        const context = yield* restore(Layer.buildWithScope(broker(settings, undefined), scope)).pipe(
          Effect.onError(() => Scope.close(scope, Exit.void))
        )
        shared.open = { scope, broker: Context.get(context, ConnectionBroker.ConnectionBroker) }
      }
      shared.users += 1
      yield* Scope.addFinalizer(user, left(shared))
      return shared.open.broker
    })
  )

const left = (shared: Shared) =>
  shared.turn.withPermit(
    Effect.suspend(() => {
      shared.users -= 1
      const { open } = shared
      if (shared.users > 0 || open === undefined) return Effect.void
      shared.open = undefined
      return Scope.close(open.scope, Exit.void)
    })
  )

/**
 * A broker that is made with the first lease of the process. If it cannot be made, the next lease tries again.
 * Operations without a credential need neither a database nor a key for connections.
 */
export const whenUsed = Effect.fnUntraced(function* (
  settings: Settings["Service"],
  user: ConnectionUser | undefined
): Effect.fn.Return<ConnectionBroker.ConnectionBroker["Service"], never, Scope.Scope> {
  const scope = yield* Effect.scope
  const shared = sharedOf(settings)
  let made: ConnectionBroker.ConnectionBroker["Service"] | undefined
  const inner = shared.turn.withPermit(
    Effect.suspend(() =>
      made === undefined
        ? joined(shared, settings, scope).pipe(
            Effect.map((found) => (made = found)),
            Effect.mapError(
              ({ detail, remedy }) =>
                new ConnectionStoreUnavailable({ detail: `cannot be used: ${detail}`, remedy })
            )
          )
        : Effect.succeed(made)
    )
  )
  return ConnectionBroker.ConnectionBroker.of({
    lease: (request) =>
      Effect.flatMap(
        Effect.mapError(inner, (reason) => new ConnectionError({ reason })),
        ({ lease }) =>
          Effect.flatMap(ConnectionUser, (current) =>
            Effect.provideService(lease(request), ConnectionUser, current ?? user)
          )
      ),
    revokeLease: (account, leaseId) =>
      Effect.flatMap(inner, ({ revokeLease }) => revokeLease(account, leaseId))
  })
})

/** Credentials of the git relay. */
export const credentials = (
  settings: Settings["Service"],
  user: ConnectionUser | undefined
): Layer.Layer<GitCredentials> =>
  Layer.provide(
    BrokerCredentials.layer,
    Layer.effect(ConnectionBroker.ConnectionBroker, whenUsed(settings, user))
  )

const sourcesOf = (git: GitSettings, { gitHubApp }: ConnectionSettings) => [
  ...CredentialSources.make(git.tokens),
  ...ForgeSources.make({
    gitHubApp: gitHubApp && { ...gitHubApp, server: git.gitHubServer, apiUrl: git.gitHubApi }
  })
]
