/**
 * Credentials of another service, by one POST for each use. It authenticates this host by a bearer token, which is the
 * stored secret of the connection.
 *
 * The answer repeats account, connection and target. A service that answers for anything else is not believed.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { Clock, Effect, Schema } from "effect"
import { SourceRefused } from "../../ConnectionReason.ts"
import type { CredentialSource } from "../../CredentialSource.ts"
import * as IssuerApi from "../IssuerApi.ts"
import * as SecretUse from "../SecretUse.ts"

const Text = Schema.String.check(Schema.isMaxLength(2000))

/** Answer of the service. */
const BrokerAnswer = Schema.Struct({
  billingAccountId: Text,
  connection: Text,
  server: Text,
  /** Required if the request names one: the only repository that the credential opens. */
  repository: Schema.optionalKey(Text),
  /** Required if the request names one. */
  toolId: Schema.optionalKey(Text),
  username: Schema.optionalKey(Text),
  token: Schema.RedactedFromValue(Schema.NonEmptyString),
  expiresAt: Schema.DateFromString
})

export const make: CredentialSource = {
  kind: "broker",
  states: ["account", "connection", "server", "repository", "tool"],
  issue: ({ connection: { means, name }, permit, secret }) =>
    Effect.gen(function* () {
      if (means.kind !== "broker") return yield* notBroker(name)
      const now = yield* Clock.currentTimeMillis
      const request = new Request(means.url, {
        method: "POST",
        headers: {
          accept: "application/json",
          authorization: SecretUse.bearerOf(yield* secret),
          "content-type": "application/json"
        },
        body: JSON.stringify({
          billingAccountId: permit.billingAccountId,
          connection: permit.connectionName,
          server: permit.server,
          purpose: permit.purpose,
          repository: permit.repository,
          toolId: permit.toolId,
          runId: permit.runId,
          lifetimeSeconds: Math.ceil((permit.expiresAt.getTime() - now) / 1000)
        })
      })
      const answer = yield* IssuerApi.ask(name, request, BrokerAnswer)
      return {
        username: answer.username,
        secret: answer.token,
        expiresAt: answer.expiresAt,
        claims: {
          account: answer.billingAccountId,
          connection: answer.connection,
          server: answer.server,
          repository: answer.repository === undefined ? undefined : [answer.repository],
          tool: answer.toolId
        }
      }
    })
}

const notBroker = (connection: string) =>
  new SourceRefused({
    connection,
    detail: "it has no address of a broker",
    remedy: `Remove it and add it again (${named("ConnectionStore.add")})`
  })
