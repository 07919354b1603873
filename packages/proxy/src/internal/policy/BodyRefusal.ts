/**
 * Reasons for refusing a request body. Each states where the problem is and what the agent must send instead.
 *
 * A refusal is logged, and requests hold private data, so it never quotes a value. The exception is the name of a type,
 * if it has the form of one.
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
  /** Path of the invalid value. */
  readonly param?: string | undefined
}

export const make = (
  code: string,
  message: string,
  param?: string,
  status: BodyRefused["status"] = 400
): BodyRefused => ({ _tag: "BodyRefused", status, code, message, param })

/** Refuses a body that grows beyond the limit when it is rebuilt. */
export const ofSize = (sentBytesMax: number): BodyRefused =>
  make(
    "request_too_large",
    `The request is larger than ${sentBytesMax} bytes when its numbers are written in full. Shorten the conversation.`,
    undefined,
    413
  )

/** Refuses a body that is small as a text, and large in memory. */
export const ofComplexity = (): BodyRefused =>
  make(
    "request_too_complex",
    "The request has millions of values. Send fewer arrays and objects, or send them as text.",
    undefined,
    413
  )

/** Refuses a reference to state that the provider keeps for the account, and so for every run. */
export const ofState = (param: string): BodyRefused =>
  make(
    "state_not_allowed",
    `The sandbox's proxy does not allow ${param}: all runs of an account share the state that a provider keeps. Send the whole conversation, and send files as data: URIs.`,
    param
  )

const ofRemote = (param: string): BodyRefused =>
  make(
    "remote_url_not_allowed",
    `The sandbox's proxy does not allow remote URLs. Send the content of ${param} as a data: URI in base64.`,
    param
  )

const format = SchemaIssue.makeFormatterStandardSchemaV1()

type Key = string | number

/** Maps an index in a decoded list to its position in the request. Entries before it may have been removed. */
export type PositionOf = (list: string, index: number) => number

/** Refuses a body that does not match its schema. */
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
    `The sandbox's proxy does not allow the value at ${param === "" ? "the top" : param}: ${expectation(message, passed.at(-1)?.value)}`,
    param
  )
}

/** How many levels above an invalid value its cause may lie: the URL in a source in a part. */
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
    ? `type ${name} is unknown, or a field is missing or invalid`
    : message.slice(0, 200)
}

const isObject = (value: unknown): value is Readonly<Record<Key, unknown>> =>
  typeof value === "object" && value !== null

/** Returns whether a value refers to stored content by its ID. */
const isStored = (value: unknown): boolean =>
  isObject(value) && (typeof value["file_id"] === "string" || value["type"] === "item_reference")

const addressFields = ["url", "image_url", "file_url", "video_url", "audio_url", "file_data", "file_uri"]

const isRemote = (value: unknown): boolean =>
  isObject(value) && (value["type"] === "url" || addressFields.some((name) => isAddress(value[name])))

/** Returns whether a value is a string other than a data: URI, or an object with such a `url`. */
const isAddress = (value: unknown): boolean =>
  isObject(value) ? isAddress(value["url"]) : typeof value === "string" && !dataUri.test(value)
