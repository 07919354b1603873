/** Untrusted JSON. */
import { Option, Schema } from "effect"

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Unknown))

/** Returns `undefined` if the text is not JSON. */
export const parse = (text: string): unknown => Option.getOrUndefined(decode(text))

export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)
