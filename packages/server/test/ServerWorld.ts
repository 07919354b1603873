/** A complete server over in-memory layers, on a local port, with callers. */
import * as Await from "../../../test/harness/Await.ts"
import type { ConnectionStore } from "@cogni/sandbox-connections/ConnectionStore"
import { Approvals } from "@cogni/sandbox-core/Approvals"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import type { LlmAdmissions, MemoryProxyOptions } from "@cogni/sandbox-core/LlmProxy"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { type Agent, AgentId } from "@cogni/sandbox-graph-provider/agents/Agent"
import * as AgentCatalog from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import * as AgentOutput from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import { GrantStore, layerMemory as grantsMemory } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { type GrantInput } from "@cogni/sandbox-graph-provider/grants/GrantDraft"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import type { SubmittedRuns } from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import type { Ledger } from "@cogni/sandbox-ledger/Ledger"
import type { RunAudits } from "@cogni/sandbox-proxy/RunAudits"
import type { ConfigurationProposals } from "@cogni/sandbox-server/ConfigurationProposals"
import type { Deliveries } from "@cogni/sandbox-server/Deliveries"
import * as IdempotencyKeys from "@cogni/sandbox-server/IdempotencyKeys"
import { RunRoster } from "../src/internal/RunRoster.ts"
import * as SandboxServer from "@cogni/sandbox-server/SandboxServer"
import { type Probe, Probes } from "@cogni/sandbox-server/ServerHealth"
import type { ServerLimits } from "@cogni/sandbox-server/ServerLimits"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer, Metric, Redacted, Result } from "effect"
import { HttpServer } from "effect/http"
import { createParser, type EventSourceMessage } from "eventsource-parser"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"

export const envelope = (text: string) =>
  JSON.stringify({ payloads: [{ text }], meta: { durationMs: 1, error: null } })

/** An agent that answers immediately. */
export const answering =
  (text: string): Program =>
  ({ stdout }) =>
    Effect.as(stdout(envelope(text)), 0)

/** An agent that runs until it is terminated. */
export const lasting: Program = ({ terminated }) => Effect.as(terminated, 143)

/** An agent whose output lines are the text deltas of its answer. */
export const talker: Agent = {
  ...minimal,
  id: AgentId.make("talker"),
  name: "Talker",
  reader: AgentOutput.make({
    initial: undefined,
    feed: (_, text) => [
      text
        .split("\n")
        .filter((line) => line !== "")
        .map((delta) => ({ type: "text_delta", delta })),
      undefined
    ],
    end: () => Result.succeed({ text: "all of it" })
  })
}

export interface WorldOptions {
  readonly program?: Program
  readonly enabled?: boolean
  readonly limits?: Partial<ServerLimits>
  readonly model?: string
  readonly grants?: Layer.Layer<GrantStore>
  readonly hostNames?: ReadonlyArray<string>
  readonly trustedProxies?: ReadonlyArray<string>
  /** Directory of the page's files. */
  readonly page?: string
  readonly traceUrl?: string
  readonly probes?: ReadonlyArray<Probe>
  /** Agents in addition to the two default ones. */
  readonly agents?: ReadonlyArray<Agent>
  readonly repositories?: Layer.Layer<Repositories.Repositories>
  /** Decides which runs the accounts of grants may start. */
  readonly admissions?: LlmAdmissions
  /** Whether runs have journals (default true). */
  readonly journals?: boolean
  readonly audits?: Layer.Layer<RunAudits>
  readonly ledger?: Layer.Layer<Ledger>
  /** Model calls of every run. */
  readonly llm?: MemoryProxyOptions
  readonly deliveries?: Layer.Layer<Deliveries>
  /** Connections of accounts (default: the server has no store of them). */
  readonly connections?: Layer.Layer<ConnectionStore>
  readonly proposals?: Layer.Layer<ConfigurationProposals>
  /** Queue to which runs without a reader are submitted (default: this server runs them). */
  readonly submitted?: Layer.Layer<SubmittedRuns>
  /** Prefix of run IDs that are derived from a key. */
  readonly keyPrefix?: Parameters<typeof IdempotencyKeys.make>[1]
  /** Approvals of tool calls (default: no approver). */
  readonly approvals?: Layer.Layer<never>
  /** Remembered threads (default: none is remembered). */
  readonly threads?: Layer.Layer<never>
  /** Keep connections open on close, as a real server does. Node waits for those that have sent nothing yet. */
  readonly patient?: boolean
}

const grantInput: GrantInput = {
  userId: "user",
  billingAccountId: "acct",
  scopes: ["graph:execute:*"],
  allowSandbox: true,
  permissions: { tools: ["**"], repositories: ["**"] },
  expiresAt: null
}

const needs = (options: WorldOptions) =>
  AggregatingGraphExecutorLayer.pipe(
    Layer.provide(SandboxGraphProvider.layer({ enabled: options.enabled ?? true, models: ["gpt"] })),
    Layer.provide(options.repositories ?? Repositories.layerNoop),
    Layer.provide(GraphObserver.layerNone),
    Layer.provideMerge(AgentCatalog.layer()),
    Layer.provideMerge(
      Layer.mergeAll(
        AgentRegistry.layer([minimal, talker, ...(options.agents ?? [])]),
        options.grants ?? grantsMemory,
        IdempotencyKeys.layer(
          Effect.sync(() => crypto.getRandomValues(new Uint8Array(IdempotencyKeys.secretBytes))),
          options.keyPrefix
        ),
        SandboxRunner.layerMemory({
          program: options.program,
          llm: { admissions: options.admissions, ...options.llm }
        })
      )
    )
  )

const AggregatingGraphExecutorLayer = AggregatingGraphExecutor.layer([
  SandboxGraphProvider.SandboxGraphProvider
])

/** Starts a server. */
export const serve = (options: WorldOptions = {}) =>
  Effect.gen(function* () {
    const node = createServer()
    const operatorNode = createServer()
    const context = yield* Layer.build(
      SandboxServer.layer(
        {
          limits: options.limits,
          model: options.model ?? "gpt",
          hostNames: options.hostNames,
          trustedProxies: options.trustedProxies,
          page: options.page,
          traceUrl: options.traceUrl
        },
        NodeHttpServer.layer(() => operatorNode, { port: 0, host: "127.0.0.1" })
      ).pipe(
        Layer.provideMerge(needs(options)),
        Layer.provide(options.audits ?? Layer.empty),
        Layer.provide(options.deliveries ?? Layer.empty),
        Layer.provide(options.connections ?? Layer.empty),
        Layer.provide(options.proposals ?? Layer.empty),
        Layer.provide(options.ledger ?? Layer.empty),
        Layer.provide(options.submitted ?? Layer.empty),
        Layer.provideMerge(options.approvals ?? Layer.empty),
        Layer.provideMerge(options.threads ?? Layer.empty),
        Layer.provideMerge(options.journals === false ? Layer.empty : RunJournal.layerMemory),
        Layer.provideMerge(NodeHttpServer.layer(() => node, { port: 0, host: "127.0.0.1" }))
      )
    ).pipe(
      Effect.provideService(Metric.MetricRegistry, new Map()),
      Effect.provideService(Probes, options.probes ?? [])
    )
    if (options.patient !== true)
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          node.closeAllConnections()
          operatorNode.closeAllConnections()
        })
      )
    const server = Context.get(context, HttpServer.HttpServer)
    const grants = Context.get(context, GrantStore)
    const url = HttpServer.formatAddress(server.address)
    /** Issues a grant, and returns its token and ID. */
    const grant = (over: Partial<GrantInput> = {}) =>
      Effect.map(grants.issue({ ...grantInput, ...over }), (issued) => ({
        id: issued.grant.id,
        token: Redacted.value(issued.token)
      }))
    const roster = Context.get(context, RunRoster)
    return {
      url,
      operatorUrl: `http://127.0.0.1:${(operatorNode.address() as AddressInfo).port}`,
      grant,
      /** Waits until nothing of a run is left in the server. */
      left: (runId: string) =>
        Await.until(
          `${runId} is gone`,
          Effect.map(roster.find(RunId.make(runId)), (found) => found === undefined)
        ),
      grants,
      roster,
      runtime: Context.get(context, ContainerRuntime),
      journal: Context.get(context, RunJournal.RunJournal),
      approvals: Context.get(context, Approvals),
      store: Context.get(context, RunStore),
      caller: (over?: Partial<GrantInput>) =>
        Effect.map(Effect.orDie(grant(over)), ({ id, token }) => caller(url, token, id))
    }
  })

export interface Answer {
  readonly status: number
  readonly headers: Headers
  readonly body: any
}

const answerOf = async (response: Response): Promise<Answer> => {
  const text = await response.text()
  const isJson = response.headers.get("content-type")?.includes("json") === true
  return { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : text }
}

export const asked = (url: string, init: RequestInit = {}): Effect.Effect<Answer> =>
  Effect.promise((signal) => fetch(url, { ...init, signal }).then(answerOf))

export interface Chat {
  readonly status: number
  readonly runId: string
  readonly headers: Headers
  readonly events: ReadonlyArray<any>
  readonly messages: ReadonlyArray<EventSourceMessage>
}

export const question = { graphId: "sandbox:agent", messages: [{ role: "user", content: "Where?" }] }

/** A caller with one token. */
export const caller = (url: string, token: string, grantId: string) => {
  const headers = { authorization: `Bearer ${token}` }
  const init = (body: object, more: Record<string, string> = {}): RequestInit => ({
    method: "POST",
    headers: { ...headers, "content-type": "application/json", ...more },
    body: JSON.stringify(body)
  })
  return {
    token,
    grantId,
    headers,
    get: (path: string, more: Record<string, string> = {}) =>
      asked(`${url}${path}`, { headers: { ...headers, ...more } }),
    send: (path: string, body: object, more?: Record<string, string>) =>
      asked(`${url}${path}`, init(body, more)),
    delete: (path: string) => asked(`${url}${path}`, { method: "DELETE", headers }),
    /** Sends a chat request, and reads the whole response. */
    post: (body: object, more?: Record<string, string>) => asked(`${url}/api/v1/ai/chat`, init(body, more)),
    /** Sends a chat request whose response is read as a stream. It ends with its scope. */
    open: (body: object, more?: Record<string, string>, query = "") =>
      Effect.map(
        Effect.acquireRelease(
          Effect.sync(() => new AbortController()),
          (controller) => Effect.sync(() => controller.abort())
        ),
        (controller) => ({
          controller,
          response: fetch(`${url}/api/v1/ai/chat${query}`, { ...init(body, more), signal: controller.signal })
        })
      ).pipe(
        Effect.flatMap(({ controller, response }) =>
          Effect.map(
            Effect.promise(() => response),
            (response) => ({ controller, response, runId: response.headers.get("x-cogni-run-id") ?? "" })
          )
        )
      ),
    /** Sends a chat request, and parses all its events with a third-party parser. */
    chat: (body: object = question, more?: Record<string, string>) =>
      Effect.promise(async (signal): Promise<Chat> => {
        const response = await fetch(`${url}/api/v1/ai/chat`, { ...init(body, more), signal })
        const messages: Array<EventSourceMessage> = []
        const parser = createParser({ onEvent: (message) => messages.push(message) })
        parser.feed(await response.text())
        return {
          status: response.status,
          runId: response.headers.get("x-cogni-run-id") ?? "",
          headers: response.headers,
          events: messages.map(({ data }) => JSON.parse(data)),
          messages
        }
      })
  }
}
