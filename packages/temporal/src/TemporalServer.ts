/** A Temporal server and the queue that hosts share, and how they fail. */
import { Schema } from "effect"

export interface TemporalServer {
  /** Host and port, such as `127.0.0.1:7233`. */
  readonly address: string
  readonly namespace: string
  /** The queue that all hosts share. */
  readonly taskQueue: string
}

export interface RunsOptions extends TemporalServer {
  /**
   * Sets the search attributes `CogniAgent`, `CogniAccount`, `CogniRepository` and `CogniStatus`. The namespace must
   * have them.
   */
  readonly isSearchable: boolean
}

export const defaults = {
  address: "127.0.0.1:7233",
  namespace: "default",
  taskQueue: "cogni-sandbox"
} satisfies TemporalServer

/** Search attributes of a run, all of type `Keyword`. */
export const searchAttributes = ["CogniAgent", "CogniAccount", "CogniRepository", "CogniStatus"] as const

/** Temporal did not do what it was asked. */
export class TemporalFailed extends Schema.TaggedError<TemporalFailed>()("TemporalFailed", {
  reason: Schema.Literals([
    "NotInstalled",
    "Unreachable",
    "NamespaceNotFound",
    "RunIdInUse",
    "RunNotFound",
    "SearchAttributesMissing",
    "RequestTooLarge",
    "Failed"
  ]),
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }

  get isRetryable(): boolean {
    return this.reason === "Unreachable"
  }

  /** Classifies an error of the SDK by its code and its type, never by its text alone. */
  static of(what: string, error: unknown): TemporalFailed {
    const text = error instanceof Error ? error.message : String(error)
    const detail = `Temporal could not ${what}: ${text}`
    return isUnreachable(error)
      ? new TemporalFailed({
          reason: "Unreachable",
          detail,
          remedy: "Check the address, and that the server runs. For tests, start one with ./dev temporal"
        })
      : new TemporalFailed({ reason: "Failed", detail, remedy: "See the log of the Temporal server" })
  }
}

/** Status codes of gRPC: unavailable, and deadline exceeded. */
const unreachableCodes: ReadonlySet<unknown> = new Set([14, 4])

const isUnreachable = (error: unknown): boolean => {
  if (typeof error !== "object" || error === null) return false
  if ("name" in error && error.name === "TransportError") return true
  if ("code" in error && unreachableCodes.has(error.code)) return true
  return "cause" in error && isUnreachable(error.cause)
}
