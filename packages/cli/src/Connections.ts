/**
 * Composes the broker of connections: their store in the run database, the sources that this host has, and the tokens
 * of its environment, which it offers to all accounts.
 */
import * as ConnectionBroker from "@cogni/sandbox-connections/ConnectionBroker"
import { purposes } from "@cogni/sandbox-connections/ConnectionFields"
import type { ConnectionStore } from "@cogni/sandbox-connections/ConnectionStore"
import type { ConnectionUserShape } from "@cogni/sandbox-connections/ConnectionUser"
import * as CredentialSources from "@cogni/sandbox-connections/CredentialSources"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import * as BrokerCredentials from "@cogni/sandbox-git-relay/BrokerCredentials"
import * as GitHubAppSource from "@cogni/sandbox-git-relay/forge/GitHubAppSource"
import * as GitLabSource from "@cogni/sandbox-git-relay/forge/GitLabSource"
import type { GitCredentials } from "@cogni/sandbox-git-relay/GitCredentials"
import * as SqlConnectionStore from "@cogni/sandbox-sql/SqlConnectionStore"
import { Effect, Layer } from "effect"
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
            Layer.provide(SecretBox.layerKeys(keys)),
            mapLayerError(({ detail, remedy }) =>
              refusal("configuration", `COGNI_CONNECTIONS_KEY_FILE: a secret ${detail}`, remedy)
            )
          )
    )
  )

/**
 * The operator of the command, who may use every connection of their account and of the host. Callers over HTTP are not
 * the operator: `serve` has no default user.
 */
export const operator = (
  settings: Pick<Settings["Service"], "billingAccountId">,
  { account = settings.billingAccountId, runId }: { readonly account?: string; readonly runId?: string } = {}
): ConnectionUserShape => ({
  billingAccountId: account,
  runId,
  authority: Effect.succeed({
    grantId: "operator",
    billingAccountId: account,
    rules: [{ connection: "**", purposes }],
    repositories: ["**"],
    tools: ["**"],
    expiresAt: null,
    revokedAt: null
  })
})

/** The broker, on behalf of the users of grants or of one user. */
export const broker = (
  settings: Settings["Service"],
  user: ConnectionUserShape | undefined
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

/** Credentials of the git relay. */
export const credentials = (
  settings: Settings["Service"],
  user: ConnectionUserShape | undefined
): Layer.Layer<GitCredentials, Refusal> => Layer.provide(BrokerCredentials.layer, broker(settings, user))

const sourcesOf = (git: GitSettings, { gitHubApp }: ConnectionSettings) => [
  ...CredentialSources.make(git.tokens),
  GitLabSource.make,
  ...(gitHubApp === undefined
    ? []
    : [GitHubAppSource.make({ ...gitHubApp, server: git.gitHubServer, apiUrl: git.gitHubApi })])
]
