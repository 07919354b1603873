/**
 * Handlers of an account's grants and connections, for grants with the right to see them.
 *
 * Every list is one account's. No token and no credential is read for them.
 */
import type { Connection } from "@cogni/sandbox-connections/Connection"
import { ConnectionStore } from "@cogni/sandbox-connections/ConnectionStore"
import type { ConnectionUse } from "@cogni/sandbox-connections/ConnectionUse"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { Clock, Effect, Option, Struct } from "effect"
import type { ConnectionView, GrantView, UseView } from "./AccessApi.ts"
import { CurrentGrant } from "./Authentication.ts"
import * as Problem from "./Problem.ts"

interface PageAsked {
  readonly after?: string | undefined
  readonly limit?: number | undefined
}

/** Entries in a page, unless the query has a limit. */
const pageDefault = 20

/** Reads of the last runs of grants at a time. */
const readsAtOnce = 4

/** Returns the account of the caller, if its grant may see who uses it. */
const seen = Effect.gen(function* () {
  const { billingAccountId, id, permissions } = yield* CurrentGrant
  return permissions.seeGrants === true
    ? billingAccountId
    : yield* Effect.fail(
        Problem.make(
          "authz_denied",
          "AccessNotGranted",
          `grant ${id} may not list grants and connections. Ask the operator for a grant with --see-grants`
        )
      )
})

const unknownCursor = Problem.make(
  "invalid_request",
  "CursorInvalid",
  "after is not a cursor of this list, or its entry is gone. Read the list from its beginning"
)

/** Returns a page of a bounded list, after the entry with this cursor. */
const pageOf = <A>(
  all: ReadonlyArray<A>,
  cursorOf: (one: A) => string,
  { after, limit = pageDefault }: PageAsked
) => {
  const from = after === undefined ? 0 : all.findIndex((one) => cursorOf(one) === after) + 1
  if (after !== undefined && from === 0) return Effect.fail(unknownCursor)
  const found = all.slice(from, from + limit)
  const last = found.at(-1)
  return Effect.succeed({
    found,
    next: from + limit < all.length && last !== undefined ? cursorOf(last) : undefined
  })
}

const stateOf = (one: Pick<ExecutionGrant, "expiresAt" | "revokedAt">, nowMillis: number) =>
  one.revokedAt !== null
    ? "revoked"
    : one.expiresAt !== null && one.expiresAt.getTime() <= nowMillis
      ? "expired"
      : "active"

/** Times as JSON has them. */
const timesOf = (one: Pick<ExecutionGrant, "createdAt" | "expiresAt" | "revokedAt">) => ({
  createdAt: one.createdAt.toISOString(),
  expiresAt: one.expiresAt?.toISOString() ?? null,
  revokedAt: one.revokedAt?.toISOString() ?? null
})

const grantView = (grant: ExecutionGrant, nowMillis: number, lastRunAt: string | undefined): GrantView => ({
  id: grant.id,
  userId: grant.userId,
  scopes: grant.scopes,
  allowSandbox: grant.allowSandbox,
  permissions: grant.permissions,
  ...timesOf(grant),
  state: stateOf(grant, nowMillis),
  lastRunAt
})

/** Field by field, so that a field that a later version adds is not told unseen. */
const connectionView = (
  connection: Connection,
  nowMillis: number,
  lastUsedAt: string | undefined
): ConnectionView => ({
  id: connection.id,
  name: connection.name,
  kind: connection.means.kind,
  server: connection.server,
  username: connection.username,
  scope: connection.scope,
  lifetimeSecondsMax: connection.lifetimeSecondsMax,
  ...timesOf(connection),
  state: stateOf(connection, nowMillis),
  lastUsedAt
})

const useView = (use: ConnectionUse): UseView => ({
  ...Struct.omit(use, ["billingAccountId"]),
  at: use.at.toISOString(),
  expiresAt: use.expiresAt?.toISOString() ?? null
})

/** An entry of the audit has no ID. A lease has each event once. */
const useCursor = ({ event, leaseId }: ConnectionUse): string => `${leaseId} ${event}`

export const make = Effect.gen(function* () {
  const grants = yield* GrantStore
  const runs = yield* RunStore
  const connections = yield* Effect.serviceOption(ConnectionStore)

  const kept = Option.match(connections, {
    onNone: () =>
      Effect.fail(Problem.make("not_found", "ConnectionsNotKept", "this server has no store of connections")),
    onSome: (store) => Effect.succeed(store)
  })

  const lastRunOf = (billingAccountId: string, grantId: string) =>
    runs
      .search({ filter: { billingAccountId, grantId }, limit: 1 })
      .pipe(Effect.map(({ records }) => records[0]?.startedAt))

  return {
    grants: Effect.fn("SandboxServer.listGrants")(function* ({ after, limit = pageDefault }: PageAsked) {
      const billingAccountId = yield* seen
      const now = yield* Clock.currentTimeMillis
      return yield* Effect.gen(function* () {
        const before = after === undefined ? undefined : yield* grants.find(after)
        if (after !== undefined && before?.billingAccountId !== billingAccountId)
          return yield* Effect.fail(unknownCursor)
        // One more shows whether there is a next page.
        const found = yield* grants.ofAccount({ billingAccountId, after, limit: limit + 1 })
        const shown = found.slice(0, limit)
        const views = yield* Effect.forEach(
          shown,
          (grant) =>
            Effect.map(lastRunOf(billingAccountId, grant.id), (lastRunAt) =>
              grantView(grant, now, lastRunAt)
            ),
          { concurrency: readsAtOnce }
        )
        return { grants: views, next: found.length > limit ? shown.at(-1)?.id : undefined }
      }).pipe(
        Effect.catchTags({
          GrantStoreUnavailable: Problem.storeUnavailable,
          HostFailed: Problem.storeUnavailable,
          StoreUnavailable: Problem.storeUnavailable
        })
      )
    }),

    connections: Effect.fn("SandboxServer.listConnections")(function* (asked: PageAsked) {
      const billingAccountId = yield* seen
      const store = yield* kept
      const now = yield* Clock.currentTimeMillis
      const [all, uses] = yield* Effect.all([
        store.list(billingAccountId),
        store.uses({ billingAccountId })
      ]).pipe(Effect.catch(Problem.storeUnavailable))
      // The newest are first, and the last one that is set stays.
      const lastUsedAt = new Map(
        uses.toReversed().map(({ at, connectionId }) => [connectionId ?? "", at.toISOString()])
      )
      const { found, next } = yield* pageOf(all, ({ id }) => id, asked)
      return { connections: found.map((one) => connectionView(one, now, lastUsedAt.get(one.id))), next }
    }),

    uses: Effect.fn("SandboxServer.listConnectionUses")(function* (connectionId: string, asked: PageAsked) {
      const billingAccountId = yield* seen
      const store = yield* kept
      const all = yield* store
        .uses({ billingAccountId, connectionId })
        .pipe(Effect.catch(Problem.storeUnavailable))
      const { found, next } = yield* pageOf(all, useCursor, asked)
      return { uses: found.map(useView), next }
    })
  }
})
