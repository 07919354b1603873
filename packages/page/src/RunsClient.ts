/** Requests of the page to the API. Each answer is decoded; each failure is an `ApiProblem`. */
import { Option, Schema } from "effect"
import * as ApiProblem from "./ApiProblem.ts"
import * as Recording from "./Recording.ts"
import * as RunFilter from "./RunFilter.ts"
import * as RunModel from "./RunModel.ts"

/** Address of a server, and how to call it. */
export interface ApiOptions {
  /** URL before `/api/v1`. Defaults to the page's origin. */
  readonly baseUrl?: string | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Defaults to the platform's. */
  readonly fetch?: typeof globalThis.fetch | undefined
}

export const csrfHeader = "x-cogni-csrf"

/** Runs in one page of a list. */
export const pageRuns = 50

/** Grants, connections or uses in one page of a list. */
const pageEntries = 50

/** Bytes of output that are read of a run that has ended: the end of it. */
export const outputBytesMax = 2 * 1024 * 1024

/** Longest kept body of a call that is shown. */
const bodyCharsMax = 500_000

/** Longest recording that is read. The server writes less. */
const recordingCharsMax = 40 * 1024 * 1024

/** Longest answer that is read. The server stores less. */
export const answerCharsMax = 128 * 1024

/** Longest patch that is read. The server stores less. */
export const patchCharsMax = 1024 * 1024

interface Asked {
  readonly body?: object
  readonly method?: "GET" | "POST" | "DELETE"
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal | undefined
}

const ask = async (
  { baseUrl = "", fetch = globalThis.fetch, headers = {} }: ApiOptions,
  path: string,
  { body: sent, headers: more = {}, method = "GET", signal }: Asked = {}
): Promise<Response> => {
  const response = await fetch(`${baseUrl.replace(/\/+$/u, "")}/api/v1${path}`, {
    method,
    headers: {
      accept: "application/json",
      ...(sent === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
      ...more
    },
    body: sent === undefined ? null : JSON.stringify(sent),
    signal: signal ?? null
  }).catch((cause: unknown) => {
    signal?.throwIfAborted()
    throw ApiProblem.unreachable(cause)
  })
  if (response.ok) return response
  const body: unknown = await response.json().catch(() => undefined)
  throw ApiProblem.ofAnswer(response.status, body, response.headers.get("retry-after"))
}

const reading =
  <S extends Schema.ConstraintDecoder<unknown>>(schema: S, what: string) =>
  async (options: ApiOptions, path: string, asked: Asked = {}): Promise<S["Type"]> => {
    const response = await ask(options, path, asked)
    const body: unknown = await response.json().catch(() => undefined)
    const decoded = Schema.decodeUnknownOption(schema)(body)
    if (Option.isNone(decoded)) throw ApiProblem.invalidAnswer(response.status, what)
    return decoded.value
  }

const runPage = reading(RunModel.RunPage, "list of runs")
const run = reading(RunModel.Run, "run")
const callPage = reading(RunModel.CallPage, "list of calls")
const toolList = reading(RunModel.ToolList, "list of tool calls")
const approvalList = reading(RunModel.ApprovalList, "list of approvals")
const approval = reading(RunModel.Approval, "decision")
const verdict = reading(RunModel.AuditVerdict, "audit verdict")
const cancelling = reading(RunModel.Cancelling, "answer to a cancellation")
const delivered = reading(RunModel.Delivered, "delivery")
const startedRun = reading(RunModel.StartedRun, "started run")
const grantPage = reading(RunModel.GrantPage, "list of grants")
const connectionPage = reading(RunModel.ConnectionPage, "list of connections")
const usePage = reading(RunModel.UsePage, "list of uses")
const signedIn = reading(RunModel.SignedIn, "sign-in")

/** A part of a path. An ID that an agent chose may have half a character, which cannot be encoded. */
const part = (text: string) => encodeURIComponent(text.toWellFormed())

const pageQuery = (after: string | undefined) =>
  `limit=${pageEntries}${after === undefined ? "" : `&after=${part(after)}`}`

const at = (runId: string) => `/runs/${part(runId)}`

export interface Text {
  readonly text: string
  /** There is more before or after `text`. */
  readonly isCut: boolean
}

/** A run to be started. */
export interface StartRequest {
  readonly graphId: string
  readonly prompt: string
  /** Absent: the server's. */
  readonly model?: string | undefined
  /** URL of a repository to work in. */
  readonly repository?: string | undefined
}

export const make = (options: ApiOptions) => ({
  options,
  runs: (filter: RunFilter.RunFilter, after: string | undefined, signal?: AbortSignal) => {
    const query = RunFilter.queryOf(filter, Date.now())
    query.set("limit", String(pageRuns))
    if (after !== undefined) query.set("after", after)
    return runPage(options, `/runs?${query}`, { signal })
  },
  run: (runId: string, signal?: AbortSignal) => run(options, at(runId), { signal }),
  cancel: (runId: string) => cancelling(options, at(runId), { method: "DELETE" }),
  deliver: (runId: string) => delivered(options, `${at(runId)}/relay/retry`, { method: "POST" }),
  calls: (runId: string, after: string | undefined, signal?: AbortSignal) =>
    callPage(options, `${at(runId)}/calls?limit=100${after === undefined ? "" : `&after=${part(after)}`}`, {
      signal
    }),
  tools: (runId: string, signal?: AbortSignal) => toolList(options, `${at(runId)}/tools`, { signal }),
  approvals: (runId: string, signal?: AbortSignal) =>
    approvalList(options, `${at(runId)}/approvals`, { signal }),
  /** The calls of the account that wait for an approval. */
  waiting: (signal?: AbortSignal) => approvalList(options, "/approvals?status=pending", { signal }),
  decide: (approvalId: string, decision: "approve" | "deny", reason: string) =>
    approval(options, `/approvals/${part(approvalId)}`, {
      method: "POST",
      body: { decision, ...(reason === "" ? {} : { reason }) }
    }),
  audit: (runId: string, signal?: AbortSignal) => verdict(options, `${at(runId)}/audit`, { signal }),
  /** The last part of an output. */
  output: async (runId: string, channel: "stdout" | "stderr", signal?: AbortSignal): Promise<Text> => {
    const response = await ask(options, `${at(runId)}/${channel}`, {
      signal,
      headers: { accept: "text/plain", range: `bytes=-${outputBytesMax}` }
    }).catch((problem: unknown) => {
      // An empty output has no last bytes.
      if (problem instanceof ApiProblem.ApiProblem && problem.status === 416) return undefined
      throw problem
    })
    if (response === undefined) return { text: "", isCut: false }
    const isCut = response.headers.get("content-range")?.startsWith("bytes 0-") === false
    return { text: await response.text(), isCut }
  },
  /** The kept request or answer of a model call. */
  body: async (
    runId: string,
    callId: string,
    which: "request" | "answer",
    signal?: AbortSignal
  ): Promise<Text> => {
    const response = await ask(options, `${at(runId)}/calls/${part(callId)}/${which}`, {
      signal,
      headers: { accept: "text/plain" }
    })
    const text = await response.text()
    return { text: text.slice(0, bodyCharsMax), isCut: text.length > bodyCharsMax }
  },
  /** The recording of a run. */
  recording: async (runId: string, signal?: AbortSignal): Promise<Recording.Recording> => {
    const response = await ask(options, `${at(runId)}/recording`, {
      signal,
      headers: { accept: "application/x-asciicast" }
    })
    const recording = Recording.parse((await response.text()).slice(0, recordingCharsMax))
    if (recording === undefined) throw ApiProblem.invalidAnswer(response.status, "recording")
    return recording
  },
  /** The answer of a run that has ended. */
  answer: async (runId: string, signal?: AbortSignal): Promise<string> => {
    const response = await ask(options, `${at(runId)}/answer`, { signal, headers: { accept: "text/plain" } })
    return (await response.text()).slice(0, answerCharsMax)
  },
  /** The commits of a run as a patch. */
  patch: async (runId: string, signal?: AbortSignal): Promise<string> => {
    const response = await ask(options, `${at(runId)}/patch`, { signal, headers: { accept: "text/plain" } })
    return (await response.text()).slice(0, patchCharsMax)
  },
  /** Opens the stream of a run's events, after the event with that number. */
  events: (runId: string, after: number, signal: AbortSignal) =>
    ask(options, `${at(runId)}/events`, {
      signal,
      headers: { accept: "text/event-stream", ...(after > 0 ? { "last-event-id": String(after) } : {}) }
    }),
  /** Starts a run, which lives on without this page. With the key of an earlier start, it starts nothing. */
  start: ({ graphId, model, prompt, repository }: StartRequest, key: string) =>
    startedRun(options, "/runs", {
      method: "POST",
      headers: { "idempotency-key": key },
      body: {
        graphId,
        messages: [{ role: "user", content: prompt }],
        ...(model === undefined ? {} : { model }),
        ...(repository === undefined ? {} : { repository: { url: repository } })
      }
    }),
  grants: (after: string | undefined, signal?: AbortSignal) =>
    grantPage(options, `/grants?${pageQuery(after)}`, { signal }),
  connections: (after: string | undefined, signal?: AbortSignal) =>
    connectionPage(options, `/connections?${pageQuery(after)}`, { signal }),
  uses: (connectionId: string, after: string | undefined, signal?: AbortSignal) =>
    usePage(options, `/connections/${part(connectionId)}/uses?${pageQuery(after)}`, { signal }),
  whoAmI: (signal?: AbortSignal) => signedIn(options, "/sign-in", { signal }),
  signIn: (token: string) =>
    signedIn(options, "/sign-in", { method: "POST", headers: { authorization: `Bearer ${token}` } }),
  signOut: async () => void (await ask(options, "/sign-in", { method: "DELETE" }))
})

export type RunsClient = ReturnType<typeof make>
