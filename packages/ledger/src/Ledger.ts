/**
 * Port to the ledger: what every run cost, call by call.
 *
 * Append-only. A run is opened before it can use a model, and settled with an entry for each of its calls. Any
 * operation may be repeated, by any process and in any order, without charging a call twice: an entry is stored only if
 * none has its key and revision. A failed operation either took effect as a whole or not at all.
 */
import { Context, Effect, Layer, Option, Ref, Stream } from "effect"
import type { LedgerEntry } from "./LedgerEntry.ts"
import type { Filter, Page, PageRequest, Sums, SumsRequest } from "./LedgerQuery.ts"
import { type KeyedRun, keyOf, type LedgerRun, type RunKey, type SettledRun } from "./LedgerRun.ts"
import { check, isSameRun, notACursor } from "./LedgerCheck.ts"
import { type LedgerRefused, LedgerRunInUse, LedgerRunUnknown, LedgerUnavailable } from "./LedgerError.ts"
import * as LedgerTable from "./internal/LedgerTable.ts"
import { openRunsMax, type Appended, type Settlement } from "./LedgerRun.ts"

export class Ledger extends Context.Service<
  Ledger,
  {
    /**
     * Opens a run. Until it is settled, `openRuns` returns it, so that a recovery finds it. Opening the same run again
     * changes nothing and succeeds, also if it was settled. The same key with any other content is refused.
     */
    readonly open: (run: LedgerRun) => Effect.Effect<void, LedgerRunInUse | LedgerRefused | LedgerUnavailable>
    /**
     * Stores the entries that the ledger lacks: all of them or, if it fails, none. An entry whose key and revision are
     * taken is returned and changes nothing. For corrections. At most `appendedMax` entries.
     */
    readonly append: (
      entries: ReadonlyArray<LedgerEntry>
    ) => Effect.Effect<Appended, LedgerRefused | LedgerUnavailable>
    /**
     * Appends the entries of a run and closes it, both or neither. The first `closedAt` stays. A run that is closed
     * already can be settled again, and gets the entries that it lacks. If the newest entry of a call says that the
     * call was still open (`LedgerEntry.reasons.callOpen`) and the given one knows its end, the given one becomes the
     * next revision. So a settlement from an older reading of the audit never replaces one from a newer reading.
     */
    readonly settle: (
      settlement: Settlement
    ) => Effect.Effect<Appended, LedgerRunUnknown | LedgerRefused | LedgerUnavailable>
    /** Runs of this machine that are not settled, the oldest first, at most {@link openRunsMax}. */
    readonly openRuns: (host: string) => Effect.Effect<ReadonlyArray<LedgerRun>, LedgerUnavailable>
    /**
     * Settled runs with a key of their own whose rows are to be checked as a whole, and were due before a time: the
     * first ones to be due, at most {@link openRunsMax}. A key is due when its run is settled.
     */
    readonly keysDue: (
      dueBefore: string
    ) => Effect.Effect<ReadonlyArray<KeyedRun>, LedgerRefused | LedgerUnavailable>
    /** Records that the rows of a run's key were checked. They are due again at a time, or never. */
    readonly keyChecked: (
      run: RunKey,
      dueAgainAt?: string | undefined
    ) => Effect.Effect<void, LedgerRefused | LedgerUnavailable>
    /** All attempts of the given runs, in order of their numbers. */
    readonly attempts: (
      ...runIds: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<SettledRun>, LedgerUnavailable>
    /**
     * A page of entries, the oldest first. Entries that are appended meanwhile may be in later pages or not; no other
     * entry is skipped or repeated.
     */
    readonly list: (
      filter: Filter,
      page?: PageRequest
    ) => Effect.Effect<Page, LedgerRefused | LedgerUnavailable>
    /** Exact sums of the newest revisions, by group. */
    readonly sums: (request: SumsRequest) => Effect.Effect<Sums, LedgerRefused | LedgerUnavailable>
  }
>()("@cogni/sandbox-ledger/Ledger") {}

/** Streams all entries of a filter, page by page. */
export const entries = (
  filter: Filter
): Stream.Stream<LedgerEntry, LedgerRefused | LedgerUnavailable, Ledger> =>
  Stream.paginate(undefined as string | undefined, (after) =>
    Ledger.use((ledger) =>
      Effect.map(
        ledger.list(filter, after === undefined ? {} : { after }),
        ({ entries: found, next }) =>
          [found, next === undefined ? Option.none<string>() : Option.some(next)] as const
      )
    )
  )

/** Failure of an operation of a ledger in memory: before it takes effect, or only its answer is lost. */
export type MemoryFault = "before" | "answer_lost" | undefined

interface MemoryOptions {
  /** Called for each operation. Default: nothing goes wrong. */
  readonly fault?: ((operation: keyof Ledger["Service"]) => MemoryFault) | undefined
}

/** Creates a ledger in memory. It is gone with the process, so nothing in it can be recovered after a crash. */
export const makeMemory = Effect.fnUntraced(function* (options: MemoryOptions = {}) {
  const table = yield* Ref.make(LedgerTable.empty)
  const answered = <A, E>(operation: keyof Ledger["Service"], work: Effect.Effect<A, E>) =>
    Effect.suspend(() => {
      const fault = options.fault?.(operation)
      if (fault === "before") return Effect.fail(gone)
      return fault === "answer_lost" ? Effect.andThen(work, Effect.fail(gone)) : work
    })
  const change = (how: typeof LedgerTable.append, given: ReadonlyArray<LedgerEntry>) =>
    Ref.modify(table, (before) => {
      const { table: after, ...appended } = how(before, given)
      return [appended, after]
    })

  return Ledger.of({
    open: Effect.fn("Ledger.open")(function* (run) {
      yield* check.run(run)
      const opened = Ref.modify(table, (before): readonly [boolean, LedgerTable.LedgerTable] => {
        const found = before.runs.get(keyOf(run))
        if (found !== undefined) return [isSameRun(found, run), before]
        return [true, { ...before, runs: new Map(before.runs).set(keyOf(run), run) }]
      })
      if (!(yield* answered("open", opened))) return yield* new LedgerRunInUse(keyFields(run))
    }),
    append: Effect.fn("Ledger.append")(function* (given) {
      return yield* answered("append", change(LedgerTable.append, yield* check.entries(given)))
    }),
    settle: Effect.fn("Ledger.settle")(function* ({ closedAt, entries: given, run, runKeyHash }) {
      const valid = yield* check.entries(given)
      yield* check.instant(closedAt)
      if (runKeyHash !== undefined) yield* check.keyHash(runKeyHash)
      return yield* answered(
        "settle",
        Effect.gen(function* () {
          const found = (yield* Ref.get(table)).runs.get(keyOf(run))
          if (found === undefined) return yield* new LedgerRunUnknown(keyFields(run))
          yield* Ref.update(table, (before) => LedgerTable.closed(before, found, { closedAt, runKeyHash }))
          return yield* change(LedgerTable.settle, valid)
        })
      )
    }),
    openRuns: (host) =>
      answered(
        "openRuns",
        Effect.map(Ref.get(table), ({ runs }) =>
          [...runs.values()]
            .filter((run) => run.host === host && run.closedAt === undefined)
            .toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
            .toSorted((a, b) => a.openedAt.localeCompare(b.openedAt))
            .slice(0, openRunsMax)
        )
      ),
    keysDue: Effect.fn("Ledger.keysDue")(function* (dueBefore) {
      yield* check.instant(dueBefore)
      return yield* answered(
        "keysDue",
        Effect.map(Ref.get(table), (now) => LedgerTable.keysDue(now, dueBefore).slice(0, openRunsMax))
      )
    }),
    keyChecked: Effect.fn("Ledger.keyChecked")(function* (run, dueAgainAt) {
      if (dueAgainAt !== undefined) yield* check.instant(dueAgainAt)
      yield* answered(
        "keyChecked",
        Ref.update(table, (before) => LedgerTable.keyChecked(before, run, dueAgainAt))
      )
    }),
    attempts: (...runIds) =>
      answered(
        "attempts",
        Effect.map(Ref.get(table), ({ runs }) =>
          [...runs.values()]
            .filter(({ runId }) => runIds.includes(runId))
            .toSorted((a, b) => a.attempt - b.attempt)
        )
      ),
    list: Effect.fn("Ledger.list")(function* (filter, page = {}) {
      yield* check.filter(filter)
      yield* check.page(page)
      const found = yield* answered(
        "list",
        Effect.map(Ref.get(table), (now) => LedgerTable.list(now, filter, page))
      )
      return found ?? (yield* notACursor)
    }),
    sums: Effect.fn("Ledger.sums")(function* (request) {
      yield* check.sums(request)
      return yield* answered(
        "sums",
        Effect.map(Ref.get(table), (now) => LedgerTable.sums(now, request))
      )
    })
  })
})

export const layerMemory = (options?: MemoryOptions): Layer.Layer<Ledger> =>
  Layer.effect(Ledger, makeMemory(options))

const keyFields = ({ attempt, runId }: RunKey) => ({ attempt, runId })

const gone = new LedgerUnavailable({
  detail: "in memory did not answer",
  remedy: "Try again"
})
