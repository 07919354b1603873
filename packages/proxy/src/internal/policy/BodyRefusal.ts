/**
 * Why a body does not pass, said so that its agent can do something about it: where, and what to send instead.
 *
 * Never what stands there: a refusal goes into logs, and a request is full of what is nobody's business. The exception
 * is the name of a type, where it is written like one.
 */
import type * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import { dataUri } from "./apis/Shapes.ts"
import * as DroppedPaths from "./DroppedPaths.ts"

export interface BodyRefused {
  readonly _tag: "BodyRefused"
  readonly status: 400 | 404 | 413
  readonly code: string
  readonly message: string
  /** Path of what is wrong. */
  readonly param?: string | undefined
}

export const make = (
  code: string,
  message: string,
  param?: string,
  status: BodyRefused["status"] = 400
): BodyRefused => ({ _tag: "BodyRefused", status, code, message, param })

/** Of a body that is small as it was sent, and would not be as it goes out. */
export const ofSize = (sentBytesMax: number): BodyRefused =>
  make(
    "request_too_large",
    `The request is larger than ${sentBytesMax} bytes once its numbers are written out. Shorten the conversation.`,
    undefined,
    413
  )

/** What a provider keeps is the account's, and so every run's. */
export const ofState = (param: string): BodyRefused =>
  make(
    "state_not_allowed",
    `The sandbox's proxy does not let ${param} pass: what a provider keeps is shared by all runs of an account. Send the whole conversation, and files as data: URIs.`,
    param
  )

export const ofRemote = (param: string): BodyRefused =>
  make(
    "remote_url_not_allowed",
    `The sandbox's proxy has no model fetch anything. Send what is at ${param} itself, as a data: URI in base64.`,
    param
  )

const format = SchemaIssue.makeFormatterStandardSchemaV1()

type Key = string | number

/** Where in a list of the request an entry of what was decoded stands; others may have been left out before it. */
export type PositionOf = (list: string, index: number) => number

/** Of a body that its schema does not take. */
export const ofShape = (
  body: unknown,
  { issue }: Schema.SchemaError,
  positionOf: PositionOf
): BodyRefused => {
  const { message = "", path: keys = [] } = format(issue).issues[0] ?? {}
  const path = keys.map((key) => (typeof key === "object" ? key.key : key) as Key)
  const [list, index] = path
  const passed = valuesAlong(
    body,
    typeof list === "string" && typeof index === "number"
      ? [list, positionOf(list, index), ...path.slice(2)]
      : path
  )
  const forbidden = passed.slice(-passedMax).findLast(({ value }) => isStored(value) || isRemote(value))
  if (forbidden !== undefined)
    return isStored(forbidden.value) ? ofState(forbidden.path) : ofRemote(forbidden.path)
  const param = passed.at(-1)?.path ?? ""
  return make(
    "invalid_request_body",
    `The sandbox's proxy does not let this pass at ${param === "" ? "the top" : param}: ${expectation(message, passed.at(-1)?.value)}`,
    param
  )
}

/** How far up from what is wrong its reason may lie: the URL in a source in a part. */
const passedMax = 3

interface Passed {
  readonly path: string
  readonly value: unknown
}

const valuesAlong = (body: unknown, keys: ReadonlyArray<Key>): ReadonlyArray<Passed> => {
  const passed: Array<Passed> = [{ path: "", value: body }]
  for (const key of keys) {
    const { path, value } = passed.at(-1)!
    const inner = isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined
    passed.push({ path: DroppedPaths.join(path, key), value: inner })
  }
  return passed
}

const expectation = (message: string, value: unknown): string => {
  const name = isObject(value) ? value["type"] : undefined
  return typeof name === "string" && /^[\w.-]{1,60}$/u.test(name)
    ? `it is not known, or lacks something, as type ${name}`
    : message.slice(0, 200)
}

const isObject = (value: unknown): value is Readonly<Record<Key, unknown>> =>
  typeof value === "object" && value !== null

/** By an id, and not by its content. */
const isStored = (value: unknown): boolean =>
  isObject(value) && (typeof value["file_id"] === "string" || value["type"] === "item_reference")

const addressFields = ["url", "image_url", "file_url", "video_url", "audio_url", "file_data", "file_uri"]

const isRemote = (value: unknown): boolean =>
  isObject(value) && (value["type"] === "url" || addressFields.some((name) => isAddress(value[name])))

/** A text where content should be, or an object around one. */
const isAddress = (value: unknown): boolean =>
  isObject(value) ? isAddress(value["url"]) : typeof value === "string" && !dataUri.test(value)
