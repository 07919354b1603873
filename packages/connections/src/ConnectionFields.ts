/** Fields of connections, which grants and requests share. */
import * as GrantPattern from "@cogni/sandbox-core/GrantPattern"
import { Schema } from "effect"

export const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

/** Maximum patterns of one list, and rules of one grant. */
export const patternsMax = 64

const patterns = <S extends Schema.Constraint>(pattern: S) =>
  Schema.Array(pattern).check(Schema.isMaxLength(patternsMax))

export const RepositoryPatterns = patterns(GrantPattern.RepositoryPattern)

export const ToolPatterns = patterns(GrantPattern.NamePattern)

/** Uses of a credential. A credential is issued for one of them, with only the rights that it needs. */
export const purposes = ["fetch", "push", "pull_request", "tool_read", "tool_write"] as const

export const Purpose = Schema.Literals(purposes)

export type Purpose = typeof Purpose.Type

export const Purposes = Schema.Array(Purpose).check(Schema.isMinLength(1), Schema.isMaxLength(patternsMax))

/** Longest lifetime of one lease, in seconds: as long as GitHub's tokens live. */
export const lifetimeSecondsMax = 3600

export const LifetimeSeconds = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: lifetimeSecondsMax }))

/** Name of a connection of an account. */
export const ConnectionName = Schema.String.check(
  Schema.isPattern(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/u, {
    expected: "1 to 63 lower-case letters, digits and inner hyphens"
  })
)

/** Prefix of the names of the host's own connections. The wildcard `*` of a grant does not match it. */
export const hostPrefix = "host/"

export const AnyName = Schema.String.check(
  Schema.isPattern(/^(?:host\/)?[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/u, {
    expected: "the name of a connection"
  })
)

/** Scheme, host and port, as URLs have them: in lower case, without a default port. */
export const Server = Schema.String.check(
  Schema.makeFilter((text: string) =>
    /^(?:https:\/\/|http:\/\/(?:127\.0\.0\.1|localhost|\[::1\])(?:$|:))/u.test(text) &&
    URL.canParse(text) &&
    new URL(text).origin === text
      ? undefined
      : "Expected https://HOST or https://HOST:PORT in lower case, or http for this host only"
  )
)

/** An address that gets secrets: https, or http on this host. */
export const SecretUrl = Schema.String.check(
  Schema.makeFilter((text: string) => {
    const isUrl = text.length <= 2000 && URL.canParse(text)
    const { hash, hostname, password, protocol, search, username } = new URL(
      isUrl ? text : "http://invalid.example"
    )
    const isPrivate = protocol === "http:" && /^(?:127\.0\.0\.1|localhost|\[::1\])$/u.test(hostname)
    return (protocol === "https:" || isPrivate) && username === "" && password === "" && hash + search === ""
      ? undefined
      : "Expected an https URL without a user, a query and a fragment, or an http URL of this host"
  })
)

/** Where the credentials of a connection come from. None of these fields is secret. */
export const Means = Schema.Union([
  /** A token in the environment of the host process. */
  Schema.Struct({
    kind: Schema.Literal("environment"),
    variable: Schema.String.check(Schema.isPattern(/^[A-Z][A-Z0-9_]{0,99}$/u))
  }),
  /** An installation of the host's GitHub App. Each use gets a new token for one repository. */
  Schema.Struct({
    kind: Schema.Literal("github_app"),
    installationId: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }))
  }),
  /** A token of a GitLab server, encrypted in the database. Its scopes and expiry are checked before each use. */
  Schema.Struct({ kind: Schema.Literal("gitlab") }),
  /** A token of any server, encrypted in the database. */
  Schema.Struct({ kind: Schema.Literal("token") }),
  /** A refresh token, encrypted in the database. Each use gets a new access token. */
  Schema.Struct({
    kind: Schema.Literal("oauth"),
    tokenUrl: SecretUrl,
    clientId: Identifier
  }),
  /** Another service, which issues a credential for each use. */
  Schema.Struct({ kind: Schema.Literal("broker"), url: SecretUrl })
])

export type Means = typeof Means.Type

export type Kind = Means["kind"]

/** Kinds of which the database has an encrypted secret. */
export const sealedKinds: ReadonlySet<Kind> = new Set(["gitlab", "token", "oauth", "broker"])

/** Limits of a connection, whatever a grant allows. An absent list is no limit. */
export const ConnectionScope = Schema.Struct({
  purposes: Schema.optionalKey(Purposes),
  repositories: Schema.optionalKey(RepositoryPatterns),
  tools: Schema.optionalKey(ToolPatterns)
})

/** Returns the user name that servers expect with a credential of this kind. */
export const usernameOf = (kind: Kind): string =>
  kind === "gitlab" || kind === "oauth" ? "oauth2" : "x-access-token"
