/**
 * Composes the broker of connections: their store in the run database, the sources that this host has, and the tokens
 * of its environment, which it offers to all accounts.
 */
import * as ConnectionBroker from "@cogni/sandbox-connections/ConnectionBroker"
import { ConnectionError } from "@cogni/sandbox-connections/ConnectionError"
import { ConnectionStoreUnavailable } from "@cogni/sandbox-connections/ConnectionReason"
import { purposes } from "@cogni/sandbox-connections/ConnectionFields"
import type { ConnectionStore } from "@cogni/sandbox-connections/ConnectionStore"
import type { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import * as CredentialSources from "@cogni/sandbox-connections/CredentialSources"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import * as BrokerCredentials from "@cogni/sandbox-git-relay/BrokerCredentials"
import * as ForgeSources from "@cogni/sandbox-git-relay/forge/ForgeSources"
import type { GitCredentials } from "@cogni/sandbox-git-relay/GitCredentials"
import * as GrantConnections from "@cogni/sandbox-graph-provider/grants/GrantConnections"
import * as SqlConnectionStore from "@cogni/sandbox-sql/SqlConnectionStore"
import { Context, Effect, Layer, type Scope, Semaphore } from "effect"
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

/**
 * A broker that is made with its first lease. If it cannot be made, the next lease tries again. Operations without a
 * credential need neither a database nor a key for connections.
 */
export const whenUsed = Effect.fnUntraced(function* (
  settings: Settings["Service"],
  user: ConnectionUser | undefined
): Effect.fn.Return<ConnectionBroker.ConnectionBroker["Service"], never, Scope.Scope> {
  const scope = yield* Effect.scope
  const turn = yield* Semaphore.make(1)
  let made: ConnectionBroker.ConnectionBroker["Service"] | undefined
  const inner = turn.withPermit(
    Effect.suspend(() =>
      made === undefined
        ? Layer.buildWithScope(broker(settings, user), scope).pipe(
            Effect.map((context) => (made = Context.get(context, ConnectionBroker.ConnectionBroker))),
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
        ({ lease }) => lease(request)
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
