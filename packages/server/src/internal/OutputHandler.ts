/**
 * Answers with the output of a run, whole or one range of its bytes, with its answer, and with its commits.
 *
 * All are the agent's, so they are only ever plain text. The output of a run under way comes from its journal.
 */
import { answerAnnotation, patchAnnotation } from "@cogni/sandbox-core/RunFacts"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { type JournalEntry, RunJournal } from "@cogni/sandbox-core/RunJournal"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { outputOf } from "@cogni/sandbox-core/RecordForms"
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import * as Problem from "./Problem.ts"
import type { RunHandlers } from "./RunHandlers.ts"

/** Maximum number of bytes in the answer of a range. */
const rangeBytesMax = 8 * 1024 * 1024

/** Size of one reading of a journal: a longer one would hold up the runs of this process. */
const pieceBytesMax = 1024 * 1024

export type Channel = "stdout" | "stderr"

/** A part of a text: the first byte, and the one after the last. */
export type Range = { readonly from: number; readonly to: number } | "whole" | "unsatisfiable"

/** Returns the asked range of bytes. Other units, and several ranges, are ignored, as the standard allows. */
const rangeOf = (header: string | undefined, bytes: number): Range => {
  const [matched, first = "", last = ""] = /^bytes=(\d{0,15})-(\d{0,15})$/u.exec(header?.trim() ?? "") ?? []
  if (matched === undefined || (first === "" && last === "")) return "whole"
  if (first === "") {
    const count = Math.min(Number(last), bytes)
    return count === 0 ? "unsatisfiable" : { from: bytes - count, to: bytes }
  }
  const from = Number(first)
  if (last !== "" && Number(last) < from) return "whole"
  if (from >= bytes) return "unsatisfiable"
  const to = last === "" ? bytes : Math.min(Number(last) + 1, bytes)
  return { from, to: Math.min(to, from + rangeBytesMax) }
}

const contentType = "text/plain; charset=utf-8"

/** Headers of text of an agent. A browser must neither guess its type nor keep it. */
export const plainHeaders = { "cache-control": "private, no-store", "x-content-type-options": "nosniff" }

/** Text of an agent. */
export const plain = (
  body: Uint8Array | string,
  headers: Readonly<Record<string, string>> = {},
  status = 200
) => {
  const options = {
    status,
    contentType,
    headers: { ...plainHeaders, ...headers }
  }
  return typeof body === "string"
    ? HttpServerResponse.text(body, options)
    : HttpServerResponse.uint8Array(body, options)
}

const textIn = (entries: ReadonlyArray<JournalEntry>, channel: Channel): string =>
  entries
    .map((entry) => (entry.type === "output.written" && entry.channel === channel ? entry.text : ""))
    .join("")

export const make = Effect.fnUntraced(function* ({ lookUp }: RunHandlers) {
  const journal = yield* RunJournal
  const store = yield* RunStore

  /** The output so far. The size of a journal is limited. */
  const journaled = Effect.fnUntraced(function* (runId: RunId, channel: Channel) {
    let text = ""
    let after = 0
    while (true) {
      const page = yield* journal.read({ runId, after, bytesMax: pieceBytesMax })
      const last = page?.entries.at(-1)?.seq
      if (page === undefined || last === undefined) return text
      text += textIn(page.entries, channel)
      after = last
    }
  })

  const output = Effect.fn("SandboxServer.readOutput")(function* (
    id: string,
    channel: Channel,
    asked: string | undefined
  ) {
    const { record, runId } = yield* lookUp(id)
    const text = yield* Effect.gen(function* () {
      const whole = record && outputOf(record) && (yield* store.get(runId))
      const output = whole && outputOf(whole)
      return output?.[channel].text ?? (yield* journaled(runId, channel))
    }).pipe(Effect.catch(Problem.storeUnavailable))
    const bytes = new TextEncoder().encode(text)
    const range = rangeOf(asked, bytes.byteLength)
    const headers = { "accept-ranges": "bytes" }
    if (range === "whole") return plain(bytes, headers)
    if (range === "unsatisfiable")
      return HttpServerResponse.setHeader(
        Problem.toResponse(
          Problem.make(
            "range_not_satisfiable",
            "RangeBeyondEnd",
            `the output has ${bytes.byteLength} bytes, and the range begins after the last one`
          )
        ),
        "content-range",
        `bytes */${bytes.byteLength}`
      )
    const { from, to } = range
    const contentRange = `bytes ${from}-${to - 1}/${bytes.byteLength}`
    return plain(bytes.subarray(from, to), { ...headers, "content-range": contentRange }, 206)
  })

  /** A text that was added to the record of the run. */
  const kept = Effect.fnUntraced(function* (id: string, name: string, missing: typeof Problem.NotFound.Type) {
    const { runId } = yield* lookUp(id)
    const record = yield* store.get(runId).pipe(Effect.catch(Problem.storeUnavailable))
    const text = record?.annotations?.[name]
    return typeof text === "string" ? plain(text) : yield* Effect.fail(missing)
  })

  return {
    output,
    answer: (id: string) => Effect.withSpan(kept(id, answerAnnotation, noAnswer), "SandboxServer.readAnswer"),
    patch: (id: string) => Effect.withSpan(kept(id, patchAnnotation, noPatch), "SandboxServer.readPatch")
  }
})

const noAnswer = Problem.make(
  "not_found",
  "AnswerNotKept",
  "no answer of this run is stored: it has not ended, its agent answered nothing, or it was not started by a server"
)

const noPatch = Problem.make(
  "not_found",
  "PatchNotKept",
  "no commits of this run are stored: it made none, or they were not pushed by this server"
)
