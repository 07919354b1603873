/** Snapshots of few values, so that grants, connections and requests often meet; and a second way to decide. */
import type { Connection } from "@cogni/sandbox-connections/Connection"
import type * as ConnectionDecision from "@cogni/sandbox-connections/ConnectionDecision"
import { Schema } from "effect"

const now = new Date("2027-01-01T00:00:00.000Z")

const connection: Connection = {
  id: "connection-a",
  billingAccountId: "account-a",
  name: "github",
  server: "https://github.com",
  username: "x-access-token",
  means: { kind: "github_app", installationId: 77 },
  scope: {},
  lifetimeSecondsMax: 3600,
  createdAt: new Date("2026-01-01T00:00:00.000Z"),
  expiresAt: null,
  revokedAt: null
}

/** A permitted push to acme/app. */
export const permitted: ConnectionDecision.Snapshot = {
  authority: {
    grantId: "grant-1",
    billingAccountId: "account-a",
    rules: [{ connection: "git*", purposes: ["fetch", "push"], lifetimeSecondsMax: 600 }],
    repositories: ["https://github.com/acme/*"],
    tools: [],
    expiresAt: null,
    revokedAt: null
  },
  connections: [connection],
  request: {
    billingAccountId: "account-a",
    purpose: "push",
    repository: "https://github.com/acme/app.git",
    runId: "run-12345678"
  },
  now
}

/** Values are listed more than once so that most facts of a case allow its use. */
const Account = Schema.Literals(["account-a", "account-a", "account-a", "account-b"])
const Purpose = Schema.Literals(["fetch", "push", "tool_read"])
const Purposes = Schema.Array(Purpose).check(Schema.isMinLength(1), Schema.isMaxLength(3))
const listOf = <A extends string>(values: ReadonlyArray<A>) =>
  Schema.Array(Schema.Literals(values)).check(Schema.isMaxLength(3))
const repositoryPatterns = listOf([
  "**",
  "**",
  "https://github.com/**",
  "https://github.com/acme/*",
  "https://github.com/acme/app",
  "https://github.com/**",
  "https://gitlab.com/acme/app"
])
const toolPatterns = listOf(["*", "*", "github__*", "github__issues", "jira__x"])
/** Before, at and after now; as seconds. */
const End = Schema.NullOr(Schema.Literals([-1, 0, 1, 900, 900, 900]))
const Revoked = Schema.Literals([false, false, false, false, false, true])
const Names = Schema.Literals(["github", "gitlab", "host/github-token"])

const Drawn = Schema.Struct({
  account: Account,
  grantAccount: Account,
  grantEnd: End,
  grantRevoked: Revoked,
  rules: Schema.Array(
    Schema.Struct({
      connection: Schema.Literals(["**", "**", "*", "github", "git*", "host/*", "none"]),
      purposes: Purposes,
      repositories: Schema.optionalKey(repositoryPatterns),
      tools: Schema.optionalKey(toolPatterns),
      lifetimeSecondsMax: Schema.optionalKey(Schema.Literals([1, 60, 3600]))
    })
  ).check(Schema.isMinLength(1), Schema.isMaxLength(5)),
  repositories: repositoryPatterns,
  tools: toolPatterns,
  connections: Schema.Array(
    Schema.Struct({
      name: Names,
      account: Account,
      server: Schema.Literals(["https://github.com", "https://github.com", "https://gitlab.com"]),
      end: End,
      revoked: Revoked,
      created: Schema.Literals([0, 1, 2]),
      scope: Schema.Struct({
        purposes: Schema.optionalKey(Purposes),
        repositories: Schema.optionalKey(repositoryPatterns),
        tools: Schema.optionalKey(toolPatterns)
      })
    })
  ).check(Schema.isMaxLength(6)),
  asked: Schema.optionalKey(Names),
  purpose: Purpose,
  repository: Schema.optionalKey(
    Schema.Literals([
      "https://github.com/acme/app",
      "https://github.com/acme/app",
      "https://github.com/acme/app.git",
      "https://GitHub.com/acme/app/",
      "https://github.com/evil/app",
      "https://gitlab.com/acme/app",
      "/srv/acme/app"
    ])
  ),
  toolId: Schema.optionalKey(Schema.Literals(["github__issues", "jira__x"])),
  server: Schema.NullOr(Schema.Literals(["https://github.com", "https://gitlab.com"])),
  /** Most requests have the target that their purpose needs. */
  isWhole: Schema.Literals([true, true, true, true, false])
})

export { Drawn }

/** A hundred cases for one world. */
export const Hundred = Schema.Array(Drawn).check(Schema.isMinLength(100), Schema.isMaxLength(100))

type Drawn = typeof Drawn.Type

const timeOf = (at: Date, seconds: number | null) =>
  seconds === null ? null : new Date(at.getTime() + seconds * 1000)

const revokedOf = (at: Date, isRevoked: boolean) => (isRevoked ? new Date(at.getTime() - 1000) : null)

/** Returns the snapshot of a case at a time. */
export const snapshotOf = (drawn: Drawn, at: Date = now): ConnectionDecision.Snapshot => ({
  authority: {
    grantId: "grant-1",
    billingAccountId: drawn.grantAccount,
    rules: drawn.rules,
    repositories: drawn.repositories,
    tools: drawn.tools,
    expiresAt: timeOf(at, drawn.grantEnd),
    revokedAt: revokedOf(at, drawn.grantRevoked)
  },
  connections: drawn.connections.map(({ account, created, end, name, revoked, scope, server }, index) => ({
    ...connection,
    id: `connection-${index}`,
    billingAccountId: name.startsWith("host/") ? null : account,
    name,
    server,
    scope,
    createdAt: new Date(created),
    expiresAt: timeOf(at, end),
    revokedAt: revokedOf(at, revoked)
  })),
  request: requestOf(drawn),
  now: at
})

const requestOf = ({ account, asked, isWhole, purpose, repository, server, toolId }: Drawn) => {
  const isOfTool = purpose === "tool_read"
  const needed = {
    ...(isOfTool ? { toolId: toolId ?? "github__issues" } : {}),
    ...(isOfTool && asked !== undefined && repository === undefined
      ? {}
      : { repository: repository ?? "https://github.com/acme/app" })
  }
  const drawn = {
    ...(toolId === undefined ? {} : { toolId }),
    ...(repository === undefined ? {} : { repository })
  }
  return {
    billingAccountId: account,
    purpose,
    ...(asked === undefined ? {} : { connection: asked }),
    ...(server === null ? {} : { server }),
    ...(isWhole ? needed : drawn)
  }
}

/** A wildcard as a regular expression. */
const isGlob = (pattern: string, text: string) =>
  new RegExp(
    `^${pattern
      .split(/(\*+)/u)
      .map((part) =>
        part === "*" ? "[^/]*" : part.startsWith("**") ? ".*" : part.replaceAll(/[.+?^${}()|[\]\\]/gu, "\\$&")
      )
      .join("")}$`,
    "u"
  ).test(text)

/** The connection that a request may use, found by conditions that are listed one after another. */
export const permits = ({
  authority,
  connections,
  now: at,
  request
}: ConnectionDecision.Snapshot): Connection | undefined => {
  const { purpose, toolId } = request
  if (request.repository?.startsWith("/") === true) return undefined
  const repository = request.repository
    ?.replace(/^https:\/\/GitHub\.com/u, "https://github.com")
    .replace(/\/$/u, "")
  const isLive = (end: Date | null, revoked: Date | null) => revoked === null && (end === null || end > at)
  const isOpen = (lists: ReadonlyArray<ReadonlyArray<string> | undefined>, text: string | undefined) =>
    text === undefined || !lists.some((list) => list && !list.some((pattern) => isGlob(pattern, text)))
  const allowed = (one: Connection) =>
    isLive(one.expiresAt, one.revokedAt) &&
    authority.rules.some(
      (rule) =>
        isGlob(rule.connection, one.name) &&
        rule.purposes.includes(purpose) &&
        one.scope.purposes?.includes(purpose) !== false &&
        isOpen([authority.repositories, rule.repositories, one.scope.repositories], repository) &&
        (repository !== undefined || (rule.repositories ?? one.scope.repositories) === undefined) &&
        isOpen([authority.tools, rule.tools, one.scope.tools], toolId)
    )
  if (!isLive(authority.expiresAt, authority.revokedAt)) return undefined
  if (authority.billingAccountId !== request.billingAccountId) return undefined
  if (purpose === "tool_read" ? toolId === undefined : repository === undefined || toolId !== undefined)
    return undefined
  if (repository === undefined && request.connection === undefined) return undefined
  const candidates = connections
    .filter((one) => one.billingAccountId === null || one.billingAccountId === request.billingAccountId)
    .filter((one) => request.connection === undefined || one.name === request.connection)
    .filter((one) => repository === undefined || repository.startsWith(`${one.server}/`))
    .filter((one) => [undefined, one.server].includes(request.server))
  const found = candidates.filter(allowed)
  const ofAccount = found.filter((one) => one.billingAccountId !== null)
  const opened = candidates.filter(
    (one) =>
      one.billingAccountId !== null && authority.rules.some((rule) => isGlob(rule.connection, one.name))
  )
  const opensHost = (one: Connection) =>
    opened.length === 0 ||
    (opened.every(({ revokedAt }) => revokedAt !== null) &&
      authority.rules.some(
        (rule) => rule.connection.startsWith("host/") && isGlob(rule.connection, one.name)
      ))
  const [first] = (ofAccount.length > 0 ? ofAccount : found.filter(opensHost)).toSorted(
    (a, b) => Number(a.createdAt) - Number(b.createdAt) || a.id.localeCompare(b.id)
  )
  return first
}

/** Number of cases by outcome. */
export const outcomes = new Map<string, number>()

export const counted = (outcome: ConnectionDecision.Permit | string) => {
  const name = typeof outcome === "string" ? outcome : "permitted"
  outcomes.set(name, (outcomes.get(name) ?? 0) + 1)
}

export const Places = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 }))
