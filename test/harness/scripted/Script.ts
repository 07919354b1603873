/**
 * What a scripted model is told, and what it answers: the part that every dialect of a model API has in common.
 *
 * A script is a pure function, so the same script drives agents of any dialect. A dialect only translates: out of a
 * request what a script may know, and into an answer what it says.
 */
import type { ServerResponse } from "node:http"

/** A request's body. */
export type Body = Readonly<Record<string, unknown>>

/** What a request holds of a turn. */
export interface Asked {
  /** The names of the tools that are offered, in their order. Without any, it is a side call: a title, a probe. */
  readonly tools: ReadonlyArray<string>
  /** What tools gave so far, in their order, as text. */
  readonly results: ReadonlyArray<string>
  /** What the user said last. */
  readonly text: string
}

export interface Turn extends Asked {
  /** Of the turns that offer tools; counts from 0. */
  readonly index: number
}

export interface Call {
  readonly name: string
  readonly args: Readonly<Record<string, unknown>>
}

export type Reply = { readonly say: string } | { readonly call: ReadonlyArray<Call> }

/** Answers, or refuses with the status 400 and an error as the dialect has it. */
export type Script = (turn: Turn) => Reply | { readonly refuse: string }

/** What an answer says it cost. */
export interface Figures {
  readonly inputTokens: number
  readonly outputTokens: number
}

/** One dialect: how it is spoken, streamed or not. */
export interface Dialect {
  /** Without the query. */
  readonly path: string
  readonly asked: (body: Body) => Asked
  /**
   * Writes the whole answer and ends it; streamed where the body says `stream: true`. `number` is this call's, and is
   * to be part of every id, so that ids are unique among all calls.
   */
  readonly answer: (
    response: ServerResponse,
    body: Body,
    reply: Reply,
    figures: Figures,
    number: number
  ) => void
}

/** In several pieces, as a model streams. */
export const pieces = (text: string): ReadonlyArray<string> =>
  text === "" ? [""] : (text.match(/\S+\s*|\s+/gu) ?? [text])

export const sendJson = (response: ServerResponse, value: unknown): void => {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value))
}

/** Events with a name or without; a string is sent as it is. */
export const sendEvents = (
  response: ServerResponse,
  all: ReadonlyArray<readonly [name: string | undefined, data: unknown]>
): void => {
  response.writeHead(200, { "content-type": "text/event-stream" })
  for (const [name, data] of all) {
    const line = typeof data === "string" ? data : JSON.stringify(data)
    response.write(`${name === undefined ? "" : `event: ${name}\n`}data: ${line}\n\n`)
  }
  response.end()
}

/** The text of a content that is a string, or parts of which some have a `text`. */
export const textOf = (content: unknown): string =>
  typeof content === "string"
    ? content
    : Array.isArray(content)
      ? content
          .map((part: unknown) =>
            typeof part === "object" && part !== null && "text" in part && typeof part.text === "string"
              ? part.text
              : ""
          )
          .join("")
      : ""
