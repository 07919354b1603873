/**
 * The issues that a schema finds in an input, as paths and sentences.
 */
import type * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"

const formatIssues = SchemaIssue.makeFormatterStandardSchemaV1()

/** A problem at one place of an input. */
export interface InputIssue {
  readonly path: ReadonlyArray<string>
  /** The violated rule, such as `Expected …`. */
  readonly message: string
}

/** Returns all problems of an input, as data. */
export const issuesOf = ({ issue }: Schema.SchemaError): ReadonlyArray<InputIssue> =>
  formatIssues(issue).issues.map(({ message, path = [] }) => ({
    path: path.map((key) => String(typeof key === "object" ? key.key : key)),
    message
  }))

/** Formats a problem as a sentence, with the path of its place. */
export const describeIssue = ({ message, path }: InputIssue): string =>
  path.length === 0 ? message : `${path.join(".")}: ${message}`

/** Returns all problems of an input, as sentences. */
export const problemsOf = (error: Schema.SchemaError): ReadonlyArray<string> =>
  issuesOf(error).map(describeIssue)
