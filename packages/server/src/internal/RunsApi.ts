/**
 * Endpoints of the runs of an account, for a page or a script that shows them.
 *
 * Text that an agent wrote is bounded, and is `text/plain` or a string in JSON, never markup.
 */
import { JournalEntry } from "@cogni/sandbox-core/RunJournal"
import * as RunRecording from "@cogni/sandbox-core/RunRecording"
import { pageRunsMax, RunFilter } from "@cogni/sandbox-core/RunSearch"
import { DeliveryRecord } from "@cogni/sandbox-git-relay/DeliveryRecord"
import { Schema, Struct } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware, HttpApiSchema, OpenApi } from "effect/http-api"
import { Authentication } from "./Authentication.ts"
import { AuditPage, AuditVerdict } from "./AuditView.ts"
import { CallPage, ToolCalls } from "./CallView.ts"
import * as Problem from "./Problem.ts"
import { RunStatus, RunView } from "./RunView.ts"

/** Reports an invalid path, query or header in the same format as every other problem. */
export class Readable extends HttpApiMiddleware.Service<Readable>()("@cogni/sandbox-server/Readable", {
  error: Problem.Invalid
}) {}

/** Maximum number of runs in a page, and of calls or audit entries. */
export const listedMax = 100

export const RunList = Schema.Struct({
  runs: Schema.Array(RunView),
  /** Value of `after` for the next page. Absent in the last one. */
  next: Schema.optional(Schema.String)
}).annotate({ identifier: "RunList" })

export const Cancelling = Schema.Struct({ runId: Schema.String, status: Schema.Literal("cancelling") })
  .annotate({ identifier: "Cancelling" })
  .pipe(HttpApiSchema.status(202))

/** The outcome of a repeated delivery. */
export const Delivered = Schema.Struct({
  runId: Schema.String,
  relay: DeliveryRecord.mapFields(Struct.omit(["keptAt", "message"])),
  /** Why the commits were not delivered again. */
  problem: Schema.optional(
    Schema.Struct({
      reason: Schema.String,
      message: Schema.String,
      /** Whether another attempt may succeed without any change. */
      isRetryable: Schema.optional(Schema.Boolean)
    })
  )
}).annotate({ identifier: "Delivered" })

const runParams = { id: Schema.String.annotate({ description: "the ID of the run" }) }

const limited = (maximum: number) =>
  Schema.optionalKey(Schema.NumberFromString.check(Schema.isInt(), Schema.isBetween({ minimum: 1, maximum })))

const cursor = Schema.optionalKey(
  Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(500)).annotate({
    description: "`next` of the page before"
  })
)

const textMax = (maximum: number) => Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(maximum))

const { from, grantId, model, repository, to } = RunFilter.fields

const usd = Schema.optionalKey(Schema.FiniteFromString.check(Schema.isGreaterThanOrEqualTo(0)))

/** Query of a list. All given conditions must hold. */
export const listQuery = {
  status: Schema.optionalKey(
    textMax(200).annotate({ description: `comma-separated: ${RunStatus.literals.join(", ")}` })
  ),
  reason: Schema.optionalKey(textMax(1000).annotate({ description: "comma-separated, such as OomKilled" })),
  agent: Schema.optionalKey(textMax(200).annotate({ description: "ID of an agent" })),
  graph: Schema.optionalKey(textMax(200).annotate({ description: "ID of a graph, such as sandbox:codex" })),
  model,
  account: Schema.optionalKey(
    textMax(200).annotate({ description: "an account; any but the grant's own has no runs here" })
  ),
  grant: grantId,
  session: Schema.optionalKey(textMax(200).annotate({ description: "`threadId` of the runs' requests" })),
  repository,
  from,
  to,
  minCostUsd: usd,
  maxCostUsd: usd,
  after: cursor,
  limit: limited(Math.min(listedMax, pageRunsMax))
}

const ListQuery = Schema.Struct(listQuery)

export type ListQuery = typeof ListQuery.Type

/** Query of the next page of any other list. */
export const pageQuery = { after: cursor, limit: limited(listedMax) }

const plainText = (description: string) =>
  Schema.String.annotate({ description }).pipe(
    HttpApiSchema.asText({ contentType: "text/plain; charset=utf-8" })
  )

const missing = [Problem.NotFound, Problem.Unavailable] as const

const outputEndpoint = <const Channel extends "stdout" | "stderr">(channel: Channel) =>
  HttpApiEndpoint.get(channel, `/runs/:id/${channel}`, {
    params: runParams,
    headers: { range: Schema.optionalKey(textMax(200)) },
    success: plainText("UTF-8, in which invalid bytes of the agent are U+FFFD"),
    error: [...missing, Problem.RangeUnsatisfiable]
  }).annotateMerge(
    OpenApi.annotations({
      summary: `Read the ${channel} of a run`,
      description:
        "Answers one range of bytes (`Range: bytes=0-1023`, `bytes=-500`) with 206. While the run is under way, it " +
        "answers what was written so far. At most 8 MiB in one answer of a range."
    })
  )

const bodyEndpoint = <const Name extends "callRequest" | "callAnswer">(
  name: Name,
  part: "request" | "answer"
) =>
  HttpApiEndpoint.get(name, `/runs/:id/calls/:callId/${part}`, {
    params: { ...runParams, callId: Schema.String },
    success: plainText("JSON or server-sent events, without the host's secrets"),
    error: missing
  }).annotateMerge(
    OpenApi.annotations({
      summary: `Read the ${part} of a model call`,
      description: "Only of a run whose audit keeps bodies, on the host that ran it."
    })
  )

export class Runs extends HttpApiGroup.make("runs")
  .add(
    HttpApiEndpoint.get("list", "/runs", {
      query: listQuery,
      success: RunList,
      error: Problem.Unavailable
    }).annotateMerge(
      OpenApi.annotations({
        summary: "List the runs of the grant's account, newest first",
        description:
          "A run in a list has no limits, peaks, budget, suspicions or posture. `next` continues the list. A run that " +
          "starts meanwhile is in no later page, and no other run is skipped or repeated. Runs without a record, which " +
          "start or wait for a host, come first. One that gets its record meanwhile is repeated."
      })
    ),
    HttpApiEndpoint.get("get", "/runs/:id", {
      params: runParams,
      success: RunView,
      error: missing
    }).annotateMerge(OpenApi.annotations({ summary: "Get a run" })),
    HttpApiEndpoint.delete("cancel", "/runs/:id", {
      params: runParams,
      success: Cancelling,
      error: [...missing, Problem.Conflict]
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Cancel a run that is under way in this server",
        description: "Its event stream still reports how it ended, and its record is stored."
      })
    ),
    HttpApiEndpoint.get("events", "/runs/:id/events", {
      params: runParams,
      query: {
        after: Schema.optionalKey(
          Schema.NumberFromString.check(Schema.isInt(), Schema.isGreaterThanOrEqualTo(0))
        )
      },
      headers: { "last-event-id": Schema.optionalKey(textMax(20)) },
      success: HttpApiSchema.StreamSse({ data: JournalEntry }),
      error: [...missing, Problem.Conflict]
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Follow the events of a run",
        description:
          "Server-sent events, each a JournalEntry with `seq` as its ID, from the run's beginning or after " +
          "`Last-Event-ID` (or `after`). Ends after `run.ended`, and every ten minutes: reconnect with the last ID. " +
          "Any number of readers may follow, and leave: the run does not notice."
      })
    ),
    outputEndpoint("stdout"),
    outputEndpoint("stderr"),
    HttpApiEndpoint.get("recording", "/runs/:id/recording", {
      params: runParams,
      success: Schema.String.annotate({
        description: "newline-delimited JSON: a header, then `[interval, code, data]` for each event"
      }).pipe(HttpApiSchema.asText({ contentType: RunRecording.mediaType })),
      error: [...missing, Problem.Conflict]
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Read the recording of a run",
        description:
          "An asciicast v3 file: stdout and stderr with their times, markers for the stages of the run, and its exit " +
          "code. At most 32 MiB. While the run is under way, the recording until now. Only on the host that ran the run."
      })
    ),
    HttpApiEndpoint.get("calls", "/runs/:id/calls", {
      params: runParams,
      query: pageQuery,
      success: CallPage,
      error: missing
    }).annotateMerge(
      OpenApi.annotations({
        summary: "List the model calls of a run, with tokens and cost",
        description: "The oldest first. While the run is under way, from its audit on this host."
      })
    ),
    bodyEndpoint("callRequest", "request"),
    bodyEndpoint("callAnswer", "answer"),
    HttpApiEndpoint.get("tools", "/runs/:id/tools", {
      params: runParams,
      success: ToolCalls,
      error: missing
    }).annotateMerge(
      OpenApi.annotations({
        summary: "List the tool calls of a run",
        description:
          "Calls of host tools are from the audit. Calls of the agent's own tools are what the agent reported; nothing " +
          "confirms them."
      })
    ),
    HttpApiEndpoint.get("audit", "/runs/:id/audit", {
      params: runParams,
      success: AuditVerdict,
      error: missing
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Verify the audit of a run",
        description: "Reads the whole audit. Only on the host that ran the run."
      })
    ),
    HttpApiEndpoint.get("auditEntries", "/runs/:id/audit/entries", {
      params: runParams,
      query: pageQuery,
      success: AuditPage,
      error: missing
    }).annotateMerge(OpenApi.annotations({ summary: "List the entries of a run's audit" })),
    HttpApiEndpoint.get("answer", "/runs/:id/answer", {
      params: runParams,
      success: plainText("the text that the agent wrote as its answer. Untrusted"),
      error: missing
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Read the answer of a run",
        description:
          "The first 65,536 characters of the answer, when the run has ended; of a run that failed, the text until then."
      })
    ),
    HttpApiEndpoint.get("patch", "/runs/:id/patch", {
      params: runParams,
      success: plainText(
        "an mbox, as `git format-patch` writes it. Untrusted: review it before you apply it"
      ),
      error: missing
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Read the commits of a run",
        description: "The first 262,144 characters, if the server has pushed them."
      })
    ),
    HttpApiEndpoint.post("retryRelay", "/runs/:id/relay/retry", {
      params: runParams,
      success: Delivered,
      error: [...missing, Problem.Conflict, Problem.Denied]
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Deliver the kept commits of a run again",
        description:
          "Resumes where the delivery stopped: collect, check, push, pull request. The grant must allow the repository. " +
          "Only on the host that keeps the commits."
      })
    )
  )
  .middleware(Readable)
  .middleware(Authentication) {}
