/** Fetches the catalog of agents from a server, and accepts only a valid one. */
import { AgentDescriptor } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import { Data, Option, Schema } from "effect"

/** Address of the server, and how to call it. */
export interface AgentsOptions {
  /** URL of your backend, which adds the grant's token, before `/api/v1/ai/agents`. Defaults to the page's origin. */
  readonly baseUrl?: string | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Defaults to the platform's. */
  readonly fetch?: typeof globalThis.fetch | undefined
}

/** An agent of the catalog. */
export type Agent = AgentDescriptor

/** An entry of a menu of graphs: its ID, name and description are those of the agent. */
export type GraphOption = Pick<Agent, "graphId" | "name" | "description">

/** The catalog could not be fetched. */
export class AgentsUnavailable extends Data.TaggedError("AgentsUnavailable")<{
  /** HTTP status of the answer; `undefined` without an answer. */
  readonly status: number | undefined
  /** The server's reason, such as `GrantExpired`; otherwise `Unreachable`, `Refused` or `NoCatalog`. */
  readonly reason: string
  readonly message: string
}> {
  /** Whether a retry may succeed. */
  get isRetryable(): boolean {
    return this.status === undefined || this.status === 429 || this.status >= 500
  }
}

export const path = "/api/v1/ai/agents"

/** Fetches the agents. Rejects with {@link AgentsUnavailable}, or with the signal's reason. */
export const list = async (
  { baseUrl = "", fetch = globalThis.fetch, headers = {} }: AgentsOptions,
  signal: AbortSignal
): Promise<ReadonlyArray<Agent>> => {
  const response = await fetch(`${baseUrl.replace(/\/+$/u, "")}${path}`, {
    headers: { accept: "application/json", ...headers },
    signal
  }).catch((cause: unknown) => {
    signal.throwIfAborted()
    const message = `the agent server cannot be reached: ${cause instanceof Error ? cause.message : String(cause)}`
    throw new AgentsUnavailable({ status: undefined, reason: "Unreachable", message })
  })
  const { status } = response
  const body: unknown = await response.json().catch(() => undefined)
  if (!response.ok) {
    const problem = Option.getOrUndefined(decodeProblem(body))?.error
    throw new AgentsUnavailable({
      status,
      reason: problem?.reason ?? "Refused",
      message: problem?.message ?? `the agent server answered ${status}`
    })
  }
  const catalog = decodeCatalog(body)
  if (Option.isNone(catalog)) {
    const message =
      "the server's answer is not a valid agent catalog. Check baseUrl, and the versions of page and server"
    throw new AgentsUnavailable({ status, reason: "NoCatalog", message })
  }
  return catalog.value.agents
}

const decodeCatalog = Schema.decodeUnknownOption(Schema.Struct({ agents: Schema.Array(AgentDescriptor) }))

const decodeProblem = Schema.decodeUnknownOption(
  Schema.Struct({ error: Schema.Struct({ reason: Schema.String, message: Schema.String }) })
)
