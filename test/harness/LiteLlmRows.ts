/**
 * A fake of LiteLLM's spend endpoints, with its rules for filters, windows and pages, and with the faults of a real
 * one.
 *
 * The stack tests compare it with a real LiteLLM.
 */
import { Effect, type Scope } from "effect"
import type { IncomingMessage, ServerResponse } from "node:http"
import * as LocalServer from "./LocalServer.ts"

export const adminKey = "sk-admin-5f0c3d1e9b7a4c26"

/** A row as LiteLLM writes it. Tests add fields and wrong values. */
export type Row = Readonly<Record<string, unknown>>

/** Fault of the next answers. */
export type Trouble =
  | { readonly _tag: "Status"; readonly status: number; readonly body?: string }
  | { readonly _tag: "Text"; readonly text: string }
  | { readonly _tag: "Redirect"; readonly to: string }
  /** The answer never ends. */
  | { readonly _tag: "Hang" }
  /** The connection is closed without an answer. */
  | { readonly _tag: "Cut" }
  /** The filter has no effect, as in old versions. */
  | { readonly _tag: "Unfiltered" }
  /** The answer has no end, and grows. */
  | { readonly _tag: "Flood" }

export interface LiteLlmRows {
  readonly url: string
  readonly rows: Array<Row>
  /** Targets of all requests for rows. */
  readonly requests: Array<string>
  /** Whether the key is that of an administrator. Another one sees only the rows of its own user: here, none. */
  isAdmin: boolean
  /** Returns the fault of a request, if it has one. */
  trouble: (target: string) => Trouble | undefined
}

/** A row with LiteLLM's fields, of a call that succeeded. */
export const row = (callId: string, changes: Row = {}): Row => ({
  request_id: callId,
  litellm_call_id: callId,
  call_type: "acompletion",
  api_key: "a".repeat(64),
  spend: 0.000_125,
  total_tokens: 110,
  prompt_tokens: 100,
  completion_tokens: 10,
  startTime: "2026-01-31T10:00:01+00:00",
  endTime: "2026-01-31T10:00:02+00:00",
  model: "openai/gpt-5",
  model_group: "gpt-5",
  end_user: "account-1",
  status: "success",
  cache_hit: "False",
  metadata: {
    litellm_call_id: callId,
    spend_logs_metadata: { run_id: "run-00000001", attempt: 0, user_id: null },
    additional_usage_values: {}
  },
  ...changes
})

/** A fake without rows, before it has a URL. */
export const make = (): LiteLlmRows => ({
  url: "",
  rows: [],
  requests: [],
  isAdmin: true,
  trouble: () => undefined
})

export const acquire: Effect.Effect<LiteLlmRows, never, Scope.Scope> = Effect.gen(function* () {
  const double = make()
  const url = yield* LocalServer.serve((request, response) => answer(double, request, response))
  return Object.assign(double, { url })
})

/** Answers a request for rows. */
export const answer = (double: LiteLlmRows, request: IncomingMessage, response: ServerResponse): void => {
  const target = request.url ?? ""
  if (target.startsWith("/user/list")) {
    const mayList = double.isAdmin && request.headers.authorization === `Bearer ${adminKey}`
    return LocalServer.respond(
      response,
      mayList ? 200 : 403,
      mayList ? { users: [], total: 0 } : { detail: {} }
    )
  }
  double.requests.push(target)
  const trouble = double.trouble(target)
  switch (trouble?._tag) {
    case "Status":
      response.writeHead(trouble.status).end(trouble.body ?? `a key such as ${adminKey}`)
      return
    case "Text":
      response.writeHead(200, { "content-type": "application/json" }).end(trouble.text)
      return
    case "Redirect":
      response.writeHead(302, { location: trouble.to }).end()
      return
    case "Hang":
      return
    case "Cut":
      request.socket.destroy()
      return
    case "Flood":
      flood(response)
      return
    default:
      break
  }
  if (request.headers.authorization !== `Bearer ${adminKey}`)
    return LocalServer.respond(response, 401, { error: "no" })
  const { pathname, searchParams } = new URL(target, "http://localhost")
  const isFiltered = trouble?._tag !== "Unfiltered"
  if (!double.isAdmin)
    return LocalServer.respond(response, 200, pathname === "/spend/logs" ? [] : { data: [] })
  if (pathname === "/spend/logs") {
    const id = searchParams.get("request_id")
    const found = double.rows.filter((one) => one["request_id"] === id || one["litellm_call_id"] === id)
    return LocalServer.respond(response, 200, isFiltered && id !== null ? found : double.rows)
  }
  if (pathname === "/spend/logs/v2")
    return LocalServer.respond(response, ...page(double.rows, searchParams, isFiltered))
  return LocalServer.respond(response, 404, { detail: "Not Found" })
}

const flood = (response: ServerResponse): void => {
  response.writeHead(200, { "content-type": "application/json" })
  const piece = "[".repeat(1024 * 1024)
  const write = (): void => {
    while (!response.destroyed && response.write(piece));
    if (!response.destroyed) response.once("drain", write)
  }
  write()
}

const dateOf = (text: string | null): number | undefined =>
  text !== null && /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/u.test(text)
    ? Date.parse(`${text.replace(" ", "T")}Z`)
    : undefined

const page = (
  rows: ReadonlyArray<Row>,
  parameters: URLSearchParams,
  isFiltered: boolean
): readonly [status: number, body: unknown] => {
  const from = dateOf(parameters.get("start_date"))
  const to = dateOf(parameters.get("end_date"))
  if (from === undefined || to === undefined) return [400, { error: "Start date and end date are required" }]
  const number = Number(parameters.get("page") ?? 1)
  const size = Number(parameters.get("page_size") ?? 50)
  if (!(number >= 1 && size >= 1 && size <= 1000)) return [422, { detail: "page_size" }]
  const startOf = (one: Row) => Date.parse(`${String(one["startTime"]).replace(" ", "T")}`)
  const matches = (name: string) => (one: Row) =>
    parameters.get(name) === null || one[name] === parameters.get(name)
  const found = rows
    .filter((one) => !isFiltered || (matches("api_key")(one) && matches("end_user")(one)))
    .filter((one) => Number.isNaN(startOf(one)) || (startOf(one) >= from && startOf(one) <= to))
    .toSorted((a, b) => startOf(a) - startOf(b))
  const total = Math.min(found.length, 10_000)
  return [
    200,
    {
      data: found.slice((number - 1) * size, number * size),
      total,
      page: number,
      page_size: size,
      total_pages: Math.ceil(total / size)
    }
  ]
}
