/**
 * Port to the keeper of a host: the server that runs sandboxes, and outlives the worker beside it.
 *
 * A keeper acts for one grant. Starting a run again is safe: a run ID is never used twice.
 */
import type { RunRequest } from "@cogni/sandbox-graph-provider/graphs/RunRequest"
import { Context, Effect, Result, Schema, Stream, SubscriptionRef } from "effect"
import type { RunSpend } from "./DurableRun.ts"

/** The keeper did not answer, or its answer was not understood. The request may have been carried out. */
export class KeeperUnreachable extends Schema.TaggedError<KeeperUnreachable>()("KeeperUnreachable", {
  detail: Schema.String
}) {
  override get message(): string {
    return `the keeper of this host did not answer: ${this.detail}. Start cogni-sandbox serve, or correct its URL`
  }
}

/** The keeper refused a request, and did nothing. */
export class KeeperRefused extends Schema.TaggedError<KeeperRefused>()("KeeperRefused", {
  status: Schema.Int,
  /** The specific reason, such as `GrantExpired`. */
  reason: Schema.String,
  detail: Schema.String,
  retrySeconds: Schema.optionalKey(Schema.Int)
}) {
  override get message(): string {
    return `the keeper of this host refused (${this.status} ${this.reason}): ${this.detail}`
  }

  /** True if another host may accept the run, or this one later. */
  get isForNow(): boolean {
    return this.isOfGrant || this.status === 503
  }

  /** True if only this grant, or its account, is at a limit. Other grants may be accepted. */
  get isOfGrant(): boolean {
    return this.status === 429
  }
}

export type KeeperError = KeeperUnreachable | KeeperRefused

/** The grant for which a keeper acts. */
export interface KeeperGrant {
  readonly id: string
  readonly billingAccountId: string
  readonly allowSandbox: boolean
  readonly mayWrite: boolean
}

/** A run as its keeper knows it. */
export interface KeeperRun {
  readonly runId: string
  /** `starting`, or the state of its record. */
  readonly status: string
  readonly reason?: string | undefined
  readonly exitCode?: number | undefined
  readonly spend: RunSpend
  /** False while its cost may still change, because its audit was not read yet. */
  readonly isSettled: boolean
  /** How its commits were delivered. Absent: there is nothing to deliver, or it is not delivered yet. */
  readonly delivery?: string | undefined
  readonly branch?: string | undefined
  readonly pullRequestUrl?: string | undefined
}

/** The number of an event of a run, and its type. Its content is untrusted, and is not read. */
export interface KeeperEvent {
  readonly id: number
  readonly type: string
}

export interface StartedTask {
  readonly runId: string
  readonly attempt: number
  readonly request: RunRequest
}

export class HostKeeper extends Context.Service<
  HostKeeper,
  {
    readonly grant: Effect.Effect<KeeperGrant, KeeperError>
    /** Graphs that this keeper offers. */
    readonly graphIds: Effect.Effect<ReadonlyArray<string>, KeeperError>
    /** The host of this keeper. */
    readonly host: Effect.Effect<
      {
        /** ID that no other host has. Absent: the keeper has none, so two hosts of one name are not detected. */
        readonly hostId?: string | undefined
        /** Graphs that it offers and cannot run now, because their image is missing. */
        readonly missingGraphIds: ReadonlyArray<string>
      },
      KeeperError
    >
    /** Starts a run, or finds that it was started before: then it returns `repeated`. */
    readonly start: (task: StartedTask) => Effect.Effect<"started" | "repeated", KeeperError>
    /** Returns what is known of a run of the grant's account, or `undefined`. */
    readonly describe: (runId: string) => Effect.Effect<KeeperRun | undefined, KeeperError>
    /** Events after a number. The stream may end before the run does: ask again with the last number. */
    readonly follow: (runId: string, after: number) => Stream.Stream<KeeperEvent, KeeperError>
    /** Asks for the end of a run. A run that is over already is no error. */
    readonly cancel: (runId: string) => Effect.Effect<void, KeeperError>
    /**
     * Delivers kept commits again. Returns how they are delivered now, or `undefined` if none are kept here.
     * `underWay`: the run has not ended. Fails, for now, if the origin may take them later.
     */
    readonly deliver: (runId: string) => Effect.Effect<string | undefined, KeeperError>
  }
>()("@cogni/sandbox-temporal/HostKeeper") {}

export type Keeper = HostKeeper["Service"]

const over = new Set(["succeeded", "failed", "closed", "interrupted", "abandoned"])

/** Returns whether a run has ended. */
export const isOver = ({ status }: Pick<KeeperRun, "status">): boolean => over.has(status)

/** A keeper in memory, with control of its runs. */
export interface MemoryKeeper {
  readonly keeper: Keeper
  /** IDs of the runs that were started, without repetitions, the oldest first. */
  readonly started: Effect.Effect<ReadonlyArray<string>>
  /** Changes a run, such as to end it. */
  readonly change: (runId: string, change: Partial<KeeperRun>) => Effect.Effect<void>
  /** While it is set, every request fails with it. */
  readonly fault: (error: KeeperError | undefined) => Effect.Effect<void>
}

/** A keeper in memory. Its runs begin at once, and end when a test ends or cancels them. */
export const makeMemory = Effect.fnUntraced(function* (
  grant: KeeperGrant,
  graphIds: ReadonlyArray<string>,
  host: Effect.Success<Keeper["host"]> = { missingGraphIds: [] }
): Effect.fn.Return<MemoryKeeper> {
  const runs = yield* SubscriptionRef.make<ReadonlyMap<string, KeeperRun>>(new Map())
  const faults = yield* SubscriptionRef.make<KeeperError | undefined>(undefined)
  const faulty = Effect.flatMap(SubscriptionRef.get(faults), (error) =>
    error === undefined ? Effect.void : Effect.fail(error)
  )
  const find = (runId: string) => Effect.map(SubscriptionRef.get(runs), (all) => all.get(runId))
  const change = (runId: string, its: Partial<KeeperRun>) =>
    SubscriptionRef.update(runs, (all) => {
      const before = all.get(runId)
      return before === undefined ? all : new Map(all).set(runId, { ...before, ...its })
    })
  const keeper: Keeper = {
    grant: Effect.as(faulty, grant),
    graphIds: Effect.as(faulty, graphIds),
    host: Effect.as(faulty, host),
    start: ({ runId }) =>
      Effect.andThen(
        faulty,
        SubscriptionRef.modify(runs, (all) => {
          if (all.has(runId)) return ["repeated" as const, all]
          return [
            "started" as const,
            new Map(all).set(runId, {
              runId,
              status: "running",
              spend: { calls: 0, isFinal: true },
              isSettled: true
            })
          ]
        })
      ),
    describe: (runId) => Effect.andThen(faulty, find(runId)),
    follow: (runId, after) =>
      SubscriptionRef.changes(runs).pipe(
        Stream.map((all) => all.get(runId)),
        Stream.takeUntil((run) => run === undefined || isOver(run)),
        Stream.filterMap((run) =>
          run === undefined ? Result.fail(undefined) : Result.succeed(eventOf(run))
        ),
        Stream.filter(({ id }) => id > after),
        Stream.changes
      ),
    cancel: (runId) =>
      Effect.andThen(
        faulty,
        Effect.flatMap(find(runId), (run) =>
          run === undefined || isOver(run) ? Effect.void : change(runId, { status: "interrupted" })
        )
      ),
    deliver: (runId) =>
      Effect.andThen(
        faulty,
        Effect.flatMap(find(runId), (run) => {
          if (run === undefined || run.delivery === undefined) return Effect.succeed(undefined)
          return Effect.as(change(runId, { delivery: "pushed" }), "pushed")
        })
      )
  }
  return {
    keeper,
    started: Effect.map(SubscriptionRef.get(runs), (all) => [...all.keys()]),
    change,
    fault: (error) => SubscriptionRef.set(faults, error)
  }
})

const eventOf = (run: KeeperRun): KeeperEvent =>
  isOver(run) ? { id: 2, type: "run.ended" } : { id: 1, type: "run.started" }
