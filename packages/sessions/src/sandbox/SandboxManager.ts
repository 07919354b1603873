/**
 * Manages one container per session: creates it on first use, and ends it when it has been idle for too long.
 *
 * A session is in use while a scope that requested it is open; then it is idle. Concurrent requests for a session share
 * one container. Closing the layer destroys all containers.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { LlmIdentity } from "@cogni/sandbox-core/SpecFields"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { ContainerFailed } from "@cogni/sandbox-core/SandboxReason"
import { Context, Data, Effect, Layer, type Scope } from "effect"
import * as SessionTable from "../internal/SessionTable.ts"
import { DockerSandbox, type SandboxSettings, type SessionSandbox } from "./DockerSandbox.ts"
import * as SessionId from "./SessionId.ts"
import { SessionWorkspaces } from "./SessionWorkspaces.ts"

export interface ManagerOptions {
  readonly settings: SandboxSettings
  /** Adds names such as those of the sender and the session to the identity that pays for a sandbox (default none). */
  readonly identityOf?: ((identity: LlmIdentity, sessionId: string) => Effect.Effect<LlmIdentity>) | undefined
  /** Concurrent containers (default 20). */
  readonly sessionsMax?: number | undefined
  /** How long an idle session keeps its container (default 900). */
  readonly idleSeconds?: number | undefined
  /** At the maximum: refuse, or end the session that has been idle longest, if one is idle (default `refuse`). */
  readonly whenFull?: "refuse" | "evict_idle" | undefined
}

interface Identifying {
  readonly identityOf: NonNullable<ManagerOptions["identityOf"]>
}

export interface SandboxView {
  readonly sessionId: SessionId.SessionId
  /** Absent while its container is being created. */
  readonly runId?: RunId | undefined
  readonly startedAt: Date
  /** Open scopes that use the session. */
  readonly users: number
  /** Absent while the session is in use. */
  readonly idleSeconds?: number | undefined
}

/** The session gets no sandbox, and nothing was created for it. */
export class SessionRefused extends Data.TaggedError("SessionRefused")<{
  readonly sessionId: string
  readonly reason: "full" | "invalid_id" | "closing"
  readonly detail: string
  readonly remedy: string
}> {
  override get message(): string {
    return `the session ${JSON.stringify(this.sessionId.slice(0, 80))} gets no sandbox: ${this.detail}. ${this.remedy}`
  }
}

export class SandboxManager extends Context.Service<
  SandboxManager,
  {
    /**
     * Returns the session's sandbox, in use until the scope closes. Replaces a sandbox that has ended, and an idle one
     * whose settings differ from the current options.
     */
    readonly getOrCreate: (
      sessionId: string
    ) => Effect.Effect<SessionSandbox, SandboxError | SessionRefused, Scope.Scope>
    /** Ends a session's container, even if it is in use. Settles when it is removed. */
    readonly destroy: (sessionId: string) => Effect.Effect<void>
    readonly destroyAll: Effect.Effect<void>
    readonly list: Effect.Effect<ReadonlyArray<SandboxView>>
  }
>()("@cogni/sandbox-sessions/SandboxManager") {}

const defaults = { sessionsMax: 20, idleSeconds: 900, whenFull: "refuse" } as const

/** Options that are an Effect are evaluated at each use, so that changes apply. */
export const make = Effect.fnUntraced(function* (options: ManagerOptions | Effect.Effect<ManagerOptions>) {
  const current = Effect.map(Effect.isEffect(options) ? options : Effect.succeed(options), (given) => ({
    settings: given.settings,
    identityOf: given.identityOf ?? Effect.succeed,
    sessionsMax: given.sessionsMax ?? defaults.sessionsMax,
    idleSeconds: given.idleSeconds ?? defaults.idleSeconds,
    whenFull: given.whenFull ?? defaults.whenFull
  }))
  const sandboxes = yield* DockerSandbox
  const workspaces = yield* SessionWorkspaces
  const table = yield* SessionTable.make<SessionSandbox, SandboxError>({
    idleSeconds: Effect.map(current, ({ idleSeconds }) => idleSeconds),
    // A sandbox that ends by itself, or is ended from outside, frees its slot at once.
    endOf: ({ ended }) => ended
  })

  const create = Effect.fnUntraced(function* (
    sessionId: SessionId.SessionId,
    { identityOf, settings: { llm, ...settings } }: Pick<ManagerOptions, "settings"> & Identifying
  ) {
    const workspace = yield* workspaces
      .of(sessionId)
      .pipe(Effect.mapError((reason) => new SandboxError({ reason })))
    const identity = llm && (yield* identityOf({ attempt: 0, ...llm.identity }, sessionId))
    return yield* sandboxes.create({
      sessionId,
      settings:
        llm === undefined || identity === undefined ? settings : { ...settings, llm: { ...llm, identity } },
      workspace
    })
  })

  const getOrCreate = Effect.fn("SandboxManager.getOrCreate")(function* (asked: string) {
    const sessionId = yield* SessionId.decode(asked).pipe(Effect.mapError(() => refusal.invalid(asked)))
    const bounds = yield* current
    const { settings } = bounds
    return yield* table.seat(sessionId, bounds).pipe(
      Effect.flatMap((seat) => seat.hold({ fingerprint: settings, make: create(sessionId, bounds) })),
      Effect.catchTag(
        "SessionRefusal",
        ({ refusal: reason }): Effect.Effect<never, SandboxError | SessionRefused> =>
          reason === "ended"
            ? Effect.fail(destroyed)
            : Effect.fail(reason === "full" ? refusal.full(sessionId, bounds) : refusal.closing(sessionId))
      )
    )
  })

  return SandboxManager.of({
    getOrCreate,
    destroy: table.end,
    destroyAll: table.endAll,
    list: Effect.map(table.list, (views) =>
      views.map(({ idleSeconds, key, startedMs, users, value }) => ({
        sessionId: key as SessionId.SessionId,
        runId: value?.runId,
        startedAt: new Date(startedMs),
        users,
        idleSeconds: users === 0 ? idleSeconds : undefined
      }))
    )
  })
})

export const layer = (
  options: ManagerOptions | Effect.Effect<ManagerOptions>
): Layer.Layer<SandboxManager, never, DockerSandbox | SessionWorkspaces> =>
  Layer.effect(SandboxManager, make(options))

const destroyed = new SandboxError({
  reason: new ContainerFailed({
    operation: "create",
    detail: "the session was ended while its sandbox was being made",
    remedy: "Request it again"
  })
})

const refusal = {
  full: (sessionId: string, { sessionsMax, whenFull }: SessionTable.Bounds) =>
    new SessionRefused({
      sessionId,
      reason: "full",
      detail: `there are ${sessionsMax} sessions already${whenFull === "refuse" ? "" : ", and all of them are in use"}`,
      remedy: "Try again when one has ended, or raise sessions_max"
    }),
  invalid: (sessionId: string) =>
    new SessionRefused({
      sessionId,
      reason: "invalid_id",
      detail: "an ID has 1 to 512 characters and no control characters",
      remedy: "Use another session ID"
    }),
  closing: (sessionId: string) =>
    new SessionRefused({
      sessionId,
      reason: "closing",
      detail: "this process is shutting down",
      remedy: "Use another process, or try again when this one has restarted"
    })
}
