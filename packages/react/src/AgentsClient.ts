/** Asks a server which agents there are, and believes only an answer that is a catalog. */
import { AgentDescriptor } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import { Data, Option, Schema } from "effect"

/** Where the server is, and how to ask it. */
export interface AgentsOptions {
  /** Before `/api/v1/ai/agents`; of your own backend, which adds the grant's token. Absent: the page's own origin. */
  readonly baseUrl?: string | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Absent: the platform's. */
  readonly fetch?: typeof globalThis.fetch | undefined
}

/** An agent that can be asked. */
export type Agent = AgentDescriptor

/** The catalog could not be had. */
export class AgentsUnavailable extends Data.TaggedError("AgentsUnavailable")<{
  /** Of the answer; absent where there was none. */
  readonly status: number | undefined
  /** The server's own, such as `GrantExpired`. */
  readonly reason: string
  readonly message: string
}> {
  /** Whether the same may go well in a moment. */
  get isRetryable(): boolean {
    return this.status === undefined || this.status === 429 || this.status >= 500
  }
}

export const path = "/api/v1/ai/agents"

/** Rejects with {@link AgentsUnavailable}. */
export const list = async (
  { baseUrl = "", fetch = globalThis.fetch, headers = {} }: AgentsOptions,
  signal: AbortSignal
): Promise<ReadonlyArray<Agent>> => {
  const response = await fetch(`${baseUrl.replace(/\/+$/u, "")}${path}`, {
    headers: { accept: "application/json", ...headers },
    signal
  }).catch((cause: unknown) => {
    signal.throwIfAborted()
    const message = `the server of agents cannot be reached: ${cause instanceof Error ? cause.message : String(cause)}`
    throw new AgentsUnavailable({ status: undefined, reason: "Unreachable", message })
  })
  const { status } = response
  const body: unknown = await response.json().catch(() => undefined)
  if (!response.ok) {
    const problem = Option.getOrUndefined(decodeProblem(body))?.error
    throw new AgentsUnavailable({
      status,
      reason: problem?.reason ?? "Refused",
      message: problem?.message ?? `the server of agents answered ${status}`
    })
  }
  const catalog = decodeCatalog(body)
  if (Option.isNone(catalog)) {
    const message =
      "the server's answer is no catalog of agents. Look at baseUrl, and at the versions of both"
    throw new AgentsUnavailable({ status, reason: "NoCatalog", message })
  }
  return catalog.value.agents
}

const decodeCatalog = Schema.decodeUnknownOption(Schema.Struct({ agents: Schema.Array(AgentDescriptor) }))

const decodeProblem = Schema.decodeUnknownOption(
  Schema.Struct({ error: Schema.Struct({ reason: Schema.String, message: Schema.String }) })
)
