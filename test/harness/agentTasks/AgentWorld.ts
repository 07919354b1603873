/** Runs an agent as a graph does: through the provider, in a container, behind the gateway, with a scripted model. */
import { RunId } from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import * as AgentOutput from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import type { GraphRunRequest } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import type { GraphFinal } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import { Effect, Layer, Redacted, type Result, Stream } from "effect"
import { chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Images from "../Images.ts"
import * as Pace from "../Pace.ts"
import * as RunHarness from "../RunHarness.ts"
import * as ScriptedModel from "../ScriptedModel.ts"

export const key = "sk-planted-7f31c0-for-agents"
export const account = "acct-agents"

/** A new run ID. It is random, because two test files that run at once name containers on the same engine. */
const nextRunId = () => RunId.make(`run-agents-${crypto.randomUUID()}`)

export interface Worked {
  readonly events: ReadonlyArray<AiEvent>
  readonly final: GraphFinal
  /** Result of the agent's reader. */
  readonly read: Result.Result<AgentOutput.AgentAnswer, AgentOutput.AgentFailed> | undefined
  readonly upstream: ScriptedModel.ScriptedModel
}

/** A workspace of an ordinary user whose ID no image knows. */
export const workspace = (files: Readonly<Record<string, string>> = {}) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const path = mkdtempSync(join(tmpdir(), "cogni-agent-"))
      for (const [file, content] of Object.entries(files)) writeFileSync(join(path, file), content)
      if (process.getuid?.() === 0)
        for (const one of ["", ...Object.keys(files)]) chownSync(join(path, one), 4711, 4711)
      return path
    }),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )

const grants = Layer.mock(GrantStore, {
  find: (id) =>
    Effect.succeed({
      id,
      userId: "user",
      billingAccountId: account,
      scopes: ["graph:execute:*"],
      allowSandbox: true,
      permissions: {},
      expiresAt: null,
      revokedAt: null,
      createdAt: new Date(0)
    })
})

/** Executes a run of an agent to its end. Fails if it leaves anything behind. */
export const work = Effect.fnUntraced(function* (
  agent: Agent,
  script: ScriptedModel.Script,
  workspacePath: string,
  request: Pick<GraphRunRequest, "budget" | "messages" | "model" | "personality">
) {
  const upstream = yield* ScriptedModel.acquire(script)
  const runId = nextRunId()
  let read: Worked["read"]
  const reader = AgentOutput.make<AgentOutput.AgentReader>({
    initial: agent.reader,
    feed: (now, text) => now.feed(text),
    end: (now) => (read = now.end())
  })
  const runner = RunHarness.layer(
    GatewayLlmProxy.layer({ url: upstream.url, key: Redacted.make(key), image: Images.gateway }).pipe(
      Layer.provide(UsageObserver.layerNone)
    )
  )
  const provider = SandboxGraphProvider.layer({
    enabled: true,
    models: ["**"],
    imageOf: Images.ofAgent,
    workspaceOf: () => ({ type: "directory", path: workspacePath })
  }).pipe(
    Layer.provide([
      AgentRegistry.layer([{ ...agent, reader }]),
      grants,
      GraphObserver.layerNone,
      Repositories.layerNoop
    ]),
    Layer.provide(runner)
  )
  const told = yield* Effect.scoped(
    Effect.gen(function* () {
      const { run } = yield* SandboxGraphProvider.SandboxGraphProvider
      const live = yield* run(
        {
          ...request,
          graphId: GraphId.make(`sandbox:${agent.id}`),
          caller: {
            billingAccountId: account,
            virtualKeyId: "vk",
            requestId: "request",
            traceId: "trace"
          },
          runtimeSecondsMax: Pace.runSecondsMax
        },
        { runId, attempt: 0, ingressRequestId: "ingress", grantId: "grant" }
      )
      const events: ReadonlyArray<AiEvent> = [...(yield* Stream.runCollect(live.events))]
      return { events, final: yield* live.final }
    })
  ).pipe(Effect.provide(provider))
  return { ...told, read, upstream } satisfies Worked
})
