/**
 * `GitCredentials` of connections: each use of an origin is a lease of the `ConnectionBroker`, on behalf of the current
 * `ConnectionUser`.
 *
 * A server to which neither the account nor the host has a connection is accessed without a credential.
 */
import { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import type { ConnectionError } from "@cogni/sandbox-connections/ConnectionError"
import { Effect, Layer } from "effect"
import { GitCredentials } from "./GitCredentials.ts"
import { CredentialsDenied, CredentialsUnavailable } from "./GitRelayError.ts"

const make = Effect.map(ConnectionBroker, (broker) =>
  GitCredentials.of({
    get: ({ purpose, url }) =>
      broker.lease({ purpose, repository: url }).pipe(
        Effect.map(({ ended, secret, username }) => ({
          username,
          password: secret,
          ended: Effect.mapError(ended, unavailable)
        })),
        Effect.catchIf(isWithoutConnection, () => Effect.succeed(undefined)),
        Effect.mapError((error) =>
          error.code === "policy_denied" ? new CredentialsDenied(wordsOf(error)) : unavailable(error)
        )
      )
  })
)

export const layer: Layer.Layer<GitCredentials, never, ConnectionBroker> = Layer.effect(GitCredentials, make)

const isWithoutConnection = ({ reason }: ConnectionError): boolean =>
  reason._tag === "ConnectionDenied" && reason.reason === "no_connection"

const wordsOf = ({ detail, remedy }: ConnectionError) => ({ detail, remedy })

const unavailable = (error: ConnectionError) =>
  new CredentialsUnavailable({ ...wordsOf(error), isRetryable: error.isRetryable })
