/**
 * Input and output of a scripted model API, shared by all dialects.
 *
 * A script is a function, so the same one serves clients of any dialect. A dialect only translates: from a request to
 * the input of a script, and from the script's output to an answer.
 */
import type { ServerResponse } from "node:http"

/** JSON object in a body; empty if the body has no JSON object. */
export type Body = Readonly<Record<string, unknown>>

/** Content of a request, independent of the dialect. */
export interface Said {
  /** Names of the offered tools, in order. A request without tools is a side call: a title, a probe. */
  readonly tools: ReadonlyArray<string>
  /** Results of tools so far, in order, as text. */
  readonly results: ReadonlyArray<string>
  /** The user's last message. */
  readonly text: string
}

export interface Asked extends Said {
  /** Number of model calls before this request. Other requests do not count: lists of models, rows of costs, probes. */
  readonly number: number
  readonly body: Body
}

export interface Call {
  readonly name: string
  readonly args: Readonly<Record<string, unknown>>
}

/** Usage that an answer reports. */
export interface Figures {
  /** Includes those read from a cache. */
  readonly inputTokens: number
  readonly cachedTokens?: number | undefined
  readonly outputTokens: number
}

/** Answer of a model. `usage` defaults to one token for each word. */
export type Answer = ({ readonly say: string } | { readonly call: ReadonlyArray<Call> }) & {
  readonly usage?: Figures | undefined
}

/** A fixed reaction of an upstream to any request, mostly a failure. */
export type Step =
  /** Answers 200 with this body. */
  | { readonly _tag: "Answer"; readonly body?: string; readonly headers?: Readonly<Record<string, string>> }
  /** Closes the connection before the first byte. */
  | { readonly _tag: "Refuse" }
  /** Never answers. */
  | { readonly _tag: "Hang" }
  /** Sends some events, then resets the connection. */
  | { readonly _tag: "ResetMidStream"; readonly events: number }
  /** Sends an HTML page, like a load balancer. */
  | { readonly _tag: "Html"; readonly status: number }
  /** Sends an error of the API itself. */
  | {
      readonly _tag: "Error"
      readonly status: number
      readonly headers?: Readonly<Record<string, string>>
      readonly body?: string
    }
  /** Sends events with a pause between them. */
  | { readonly _tag: "SlowStream"; readonly events: number; readonly pauseMillis: number }

/** Called once for each request. `refuse` answers status 400 with an error that clients of all dialects can read. */
export type Script = (asked: Asked) => Answer | { readonly refuse: string } | Step

/** An answer that is ready to be sent. */
export interface Spoken {
  readonly answer: Answer
  readonly usage: Figures
  /** Unique among all calls. Part of every ID. */
  readonly number: number
  readonly model: string
  readonly body: Body
}

/** Translator for one model API, with and without streaming. */
export interface Dialect {
  /** Path without the query. */
  readonly path: string
  readonly said: (body: Body) => Said
  /** Returns the answer in one piece, and as the events of a stream. An event that is a string is sent unchanged. */
  readonly speak: (spoken: Spoken) => { readonly whole: Body; readonly events: ReadonlyArray<Body | string> }
}

/** Splits a text into pieces, as a model streams it. */
export const pieces = (text: string): ReadonlyArray<string> =>
  text === "" ? [""] : (text.match(/\S+\s*|\s+/gu) ?? [text])

export const sendJson = (response: ServerResponse, value: unknown, status = 200): void => {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value))
}

/** Sends an answer, as a stream if the body has `stream: true`. The name of an event is its type. */
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

/** Returns the text of content that is a string, or of its parts that are strings or have a `text`. */
export const textOf = (content: unknown): string => {
  if (typeof content === "string") return content
  if (Array.isArray(content)) return content.map(textOf).join("")
  return typeof content === "object" && content !== null && "text" in content ? textOf(content.text) : ""
}

/** Returns the objects of a list and ignores other values. */
export const objectsIn = (value: unknown): ReadonlyArray<Body> =>
  Array.isArray(value) ? value.filter((one): one is Body => typeof one === "object" && one !== null) : []
