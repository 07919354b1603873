/**
 * Port that stores connections, their encrypted secrets, and the audit of their uses.
 *
 * A store never sees a secret in plain text: `SecretBox` encrypts it before. Secrets are read by ID, only after a
 * decision, and never with a list. Entries of the audit are not changed. The oldest ones are deleted, by age and by
 * number for each account (`ConnectionLimits`).
 */
import { issuesOf } from "@cogni/sandbox-core/SchemaIssues"
import { Clock, Context, Effect, Layer, Ref, Schema } from "effect"
import { type Connection, ConnectionInput } from "./Connection.ts"
import { ConnectionExists, ConnectionRefused, type ConnectionStoreUnavailable } from "./ConnectionReason.ts"
import { hostPrefix, lifetimeSecondsMax, usernameOf } from "./ConnectionFields.ts"
import {
  connectionsListedMax,
  connectionsMax,
  refusedEvents,
  removedMax,
  tooMany,
  UsesKept,
  type UsesKeptShape
} from "./ConnectionLimits.ts"
import { type ConnectionUse, type ConnectionUseQuery, listedMax } from "./ConnectionUse.ts"

export class ConnectionStore extends Context.Service<
  ConnectionStore,
  {
    /** Adds a connection of {@link draft}, with its secret. */
    readonly add: (
      connection: Connection,
      secret: string | undefined
    ) => Effect.Effect<void, ConnectionExists | ConnectionRefused | ConnectionStoreUnavailable>
    /**
     * Connections of one account, at most 200: live ones first, then newest first. Only the newest removed connections
     * are kept. Fails if this version cannot read a live one: without it, another could be used in its place.
     */
    readonly list: (
      billingAccountId: string
    ) => Effect.Effect<ReadonlyArray<Connection>, ConnectionStoreUnavailable>
    /**
     * Revokes the live connection with this name, deletes its secret and ends its leases. Returns `false` if it does
     * not exist.
     */
    readonly revoke: (
      billingAccountId: string,
      name: string
    ) => Effect.Effect<boolean, ConnectionStoreUnavailable>
    /** Returns the secret of a live connection. */
    readonly secret: (connectionId: string) => Effect.Effect<string | undefined, ConnectionStoreUnavailable>
    /**
     * Live connections of all accounts that have a secret, in order of their IDs, after this one. At most 200, for
     * operations on all of them. One that this version cannot read has only its ID.
     */
    readonly withSecret: (
      afterId: string | undefined
    ) => Effect.Effect<
      ReadonlyArray<{ readonly id: string; readonly connection: Connection | undefined }>,
      ConnectionStoreUnavailable
    >
    /**
     * Claims exclusive access to the secret of a live connection, until a time. `false` if another claim holds it, or
     * it does not exist.
     */
    readonly claim: (claim: {
      readonly connectionId: string
      /** Unique to this claim. */
      readonly claimId: string
      readonly now: Date
      readonly until: Date
    }) => Effect.Effect<boolean, ConnectionStoreUnavailable>
    /**
     * Ends a claim, and replaces the secret if one is given. `false` if the claim does not hold any more, unless this
     * secret is stored already.
     */
    readonly settle: (
      claim: { readonly connectionId: string; readonly claimId: string },
      secret: string | undefined
    ) => Effect.Effect<boolean, ConnectionStoreUnavailable>
    /** Appends an entry to the audit, and now and then deletes entries that are not kept. */
    readonly record: (use: ConnectionUse) => Effect.Effect<void, ConnectionStoreUnavailable>
    /** Entries of the audit, newest first. */
    readonly uses: (
      query: ConnectionUseQuery
    ) => Effect.Effect<ReadonlyArray<ConnectionUse>, ConnectionStoreUnavailable>
    /**
     * Whether the connection exists, and neither it nor the lease was revoked. Connections of the host always exist.
     */
    readonly isLive: (lease: {
      readonly leaseId: string
      readonly connectionId: string
    }) => Effect.Effect<boolean, ConnectionStoreUnavailable>
  }
>()("@cogni/sandbox-connections/ConnectionStore") {}

const checkInput = Schema.decodeUnknownEffect(Schema.toType(ConnectionInput), {
  errors: "all",
  onExcessProperty: "error"
})

/** Creates a connection, dated now, with a new ID. */
export const draft = Effect.fnUntraced(function* (
  input: ConnectionInput
): Effect.fn.Return<Connection, ConnectionRefused> {
  yield* Effect.mapError(checkInput(input), (error) => new ConnectionRefused({ issues: issuesOf(error) }))
  return {
    id: `connection-${crypto.randomUUID()}`,
    billingAccountId: input.billingAccountId,
    name: input.name,
    server: input.server,
    username: input.username ?? usernameOf(input.means.kind),
    means: input.means,
    scope: input.scope ?? {},
    lifetimeSecondsMax: input.lifetimeSecondsMax ?? lifetimeSecondsMax,
    createdAt: new Date(yield* Clock.currentTimeMillis),
    expiresAt: input.expiresAt,
    revokedAt: null
  }
})

interface Row {
  readonly connection: Connection
  readonly secret: string | undefined
  readonly claim: { readonly claimId: string; readonly until: Date } | undefined
}

interface State {
  readonly rows: ReadonlyMap<string, Row>
  readonly uses: ReadonlyArray<ConnectionUse>
  readonly revokedLeases: ReadonlySet<string>
}

const isLiveRow = ({ connection }: Row): boolean => connection.revokedAt === null

const makeMemory = Effect.gen(function* () {
  const kept = yield* UsesKept
  const state = yield* Ref.make<State>({ rows: new Map(), uses: [], revokedLeases: new Set() })
  return ConnectionStore.of({ ...connectionsIn(state), ...secretsIn(state), ...usesIn(state, kept) })
})

type Service = ConnectionStore["Service"]

const put = (all: State, row: Row): State => ({
  ...all,
  rows: new Map(all.rows).set(row.connection.id, row)
})

/** Forgets the removed connections of an account that a list would not show. */
const withoutOldest = (all: State, account: string | null): State => {
  const removed = [...all.rows.values()].filter(
    (row) => !isLiveRow(row) && row.connection.billingAccountId === account
  )
  const forgotten = new Set(removed.slice(0, -removedMax).map(({ connection }) => connection.id))
  return { ...all, rows: new Map([...all.rows].filter(([id]) => !forgotten.has(id))) }
}

const rowsIn = (state: Ref.Ref<State>) => Effect.map(Ref.get(state), ({ rows }) => rows)

const connectionsIn = (state: Ref.Ref<State>): Pick<Service, "add" | "list" | "revoke"> => ({
  add: (connection, secret) =>
    Effect.flatten(
      Ref.modify(
        state,
        (all): readonly [Effect.Effect<void, ConnectionExists | ConnectionRefused>, State] => {
          const { billingAccountId, name } = connection
          const own = [...all.rows.values()].filter(
            (row) => isLiveRow(row) && row.connection.billingAccountId === billingAccountId
          )
          if (own.some((row) => row.connection.name === name)) {
            return [Effect.fail(new ConnectionExists({ connection: name })), all]
          }
          if (own.length >= connectionsMax) return [Effect.fail(tooMany), all]
          return [
            Effect.void,
            put(withoutOldest(all, billingAccountId), { connection, secret, claim: undefined })
          ]
        }
      )
    ),
  list: (billingAccountId) =>
    Effect.map(rowsIn(state), (all) => {
      const own = [...all.values()]
        .filter(({ connection }) => connection.billingAccountId === billingAccountId)
        .toReversed()
      return [...own.filter(isLiveRow), ...own.filter((row) => !isLiveRow(row))]
        .map(({ connection }) => connection)
        .slice(0, connectionsListedMax)
    }),
  revoke: Effect.fn("ConnectionStore.revoke")(function* (billingAccountId, name) {
    const revokedAt = new Date(yield* Clock.currentTimeMillis)
    return yield* Ref.modify(state, (all) => {
      const row = [...all.rows.values()].find(
        (one) =>
          isLiveRow(one) &&
          one.connection.billingAccountId === billingAccountId &&
          one.connection.name === name
      )
      if (row === undefined) return [false, all]
      const connection = { ...row.connection, revokedAt }
      return [true, put(all, { connection, secret: undefined, claim: undefined })]
    })
  })
})

const secretsIn = (state: Ref.Ref<State>): Pick<Service, "claim" | "secret" | "settle" | "withSecret"> => ({
  secret: (connectionId) => Effect.map(rowsIn(state), (all) => all.get(connectionId)?.secret),
  withSecret: (afterId = "") =>
    Effect.map(rowsIn(state), (all) =>
      [...all.values()]
        .filter((row) => row.secret !== undefined && row.connection.id > afterId)
        .map(({ connection }) => ({ id: connection.id, connection }))
        .toSorted((a, b) => (a.id < b.id ? -1 : 1))
        .slice(0, connectionsListedMax)
    ),
  claim: ({ claimId, connectionId, now, until }) =>
    Ref.modify(state, (all) => {
      const row = all.rows.get(connectionId)
      if (row === undefined || !isLiveRow(row)) return [false, all]
      if (row.claim !== undefined && row.claim.until.getTime() > now.getTime()) return [false, all]
      return [true, put(all, { ...row, claim: { claimId, until } })]
    }),
  settle: ({ claimId, connectionId }, secret) =>
    Ref.modify(state, (all) => {
      const row = all.rows.get(connectionId)
      if (secret !== undefined && row?.secret === secret) return [true, all]
      if (row?.claim?.claimId !== claimId) return [false, all]
      return [true, put(all, { ...row, claim: undefined, secret: secret ?? row.secret })]
    })
})

const usesIn = (state: Ref.Ref<State>, kept: UsesKeptShape): Pick<Service, "isLive" | "record" | "uses"> => ({
  record: (use) =>
    Effect.flatMap(Clock.currentTimeMillis, (now) =>
      Ref.update(state, (all) => ({
        ...all,
        uses: keptOf([...all.uses, use], use.billingAccountId, kept, now),
        revokedLeases:
          use.event === "revoked" ? new Set(all.revokedLeases).add(use.leaseId) : all.revokedLeases
      }))
    ),
  uses: (query) => Effect.map(Ref.get(state), ({ uses }) => select(uses, query)),
  isLive: ({ connectionId, leaseId }) =>
    Effect.map(Ref.get(state), (all) => {
      const row = all.rows.get(connectionId)
      const isThere = row === undefined ? connectionId.startsWith(hostPrefix) : isLiveRow(row)
      return isThere && !all.revokedLeases.has(leaseId)
    })
})

/** The entries to keep: not too old, and for each account the newest. */
const keptOf = (
  uses: ReadonlyArray<ConnectionUse>,
  account: string,
  { daysMax, entriesMax, refusedMax }: UsesKeptShape,
  now: number
): ReadonlyArray<ConnectionUse> => {
  const since = now - daysMax * 24 * 60 * 60 * 1000
  const isOwn = (use: ConnectionUse) => use.billingAccountId === account
  const isRefused = ({ event }: ConnectionUse) => refusedEvents.includes(event)
  const own = uses.filter(isOwn)
  const newest = new Set([
    ...own.filter((use) => !isRefused(use)).slice(-entriesMax),
    ...own.filter(isRefused).slice(-refusedMax)
  ])
  return uses.filter((use) => use.at.getTime() >= since && (newest.has(use) || !isOwn(use)))
}

const select = (
  uses: ReadonlyArray<ConnectionUse>,
  { billingAccountId, connectionId, leaseId, limit = listedMax, runId }: ConnectionUseQuery
): ReadonlyArray<ConnectionUse> =>
  uses
    .filter(
      (use) =>
        use.billingAccountId === billingAccountId &&
        (connectionId === undefined || use.connectionId === connectionId) &&
        (leaseId === undefined || use.leaseId === leaseId) &&
        (runId === undefined || use.runId === runId)
    )
    .toReversed()
    .slice(0, Math.min(limit, listedMax))

/** Keeps everything in this process, and loses it with it. */
export const layerMemory: Layer.Layer<ConnectionStore> = Layer.effect(ConnectionStore, makeMemory)
