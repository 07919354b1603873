/** Credentials of the host process, such as `GITHUB_TOKEN`, which the host offers to all accounts. */
import { Effect, type Redacted } from "effect"
import type { Connection } from "../../Connection.ts"
import { SourceRefused } from "../../ConnectionReason.ts"
import { hostPrefix, lifetimeSecondsMax } from "../../ConnectionFields.ts"
import type { CredentialSource } from "../../CredentialSource.ts"

export interface HostToken {
  /** Variable that it came from. */
  readonly variable: string
  /** The only server that gets it. */
  readonly server: string
  readonly username: string
  readonly token: Redacted.Redacted<string>
}

/** Describes tokens of the host as connections: `host/github-token` for `GITHUB_TOKEN`. */
export const connectionsOf = (tokens: ReadonlyArray<HostToken>): ReadonlyArray<Connection> =>
  tokens.map(({ server, username, variable }) => {
    const name = `${hostPrefix}${variable.toLowerCase().replaceAll("_", "-")}`
    return {
      id: name,
      billingAccountId: null,
      name,
      server,
      username,
      means: { kind: "environment", variable },
      scope: {},
      lifetimeSecondsMax,
      createdAt: new Date(0),
      expiresAt: null,
      revokedAt: null
    }
  })

export const make = (tokens: ReadonlyArray<HostToken>): CredentialSource => ({
  kind: "environment",
  states: [],
  issue: ({ connection }) => {
    const { means, name, server } = connection
    const found = tokens.find(
      (token) => means.kind === "environment" && token.variable === means.variable && token.server === server
    )
    return found === undefined
      ? Effect.fail(
          new SourceRefused({
            connection: name,
            detail: "this host has no such token",
            remedy: "Have the operator set its variable"
          })
        )
      : Effect.succeed({ secret: found.token, expiresAt: undefined, claims: {} })
  }
})
