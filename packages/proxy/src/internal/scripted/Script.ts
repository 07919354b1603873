/**
 * What the script of a model API is told, and what it answers: the part that every dialect has in common.
 *
 * A script is a function, so the same one drives clients of any dialect. A dialect only translates: out of a request
 * what a script may know, and into an answer what it says.
 */
import type { ServerResponse } from "node:http"

/** A body as JSON; empty where it was none. */
export type Body = Readonly<Record<string, unknown>>

/** What a request's body says, in any dialect. */
export interface Said {
  /** Names of the tools that are offered, in their order. Without any, it is a side call: a title, a probe. */
  readonly tools: ReadonlyArray<string>
  /** What tools returned so far, in their order, as text. */
  readonly results: ReadonlyArray<string>
  /** What the user said last. */
  readonly text: string
}

export interface Asked extends Said {
  /** Counts all requests, from 0. */
  readonly number: number
  readonly body: Body
}

export interface Call {
  readonly name: string
  readonly args: Readonly<Record<string, unknown>>
}

/** What an answer says it cost. */
export interface Figures {
  /** Including those read from a cache. */
  readonly inputTokens: number
  readonly cachedTokens?: number | undefined
  readonly outputTokens: number
}

/** What a model says. `usage` is by default a token for each word. */
export type Answer = ({ readonly say: string } | { readonly call: ReadonlyArray<Call> }) & {
  readonly usage?: Figures | undefined
}

/** How an upstream misbehaves, whatever it was asked. */
export type Step =
  /** 200, with this body. */
  | { readonly _tag: "Answer"; readonly body?: string; readonly headers?: Readonly<Record<string, string>> }
  /** The connection is closed before a byte. */
  | { readonly _tag: "Refuse" }
  /** Nothing, ever. */
  | { readonly _tag: "Hang" }
  /** Some events, then the connection breaks. */
  | { readonly _tag: "ResetMidStream"; readonly events: number }
  /** A page for people, as load balancers send it. */
  | { readonly _tag: "Html"; readonly status: number }
  /** An error of the API itself. */
  | {
      readonly _tag: "Error"
      readonly status: number
      readonly headers?: Readonly<Record<string, string>>
      readonly body?: string
    }
  /** Events with a pause between them. */
  | { readonly _tag: "SlowStream"; readonly events: number; readonly pauseMillis: number }

/** Asked once for each request. `refuse` is status 400, with an error that all dialects read. */
export type Script = (asked: Asked) => Answer | { readonly refuse: string } | Step

/** An answer on its way out. */
export interface Spoken {
  readonly answer: Answer
  readonly usage: Figures
  /** Unique among all calls, to be part of every ID. */
  readonly number: number
  readonly model: string
  readonly body: Body
}

/** One dialect: how it is spoken, streamed or not. */
export interface Dialect {
  /** Without the query. */
  readonly path: string
  readonly said: (body: Body) => Said
  /** The answer in one piece, and in the events of a stream: a string is sent as it is. */
  readonly speak: (spoken: Spoken) => { readonly whole: Body; readonly events: ReadonlyArray<Body | string> }
}

/** In several pieces, as a model streams. */
export const pieces = (text: string): ReadonlyArray<string> =>
  text === "" ? [""] : (text.match(/\S+\s*|\s+/gu) ?? [text])

export const sendJson = (response: ServerResponse, value: unknown, status = 200): void => {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value))
}

/** Writes the whole answer and ends it; streamed where the body says `stream: true`. An event is named by its type. */
export const send = (response: ServerResponse, dialect: Dialect, spoken: Spoken): void => {
  const { events, whole } = dialect.speak(spoken)
  if (spoken.body["stream"] !== true) return sendJson(response, whole)
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" })
  for (const event of events) {
    const name = typeof event === "string" ? undefined : event["type"]
    const data = typeof event === "string" ? event : JSON.stringify(event)
    response.write(`${name === undefined ? "" : `event: ${String(name)}\n`}data: ${data}\n\n`)
  }
  response.end()
}

/** The text of a content that is a string, or parts of which some are strings or have a `text`. */
export const textOf = (content: unknown): string => {
  if (typeof content === "string") return content
  if (Array.isArray(content)) return content.map(textOf).join("")
  return typeof content === "object" && content !== null && "text" in content ? textOf(content.text) : ""
}

/** The objects of a list, whatever else is in it. */
export const objectsIn = (value: unknown): ReadonlyArray<Body> =>
  Array.isArray(value) ? value.filter((one): one is Body => typeof one === "object" && one !== null) : []
