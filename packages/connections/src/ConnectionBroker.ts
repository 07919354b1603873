/**
 * Port that resolves a credential for one use.
 *
 *     request ─► grant ∩ request ─► source ─► comparison with the permit ─► audit ─► lease
 *                     │ denied                      │ mismatch
 *                     ▼ no credential is looked at  ▼ the credential is dropped
 *
 * A lease is valid until its scope closes. It also ends at its expiry, when it, its connection or its grant is revoked,
 * and when that cannot be verified for too long. Every request and every end of a lease is an entry of the audit.
 */
import { Clock, Context, Duration, Effect, Exit, Layer, type Redacted, Schema, type Scope } from "effect"
import type { Connection } from "./Connection.ts"
import { ConnectionRequest, decide, type Permit } from "./ConnectionDecision.ts"
import { ConnectionError } from "./ConnectionError.ts"
import { ConnectionDenied, type ConnectionStoreUnavailable, SourceRefused } from "./ConnectionReason.ts"
import { ConnectionStore } from "./ConnectionStore.ts"
import type { ConnectionUse } from "./ConnectionUse.ts"
import { ConnectionUser } from "./ConnectionUser.ts"
import type { CredentialSource } from "./CredentialSource.ts"
import { accept, type Accepted } from "./internal/Acceptance.ts"
import type { Denial } from "./internal/Denial.ts"
import { unverifiedSecondsMax, watchSeconds } from "./internal/LeaseLimits.ts"
import * as Issuing from "./internal/Issuing.ts"
import * as SecretAccess from "./internal/SecretAccess.ts"
import * as UsePace from "./internal/UsePace.ts"
import { LeaseEnded } from "./internal/UseReasons.ts"
import { SecretBox } from "./SecretBox.ts"

/** A credential for one use. */
export interface Lease {
  readonly id: string
  readonly permit: Permit
  readonly username: string
  readonly secret: Redacted.Redacted<string>
  readonly expiresAt: Date
  /** Fails when the lease ends before its scope. Race it with the use. */
  readonly ended: Effect.Effect<never, ConnectionError>
}

/** A use, without the account and the run, which {@link ConnectionUser} provides. */
type ConnectionUseRequest = Omit<ConnectionRequest, "billingAccountId" | "runId">

export class ConnectionBroker extends Context.Service<
  ConnectionBroker,
  {
    /** Resolves a credential on behalf of the current {@link ConnectionUser}, until the scope closes. */
    readonly lease: (request: ConnectionUseRequest) => Effect.Effect<Lease, ConnectionError, Scope.Scope>
    /**
     * Ends a lease, also one of another process, within seconds. Returns `false` if the account has no
     * such lease.
     */
    readonly revokeLease: (
      billingAccountId: string,
      leaseId: string
    ) => Effect.Effect<boolean, ConnectionStoreUnavailable>
  }
>()("@cogni/sandbox-connections/ConnectionBroker") {}

interface ConnectionBrokerOptions {
  readonly sources: ReadonlyArray<CredentialSource>
  /** Connections of the host, which it offers to all accounts. Default: none. */
  readonly hostConnections?: ReadonlyArray<Connection> | undefined
  /** The user of operations that have none, such as the operator of a command. Default: none. */
  readonly user?: ConnectionUser | undefined
  /** Uses per minute in this process. Default: 60 of one run, and 600 of one account. */
  readonly usesPerMinute?: UsePace.UsesPerMinute | undefined
}

const make = Effect.fnUntraced(function* (options: ConnectionBrokerOptions) {
  const store = yield* ConnectionStore
  const box = yield* SecretBox
  const sources = new Map(options.sources.map((source) => [source.kind, source]))
  const { hostConnections = [] } = options
  const counted = UsePace.make(options.usesPerMinute ?? UsePace.usesPerMinute)

  const lease = Effect.fnUntraced(function* (request: ConnectionRequest, user: ConnectionUser) {
    const leaseId = `lease-${crypto.randomUUID()}`
    const recordOf = (grantId: string) => recorder(store, { leaseId, request, grantId })
    const authority = yield* Effect.tapError(user.authority, (error) =>
      error._tag === "ConnectionDenied"
        ? bestEffort(recordOf(error.grantId)({ event: "denied", reason: error.reason }))
        : Effect.void
    )
    const record = recordOf(authority.grantId)
    const own = yield* store.list(request.billingAccountId)
    const connections = [...own, ...hostConnections]
    const permit = yield* Effect.fromResult(
      decide({ authority, connections, request, now: yield* currentDate })
    ).pipe(Effect.tapError(({ reason }) => bestEffort(record({ event: "denied", reason }))))
    const connection = connections.find(({ id }) => id === permit.connectionId)!
    const use = { permit, connection, ...SecretAccess.make(store, box, connection) }

    const resolve = Effect.gen(function* () {
      const source = sources.get(connection.means.kind)
      if (source === undefined) return yield* notConfigured(connection)
      const issued = yield* source.issue(use)
      const accepted = yield* Effect.flatMap(currentDate, (now) =>
        Effect.fromResult(accept(source, use, issued, now))
      ).pipe(Effect.onError(() => Issuing.dropped(issued)))
      return { accepted, issued }
    })

    const { accepted } = yield* Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const found = yield* Issuing.taken(resolve, connection, restore).pipe(
          Effect.onExit((exit) =>
            Exit.isSuccess(exit)
              ? Effect.void
              : bestEffort(record({ event: "failed", reason: Issuing.reasonOf(exit.cause), permit }))
          )
        )
        yield* Effect.addFinalizer(() =>
          Effect.andThen(Issuing.dropped(found.issued), bestEffort(record({ event: "ended", permit })))
        )
        // Without an entry in the audit, the credential is not handed out.
        yield* record({ event: "issued", permit, expiresAt: found.accepted.expiresAt })
        return found
      })
    )
    return leaseOf({ leaseId, permit, accepted, verify: verify(store, user, connection, request, leaseId) })
  })

  return ConnectionBroker.of({
    lease: Effect.fn("ConnectionBroker.lease")(
      function* (use: ConnectionUseRequest) {
        const user = (yield* ConnectionUser) ?? options.user
        if (user === undefined) return yield* denied(use, "no_user")
        const { billingAccountId, runId } = user
        const request = { ...use, billingAccountId, ...(runId === undefined ? {} : { runId }) }
        if (!isRequest(request)) return yield* denied(use, "invalid_request")
        yield* counted(user)
        return yield* lease(request, user)
      },
      Effect.mapError((reason: ConnectionError["reason"]) => new ConnectionError({ reason }))
    ),
    revokeLease: Effect.fn("ConnectionBroker.revokeLease")(function* (billingAccountId, leaseId) {
      const issued = (yield* store.uses({ billingAccountId, leaseId })).find(
        ({ event }) => event === "issued"
      )
      if (issued === undefined) return false
      yield* store.record({ ...issued, event: "revoked", at: yield* currentDate })
      return true
    })
  })
})

export const layer = (
  options: ConnectionBrokerOptions
): Layer.Layer<ConnectionBroker, never, ConnectionStore | SecretBox> =>
  Layer.effect(ConnectionBroker, make(options))

const currentDate = Effect.map(Clock.currentTimeMillis, (millis) => new Date(millis))

/** Whether a request has only values that the audit can store. */
const isRequest = Schema.is(Schema.toType(ConnectionRequest))

/** Denies a use without a user, or with values that the audit cannot store. */
const denied = ({ purpose }: ConnectionUseRequest, reason: Denial) => {
  const error = new ConnectionDenied({ grantId: "none", purpose, reason })
  return Effect.andThen(
    Effect.logWarning(`a use of a connection is not in the audit: ${error.message}`),
    Effect.fail(error)
  )
}

const notConfigured = ({ means, name }: Connection) =>
  new SourceRefused({
    connection: name,
    detail: `this host issues no credentials of the kind ${means.kind}`,
    remedy: "Have the operator configure it, or use another connection"
  })

/** Writes an entry whose failure changes nothing for the caller: no credential was handed out, or its use is over. */
const bestEffort = (entry: Effect.Effect<void, ConnectionStoreUnavailable>): Effect.Effect<void> =>
  entry.pipe(Effect.catch(({ message }) => Effect.logWarning(`an entry is missing in the audit: ${message}`)))

interface Entry {
  readonly event: ConnectionUse["event"]
  readonly reason?: string
  readonly permit?: Permit
  readonly expiresAt?: Date
}

/** Writes entries about one request. */
const recorder =
  (
    store: ConnectionStore["Service"],
    {
      grantId,
      leaseId,
      request
    }: { readonly leaseId: string; readonly request: ConnectionRequest; readonly grantId: string }
  ) =>
  ({ event, expiresAt, permit, reason }: Entry): Effect.Effect<void, ConnectionStoreUnavailable> =>
    Effect.flatMap(currentDate, (at) =>
      store.record({
        leaseId,
        at,
        event,
        billingAccountId: request.billingAccountId,
        grantId,
        runId: request.runId ?? null,
        connectionId: permit?.connectionId ?? null,
        purpose: request.purpose,
        repository: permit?.repository ?? request.repository ?? null,
        toolId: request.toolId ?? null,
        target: request.target ?? null,
        reason: reason ?? null,
        expiresAt: expiresAt ?? null
      })
    )

/** Decides again, with the grant as it is now. */
const verify = (
  store: ConnectionStore["Service"],
  user: ConnectionUser,
  connection: Connection,
  request: ConnectionRequest,
  leaseId: string
): Effect.Effect<boolean, ConnectionDenied | ConnectionStoreUnavailable> =>
  Effect.gen(function* () {
    if (!(yield* store.isLive({ leaseId, connectionId: connection.id }))) return false
    const authority = yield* user.authority
    yield* Effect.fromResult(
      decide({ authority, connections: [connection], request, now: yield* currentDate })
    )
    return true
  })

const leaseOf = ({
  accepted: { expiresAt, secret, username },
  leaseId,
  permit,
  verify
}: {
  readonly leaseId: string
  readonly permit: Permit
  readonly accepted: Accepted
  readonly verify: Effect.Effect<boolean, ConnectionDenied | ConnectionStoreUnavailable>
}): Lease => {
  const end = (why: LeaseEnded["why"]) =>
    Effect.fail(new ConnectionError({ reason: new LeaseEnded({ connection: permit.connectionName, why }) }))
  const ended = Effect.gen(function* () {
    let verifiedAt = yield* Clock.currentTimeMillis
    const step = Effect.gen(function* () {
      const before = yield* Clock.currentTimeMillis
      const left = expiresAt.getTime() - before
      if (left <= 0) return yield* end("expired")
      yield* Effect.sleep(Math.min(left, watchSeconds * 1000))
      const isLive = yield* verify.pipe(
        Effect.catchTags({
          ConnectionDenied: () => Effect.succeed(false),
          ConnectionStoreUnavailable: () => Effect.succeed(undefined)
        }),
        Effect.timeoutOrElse({
          duration: Duration.seconds(unverifiedSecondsMax),
          orElse: () => Effect.succeed(undefined)
        })
      )
      const now = yield* Clock.currentTimeMillis
      if (now >= expiresAt.getTime()) return yield* end("expired")
      if (isLive === false) return yield* end("revoked")
      if (isLive === true) verifiedAt = now
      else if (now - verifiedAt >= unverifiedSecondsMax * 1000) return yield* end("unverified")
    })
    return yield* Effect.forever(step)
  })
  return { id: leaseId, permit, username, secret, expiresAt, ended }
}
