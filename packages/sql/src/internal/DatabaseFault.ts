/**
 * Failures of a database in words, and whether a repetition can succeed.
 */
import type { SqlError } from "effect/sql/SqlError"

/** Timeout in seconds for the first answer of a database. */
export const connectSecondsMax = 10

/** Returns whether a retry may succeed. Includes a PostgreSQL that is starting, stopping or out of connections. */
export const isPassing = ({ isRetryable, reason: { cause } }: SqlError): boolean =>
  isRetryable ||
  (typeof cause === "object" && cause !== null && "code" in cause && /^(?:53|57P)/u.test(String(cause.code)))

/** Describes why a statement failed and what to do. */
export const explain = (error: SqlError): { readonly detail: string; readonly remedy: string } => {
  const [what, remedy] = wordsOf(error)
  return { detail: `${what}${because(error.reason.cause, error.reason.message ?? "")}`, remedy }
}

const wordsOf = (error: SqlError): readonly [what: string, remedy: string] => {
  switch (error.reason._tag) {
    case "ConnectionError":
      return ["cannot be reached", "Start it, or check its host and port, then try again"]
    case "AuthenticationError":
    case "AuthorizationError":
      return [
        "denied access to this user",
        "Check the user and password in its URL, and the user's permissions"
      ]
    case "LockTimeoutError":
    case "StatementTimeoutError":
    case "DeadlockError":
    case "SerializationError":
      return ["is too busy", "Try again; if it stays busy, check what else writes to it"]
    default:
      return isPassing(error)
        ? ["is temporarily unavailable", "Try again in a moment"]
        : ["answered with an error", "Check its log, disk and permissions, then try again"]
  }
}

const messageCharactersMax = 300

/** Formats the message of the cause, which is that of the server or the kernel. */
const because = (cause: unknown, otherwise: string): string => {
  const said = cause instanceof Error && cause.message !== "" ? cause.message : otherwise
  return said === "" ? "" : `: ${said.replaceAll(/\s+/gu, " ").slice(0, messageCharactersMax)}`
}
