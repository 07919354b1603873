/** Handlers of the audit of a run: its verdict, its entries, its calls while the run is under way, and kept bodies. */
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import type { AuditLine } from "@cogni/sandbox-proxy/AuditEntry"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import * as RunAudits from "@cogni/sandbox-proxy/RunAudits"
import { Effect, Option, type Schema } from "effect"
import * as AuditedCalls from "./AuditedCalls.ts"
import * as AuditPlaces from "./AuditPlaces.ts"
import type { AuditPage, AuditVerdict } from "./AuditView.ts"
import * as LiveAudits from "./LiveAudits.ts"
import * as OutputHandler from "./OutputHandler.ts"
import * as Problem from "./Problem.ts"
import * as Readings from "./Readings.ts"
import type { RunHandlers } from "./RunHandlers.ts"

/** Entries of a page, unless the query names another number. */
const listedDefault = 50

/** Longest text in an entry. Agents choose paths, methods and names. */
const textCharsMax = 4000

const notFound = Problem.make(
  "not_found",
  "AuditNotFound",
  "this server has no audit of the run: it had no egress, its proxy keeps none, or another host has it"
)

const unreadable = Problem.make(
  "unavailable",
  "AuditUnreadable",
  "the audit of the run cannot be read. The operator can find the reason in the log"
)

const tooMany = Problem.make(
  "unavailable",
  "TooManyAudits",
  `this account has ${Readings.perAccountMax} readings of audits under way. Try again when they have ended`
)

/** Fields that describe the network or the keys of the host. Its operator has `audit show`. */
const hostOnly: ReadonlySet<string> = new Set(["alias", "carrier", "detail", "keyHash", "upstream"])

/** Cuts long texts, replaces a kept body by its length, and omits what only concerns the host. */
const shown = (line: AuditLine): Readonly<Record<string, Schema.Json>> => {
  const cut = (value: unknown): Schema.Json =>
    typeof value === "string"
      ? value.slice(0, textCharsMax)
      : Array.isArray(value)
        ? value.slice(0, 200).map(cut)
        : typeof value === "object" && value !== null
          ? Object.fromEntries(Object.entries(value).map(([name, part]) => [name, cut(part)]))
          : (value as Schema.Json)
  return Object.fromEntries(
    Object.entries(line)
      .filter(([name]) => !hostOnly.has(name) || line.type === "request.refused")
      .map(([name, value]) =>
        name === "body" && typeof value === "string" ? ["bodyChars", value.length] : [name, cut(value)]
      )
  )
}

/** `elsewhere`: the audit was not read. */
const verdictOf = (
  { llm, runId }: Omit<Run, "outcome">,
  verdict: AuditLog.Verdict | "elsewhere"
): AuditVerdict => {
  if (verdict !== "elsewhere" && verdict._tag === "Whole")
    return { runId, ok: true, head: verdict.head, closed: verdict.closed, headKnown: verdict.headKnown }
  const {
    problem,
    sound
  }: Pick<Extract<AuditLog.Verdict, { _tag: "Broken" }>, "problem" | "sound"> = verdict === "elsewhere"
    ? { problem: notOfThisRun, sound: AuditLog.genesis(runId) }
    : verdict
  return {
    runId,
    ok: false,
    head: sound,
    closed: false,
    headKnown: llm?.auditHead !== undefined,
    problem: { ...problem, detail: problem.detail.slice(0, textCharsMax) }
  }
}

type Run = Pick<RunRecord, "llm" | "outcome" | "runId">

const notOfThisRun: AuditLog.Problem = {
  kind: "not_of_this_run",
  line: 1,
  offset: 0,
  detail: "its path is not a file in the run's own directory, so it was not read"
}

export const make = Effect.fnUntraced(function* ({ lookUp }: RunHandlers) {
  const audits = yield* Effect.serviceOption(RunAudits.RunAudits)
  const takeTurn = yield* Readings.make(tooMany)

  /** Reads an audit, as one of a few at a time. */
  const limited = <A>(reading: Effect.Effect<A, RunAudits.AuditUnreadable>) =>
    reading.pipe(
      Effect.catch((error) => Effect.andThen(Effect.logWarning(error.message), Effect.fail(unreadable))),
      takeTurn
    )

  const readings = Option.map(audits, ({ readOn }) => {
    const on = (...asked: Parameters<typeof readOn>) => limited(readOn(...asked))
    return { live: LiveAudits.make(on), places: AuditPlaces.make(on) }
  })

  /** Reads on in the audit of a run under way. `undefined`: the run is over, or this host has no such audit. */
  const readLive = Effect.fnUntraced(function* (record: Run) {
    if (Option.isNone(readings)) return undefined
    const { live } = readings.value
    if (record.outcome.status !== "running") return live.forget(record.runId)
    return yield* live.read(record.runId)
  })

  /** Reads a whole audit through a verifier. `undefined`: this host has none. */
  const read = Effect.fnUntraced(function* (record: Run, onLine: (seen: AuditLog.Seen) => void) {
    if (Option.isNone(audits)) return undefined
    const verifier = AuditLog.makeVerifier(RunAudits.expectedOf(record), onLine)
    const found = yield* limited(audits.value.read(record.runId, { push: verifier.push }))
    return found === "absent" ? undefined : { found, verifier }
  })

  const readWhole = (record: RunRecord) =>
    Effect.map(
      read(record, () => undefined),
      (reading) =>
        reading?.found === "elsewhere" ? reading.found : reading && { verdict: reading.verifier.end() }
    )

  const recorded = Effect.fnUntraced(function* (id: string) {
    const { record } = yield* lookUp(id)
    return record ?? (yield* Effect.fail(notFound))
  })

  return {
    /** Returns the calls in the audit, or `undefined` if this host has no audit of the run. */
    calls: Effect.fnUntraced(function* (record: RunRecord) {
      const reached = yield* readLive(record)
      if (reached !== undefined) return typeof reached === "string" ? undefined : reached.calls
      const calls = AuditedCalls.make()
      const reading = yield* read(record, ({ line }) => {
        if (line !== undefined) calls.add(line)
      })
      return reading?.found === "read" ? calls : undefined
    }),

    verify: Effect.fn("SandboxServer.verifyAudit")(function* (id: string) {
      const record = yield* recorded(id)
      const reached = yield* readLive(record)
      const reading = reached ?? (yield* readWhole(record))
      // A head proves that there was an audit. Another host may have it.
      if (reading === undefined || reading === "absent") return yield* Effect.fail(notFound)
      return verdictOf(record, reading === "elsewhere" ? reading : reading.verdict)
    }),

    entries: Effect.fn("SandboxServer.listAudit")(function* (
      id: string,
      query: { readonly after?: string; readonly limit?: number }
    ) {
      const record = yield* recorded(id)
      const after = yield* Problem.indexOf(query.after)
      const limit = query.limit ?? listedDefault
      if (Option.isNone(readings)) return yield* Effect.fail(notFound)
      const found: Array<AuditPage["entries"][number]> = []
      // One more shows whether there is a next page.
      const isEnough = () => found.length > limit
      const reached = yield* readings.value.places.lines(
        record,
        after,
        ({ line, number, sound }) => {
          if (!isEnough())
            found.push({ number, sound, ...(line === undefined ? {} : { entry: shown(line) }) })
        },
        isEnough
      )
      if (reached !== "read") return yield* Effect.fail(notFound)
      const entries = found.slice(0, limit)
      return {
        entries,
        ...(found.length > limit ? { next: String(entries.at(-1)!.number) } : {})
      } satisfies AuditPage
    }),

    body: Effect.fn("SandboxServer.readCallBody")(function* (
      id: string,
      callId: string,
      part: "request" | "answer"
    ) {
      const record = yield* recorded(id)
      const type = part === "request" ? "call.started" : "call.ended"
      const body = Option.isNone(readings)
        ? undefined
        : yield* readings.value.places.body(record, type, callId)
      return body === undefined
        ? yield* Effect.fail(
            Problem.make(
              "not_found",
              "BodyNotKept",
              "no such body is kept here. A run keeps bodies only with --audit-bodies, on the host that ran it"
            )
          )
        : OutputHandler.plain(body)
    })
  }
})

export type AuditHandlers = Effect.Success<ReturnType<typeof make>>
