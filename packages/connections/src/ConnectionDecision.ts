/**
 * Decides whether a grant allows a use of a connection. Pure.
 *
 * The decision comes before any credential: {@link decide} gets a snapshot of the grant, the connections and the
 * request, and returns a permit or the reason for the denial. A permit is the intersection of what the grant allows,
 * what the connection allows and what was asked for. Only a permit can lead to a credential.
 */
import * as GrantPattern from "@cogni/sandbox-core/GrantPattern"
import { Result, Schema } from "effect"
import type { Connection } from "./Connection.ts"
import {
  hostPrefix,
  Identifier,
  LifetimeSeconds,
  lifetimeSecondsMax,
  patternsMax,
  Purpose,
  Purposes,
  RepositoryPatterns,
  ToolPatterns
} from "./ConnectionFields.ts"
import { ConnectionDenied } from "./ConnectionReason.ts"
import type { Denial } from "./internal/Denial.ts"

/** One permission of a grant: some connections, for some uses. */
export const ConnectionRule = Schema.Struct({
  /** Pattern for names. `*` matches connections of the account, `host/*` those of the host. */
  connection: GrantPattern.NamePattern,
  purposes: Purposes,
  /** Default: the repositories of the grant. */
  repositories: Schema.optionalKey(RepositoryPatterns),
  /** Default: the tools of the grant. */
  tools: Schema.optionalKey(ToolPatterns),
  /** Longest lifetime of a lease, in seconds. Default: that of the connection. */
  lifetimeSecondsMax: Schema.optionalKey(LifetimeSeconds)
})

export type ConnectionRule = typeof ConnectionRule.Type

export const ConnectionRules = Schema.Array(ConnectionRule).check(Schema.isMaxLength(patternsMax))

/** The part of a grant that matters for connections. */
export const ConnectionAuthority = Schema.Struct({
  grantId: Identifier,
  billingAccountId: Identifier,
  rules: ConnectionRules,
  /** Repositories and tools that the grant allows at all. A rule cannot allow more. */
  repositories: RepositoryPatterns,
  tools: ToolPatterns,
  expiresAt: Schema.NullOr(Schema.DateFromString),
  revokedAt: Schema.NullOr(Schema.DateFromString)
})

export type ConnectionAuthority = typeof ConnectionAuthority.Type

/** A use that needs a credential. */
export const ConnectionRequest = Schema.Struct({
  billingAccountId: Identifier,
  /** Name of the connection. Default: one for the server of the repository. */
  connection: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(200))),
  purpose: Purpose,
  /** URL of the repository. Required by `fetch`, `push` and `pull_request`. */
  repository: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(2000))),
  /** The only server that may get the credential, as an origin. Default: that of the repository or the connection. */
  server: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(200))),
  /** Name of the tool. Required by `tool_read` and `tool_write`, and refused by other purposes. */
  toolId: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(200))),
  /** Description of the use for the audit, such as the method and the address of a request. */
  target: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(2000))),
  /** Default: one hour. */
  lifetimeSeconds: Schema.optionalKey(LifetimeSeconds),
  runId: Schema.optionalKey(Identifier)
})

export type ConnectionRequest = typeof ConnectionRequest.Type

/** Facts of one decision. */
export interface Snapshot {
  readonly authority: ConnectionAuthority
  /** The connections of the account, and those that the host offers to all. */
  readonly connections: ReadonlyArray<Connection>
  readonly request: ConnectionRequest
  readonly now: Date
}

/** A permitted use. */
export interface Permit {
  readonly billingAccountId: string
  readonly grantId: string
  readonly connectionId: string
  readonly connectionName: string
  /** The only server that may get the credential. */
  readonly server: string
  readonly purpose: Purpose
  /** The only repository that the credential is for. */
  readonly repository: string | undefined
  readonly toolId: string | undefined
  /** When the use must have ended. */
  readonly expiresAt: Date
  readonly runId: string | undefined
}

/** Returns a permit, or the reason for the denial. */
export const decide = (snapshot: Snapshot): Result.Result<Permit, ConnectionDenied> => {
  const { authority, request } = snapshot
  const denied = (reason: Denial) =>
    Result.fail(new ConnectionDenied({ grantId: authority.grantId, purpose: request.purpose, reason }))
  const repository = request.repository === undefined ? undefined : textOf(request.repository)
  if (!isWhole(request, repository)) return denied("invalid_request")
  const standing = standingOf(snapshot)
  if (standing !== undefined) return denied(standing)
  const candidates = candidatesOf(snapshot, repository)
  const [first] = candidates
  if (first === undefined) return denied("no_connection")
  const decisions = candidates.map((connection) =>
    isReplaced(connection, candidates, authority)
      ? "connection_not_granted"
      : decideOne(snapshot, connection, repository)
  )
  const permit = decisions.find((one) => typeof one !== "string")
  return typeof permit === "object" ? Result.succeed(permit) : denied(decisions[0] as Denial)
}

/**
 * Returns a repository as permits name it, for matching and comparing. `undefined` for URLs that two programs could
 * parse differently, and for paths of this host, which need no credential.
 */
const textOf = (url: string): string | undefined => {
  const text = GrantPattern.repositoryText(url)
  return text?.startsWith("/") === true ? undefined : text
}

/** Whether a request has the target that its purpose needs. */
const isWhole = (request: ConnectionRequest, repository: string | undefined): boolean => {
  if (request.repository !== undefined && repository === undefined) return false
  const isOfTool = request.purpose === "tool_read" || request.purpose === "tool_write"
  return isOfTool
    ? request.toolId !== undefined && (repository !== undefined || request.connection !== undefined)
    : request.toolId === undefined && repository !== undefined
}

const standingOf = ({ authority, now, request }: Snapshot): Denial | undefined => {
  if (authority.revokedAt !== null) return "grant_revoked"
  if (isPast(authority.expiresAt, now)) return "grant_expired"
  return authority.billingAccountId === request.billingAccountId ? undefined : "account_mismatch"
}

const isPast = (time: Date | null, now: Date): boolean => time !== null && !(time.getTime() > now.getTime())

/**
 * Connections that the request can mean: of its account before those of the host, live ones first, then the oldest. A
 * connection of another account does not exist for it.
 */
const candidatesOf = (
  { connections, now, request }: Snapshot,
  repository: string | undefined
): ReadonlyArray<Connection> =>
  connections
    .filter(
      ({ billingAccountId }) => billingAccountId === null || billingAccountId === request.billingAccountId
    )
    .filter(({ name }) => request.connection === undefined || request.connection === name)
    .filter(({ server }) => repository === undefined || new URL(repository).origin === server)
    .filter(({ server }) => request.server === undefined || request.server === server)
    .toSorted(
      (a, b) =>
        Number(a.billingAccountId === null) - Number(b.billingAccountId === null) ||
        Number(hasEnded(a, now) !== undefined) - Number(hasEnded(b, now) !== undefined) ||
        a.createdAt.getTime() - b.createdAt.getTime() ||
        (a.id < b.id ? -1 : 1)
    )

/**
 * Whether connections of the account replace one of the host: the limits of a connection that a grant opens must not
 * end where the host's token begins. Once it was removed, the host's is used only if a rule names those of the host.
 */
const isReplaced = (
  { billingAccountId, name }: Connection,
  candidates: ReadonlyArray<Connection>,
  { rules }: ConnectionAuthority
): boolean => {
  if (billingAccountId !== null) return false
  const own = candidates.filter(
    (one) =>
      one.billingAccountId !== null && rules.some((rule) => GrantPattern.matches(rule.connection, one.name))
  )
  const isNamed = rules.some(
    ({ connection }) => connection.startsWith(hostPrefix) && GrantPattern.matches(connection, name)
  )
  return own.some(({ revokedAt }) => revokedAt === null || !isNamed)
}

const hasEnded = ({ expiresAt, revokedAt }: Connection, now: Date): Denial | undefined =>
  revokedAt !== null ? "connection_revoked" : isPast(expiresAt, now) ? "connection_expired" : undefined

/** Decides about one connection. */
const decideOne = (
  { authority, now, request }: Snapshot,
  connection: Connection,
  repository: string | undefined
): Permit | Denial => {
  const ended = hasEnded(connection, now)
  if (ended !== undefined) return ended
  const { purpose, toolId } = request
  const { scope } = connection
  const named = authority.rules.filter((rule) => GrantPattern.matches(rule.connection, connection.name))
  if (named.length === 0) return "connection_not_granted"
  const used = named.filter(
    (rule) => rule.purposes.includes(purpose) && (scope.purposes ?? rule.purposes).includes(purpose)
  )
  if (used.length === 0) return "purpose_not_granted"
  const placed = used.filter((rule) => {
    const limits = [rule.repositories, scope.repositories]
    // Limits to repositories could not be kept by a use that names none.
    return repository === undefined
      ? limits.every((list) => list === undefined)
      : isWithin(repository, [authority.repositories, ...limits])
  })
  if (placed.length === 0) return "repository_not_granted"
  const rules = placed.filter((rule) => isWithin(toolId, [authority.tools, rule.tools, scope.tools]))
  if (rules.length === 0) return "tool_not_granted"
  const lifetimeSeconds = Math.min(
    request.lifetimeSeconds ?? lifetimeSecondsMax,
    connection.lifetimeSecondsMax,
    Math.max(...rules.map((rule) => rule.lifetimeSecondsMax ?? lifetimeSecondsMax))
  )
  const ends = [
    now.getTime() + lifetimeSeconds * 1000,
    ...[authority.expiresAt, connection.expiresAt].flatMap((time) => time?.getTime() ?? [])
  ]
  return {
    billingAccountId: request.billingAccountId,
    grantId: authority.grantId,
    connectionId: connection.id,
    connectionName: connection.name,
    server: connection.server,
    purpose,
    repository,
    toolId,
    expiresAt: new Date(Math.min(...ends)),
    runId: request.runId
  }
}

/** Whether a target is in all lists that exist. */
const isWithin = (
  target: string | undefined,
  lists: ReadonlyArray<ReadonlyArray<string> | undefined>
): boolean =>
  target === undefined || lists.every((list) => list === undefined || GrantPattern.matchesAny(list, target))
