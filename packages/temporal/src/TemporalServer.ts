/** A Temporal server, how it is reached, and the queue that hosts share. */
import { type Effect, type Redacted, Schema } from "effect"

export interface TemporalServer {
  /** Host and port, such as `127.0.0.1:7233`. */
  readonly address: string
  readonly namespace: string
  /** The queue that all hosts share. */
  readonly taskQueue: string
  /**
   * Certificates in PEM. An empty object means TLS with the authorities that the system trusts. Default: no TLS, which
   * is refused for an address of another machine.
   */
  readonly tls?:
    | {
        /** Certificates of the authorities that the server's one must be signed by. Default: those of the system. */
        readonly authorities?: Uint8Array | undefined
        /** Name in the server's certificate, if it is not the host of the address. */
        readonly serverName?: string | undefined
        /** Certificate of this client and its private key, for a server that asks for one. */
        readonly client?:
          | { readonly certificate: Uint8Array; readonly privateKey: Redacted.Redacted<Uint8Array> }
          | undefined
      }
    | undefined
  /** Reads the API key, as Temporal Cloud has it. It is read again each minute. An API key implies TLS. */
  readonly apiKey?: Effect.Effect<Redacted.Redacted, TemporalFailed> | undefined
  /** Allows an address of another machine without TLS, such as in a network that encrypts by itself. */
  readonly isInsecureAllowed?: boolean | undefined
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
    "AddressInvalid",
    "AddressInsecure",
    "CredentialsInvalid",
    "Unauthorized",
    "Unreachable",
    "NamespaceNotFound",
    "RunIdInUse",
    "RunNotFound",
    "OwnerUnknown",
    "HostNameInUse",
    "SearchAttributesMissing",
    "RequestTooLarge",
    "ScheduleInUse",
    "ScheduleInvalid",
    "ScheduleNotFound",
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

  /** The same as `of`, for a call that names only a namespace. */
  static ofNamespace(what: string, namespace: string, error: unknown): TemporalFailed {
    return hasCode(error, notFoundCodes)
      ? new TemporalFailed({
          reason: "NamespaceNotFound",
          detail: `there is no namespace ${namespace}`,
          remedy: "Create it, or name another one with --namespace"
        })
      : TemporalFailed.of(what, error)
  }

  /** Classifies an error of the SDK by its code and its type, never by its text alone. */
  static of(what: string, error: unknown): TemporalFailed {
    const text = error instanceof Error ? error.message : String(error)
    const detail = `Temporal could not ${what}: ${text}`
    if (hasCode(error, unauthorizedCodes))
      return new TemporalFailed({
        reason: "Unauthorized",
        detail,
        remedy: "Check the namespace, and the API key or the client certificate"
      })
    return isTransport(error) || hasCode(error, unreachableCodes)
      ? new TemporalFailed({
          reason: "Unreachable",
          detail,
          remedy:
            "Check the address, that the server runs, and whether it has TLS, and a certificate of an authority that " +
            "you trust. For tests, start one with ./dev temporal"
        })
      : new TemporalFailed({ reason: "Failed", detail, remedy: "See the log of the Temporal server" })
  }
}

/** Status codes of gRPC: unavailable, and deadline exceeded. */
const unreachableCodes: ReadonlySet<unknown> = new Set([14, 4])

/** Status code of gRPC: not found. */
const notFoundCodes: ReadonlySet<unknown> = new Set([5])

/** Status codes of gRPC: permission denied, and unauthenticated. */
const unauthorizedCodes: ReadonlySet<unknown> = new Set([7, 16])

const causeOf = (error: unknown): unknown =>
  typeof error === "object" && error !== null && "cause" in error ? error.cause : undefined

const isTransport = (error: unknown): boolean =>
  error !== undefined &&
  ((error instanceof Error && error.name === "TransportError") || isTransport(causeOf(error)))

/** Whether an error, or what caused it, has one of some codes. */
const hasCode = (error: unknown, codes: ReadonlySet<unknown>): boolean => {
  if (typeof error !== "object" || error === null) return false
  return ("code" in error && codes.has(error.code)) || hasCode(causeOf(error), codes)
}
