/**
 * Serves the tool paths of a run's socket: `/tool/exec`, `/tool/list`, `/tool/schema`, and `/mcp`.
 *
 * Runs in the main thread, where the host's tools have their effects. The run's shard has already limited the requests.
 */
import { Effect, Option, type Scope, Schema } from "effect"
import type { Tool, ToolErrorCode } from "@cogni/sandbox-loop/Tool"
import type { Approval } from "@cogni/sandbox-core/Approval"
import * as Canary from "@cogni/sandbox-core/Canary"
import * as ToolAccess from "@cogni/sandbox-core/ToolAccess"
import type { LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import type { Evidence } from "@cogni/sandbox-core/RunFigures"
import type { LlmAccess } from "@cogni/sandbox-core/SpecFields"
import { type Answer, json } from "./gateway/GatewayAnswers.ts"
import * as GatewayAnswers from "./gateway/GatewayAnswers.ts"
import * as ToolGateway from "../ToolGateway.ts"
import type { ToolApproval, ToolCalled } from "../AuditEntry.ts"
import { newRequestId } from "./gateway/Exchange.ts"
import * as McpServer from "@cogni/sandbox-loop/McpServer"
import type { ToolRequest } from "./gateway/ToolPort.ts"

const Exec = Schema.Struct({
  tool: Schema.String,
  args: Schema.optionalKey(Schema.Unknown),
  runId: Schema.optionalKey(Schema.String)
})

/** The same call with the names of the source documents. Its answer has their names too. */
const NamedExec = Schema.Struct({
  runId: Schema.String,
  toolName: Schema.String,
  args: Schema.optionalKey(Schema.Unknown),
  toolCallId: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(200)))
})

const parseJson = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Unknown))

const decodeExec = Schema.decodeUnknownOption(Exec, { onExcessProperty: "error" })

const decodeNamedExec = Schema.decodeUnknownOption(NamedExec, { onExcessProperty: "error" })

/** HTTP status of a failed call, by error code. */
const statuses: Readonly<Record<ToolErrorCode, number>> = {
  invalid_json: 400,
  validation: 400,
  policy_denied: 403,
  execution: 500,
  redaction_failed: 500,
  unavailable: 503,
  timeout: 504
}

export interface GatewayTools {
  /** Answers a request. A call that waits for an approval gives up when `gone` succeeds: its client has gone. */
  readonly handle: (request: ToolRequest, gone: Effect.Effect<void>) => Effect.Effect<Answer>
  /** Ends the calls in progress, so that all of them are reported before the run's audit is closed. */
  readonly close: Effect.Effect<void>
}

/** Tools of a run without a model: none, and no way to them. */
export const none: GatewayTools = {
  handle: () => Effect.succeed(notFound),
  close: Effect.void
}

/** Approvals of the host. */
export type GatewayApprovals = Pick<
  ToolGateway.ToolGatewayOptions["approvals"],
  "approvals" | "waitSecondsMax"
>

export const make = Effect.fnUntraced(function* (options: {
  readonly request: LlmRequest & { readonly llm: LlmAccess }
  readonly tools: ReadonlyArray<Tool>
  /** Called for each canary that is detected in the arguments of a call. */
  readonly sighted: (sighting: Omit<Evidence, "at">) => void
  /** Called for each ended call, for the audit that the run's shard writes. */
  readonly called: (fact: typeof ToolCalled.Type) => void
  readonly approvals: GatewayApprovals
  /** Called when a call begins to wait for an approval, and when that has ended. */
  readonly approval: (fact: ToolApproval) => void
}): Effect.fn.Return<GatewayTools, never, Scope.Scope> {
  const { request } = options
  const { planted } = request.canaries
  const gateway = yield* ToolGateway.make({
    runId: request.runId,
    identity: request.llm.identity,
    tools: options.tools,
    request: { tools: request.tools, rules: request.toolRules },
    approvals: {
      ...options.approvals,
      hasSecret: (text) => Canary.look(planted, Buffer.from(text, "utf8")).length > 0,
      witness: {
        requested: (approval) =>
          Effect.suspend(() => {
            options.approval(requestedOf(approval))
            return request.observe({ _tag: "ApprovalRequested", approval })
          }),
        ended: (approval) =>
          Effect.suspend(() => {
            const fact = decidedOf(approval)
            if (fact === undefined) return Effect.void
            options.approval(fact)
            return request.observe({ _tag: "ApprovalDecided", approval })
          })
      }
    },
    inspect: (text, requestId) => {
      const sightings = Canary.look(planted, Buffer.from(text, "utf8"))
      for (const sighting of sightings) options.sighted({ ...sighting, channel: "tool_call", requestId })
      return sightings.length > 0 && request.canaries.policy === "stop"
    },
    called: (fact) => options.called({ ...fact, tool: Canary.redact(planted, fact.tool) })
  })
  yield* warnOfRules(request, options.tools)
  const mcpOf = (gone: Effect.Effect<void>): McpServer.McpOptions => ({
    registry: {
      offered: gateway.allowed,
      call: (tool, input) => gateway.call({ requestId: newRequestId(), via: "mcp", tool, input, gone })
    },
    session: { runId: request.runId, identity: request.llm.identity }
  })

  const exec = (requestId: string, body: Uint8Array, gone: Effect.Effect<void>): Effect.Effect<Answer> => {
    const parsed = parseJson(Buffer.from(body).toString("utf8"))
    if (Option.isNone(parsed)) return Effect.succeed(failed("invalid_json", "the request is not JSON"))
    const named = Option.getOrUndefined(decodeNamedExec(parsed.value))
    const call =
      named === undefined
        ? Option.getOrUndefined(decodeExec(parsed.value))
        : { tool: named.toolName, args: named.args, runId: named.runId }
    if (call === undefined)
      return Effect.succeed(failed("validation", 'send {"tool": "<name>", "args": {…}} and nothing else'))
    return gateway
      .call({ requestId, via: "http", tool: call.tool, input: call.args ?? {}, runId: call.runId, gone })
      .pipe(
        Effect.match({
          onSuccess: (result) =>
            json(200, named === undefined ? { ok: true, result } : { ok: true, value: result }),
          onFailure: ({ code, detail }) =>
            named === undefined
              ? failed(code, detail)
              : json(statuses[code], { ok: false, errorCode: code, safeMessage: detail })
        })
      )
  }

  const described = ({ description, effect, name }: Tool) => ({ name, description, effect })

  const schemaOf = (query: string): Answer => {
    const name = new URLSearchParams(query).get("tool") ?? ""
    const tool = gateway.allowed.find((candidate) => candidate.name === name)
    return tool === undefined
      ? failed("policy_denied", `this sandbox may not call ${JSON.stringify(name.slice(0, 100))}`)
      : json(200, { ...described(tool), inputSchema: tool.inputSchema })
  }

  return {
    handle: ({ body, headers, method, path, query, requestId }, gone) => {
      if (path === "/mcp") return overMcp(mcpOf(gone), { body, headers, method })
      switch (`${method} ${path}`) {
        case "POST /tool/exec":
          return exec(requestId, body, gone)
        case "GET /tool/list":
          return Effect.sync(() => json(200, { tools: gateway.allowed.map(described) }))
        case "GET /tool/schema":
          return Effect.sync(() => schemaOf(query))
        default:
          return Effect.succeed(notFound)
      }
    },
    close: gateway.close
  }
})

/** A mistyped rule covers nothing, and another one may open what it was meant for. */
const warnOfRules = ({ runId, toolRules = [] }: LlmRequest, tools: ReadonlyArray<Tool>) =>
  Effect.forEach(
    ToolAccess.withoutTool(toolRules, tools),
    (rule) =>
      Effect.logWarning(
        `${runId}: the rule ${ToolAccess.ruleText(rule)} covers no tool of this host, so it restricts nothing. ` +
          "Correct it, or remove it"
      ),
    { discard: true }
  )

const requestedOf = (approval: Approval): ToolApproval => ({
  type: "tool.approval_requested",
  requestId: approval.requestId,
  approvalId: approval.id,
  tool: approval.tool,
  effect: approval.effect,
  argumentsBytes: Buffer.byteLength(approval.arguments),
  argumentsDigest: approval.argumentsDigest,
  expiresAt: approval.expiresAt
})

const decidedOf = ({
  argumentsDigest,
  decidedBy,
  id,
  requestId,
  status,
  tool
}: Approval): ToolApproval | undefined =>
  status === "pending"
    ? undefined
    : {
        type: "tool.approval_decided",
        requestId,
        approvalId: id,
        tool,
        argumentsDigest,
        decision: status,
        ...(decidedBy === undefined ? {} : { decidedBy })
      }

const notFound = GatewayAnswers.render(GatewayAnswers.known("path_not_allowed"), "openai")

const failed = (code: ToolErrorCode, message: string): Answer =>
  GatewayAnswers.toolError(statuses[code], code, message)

const overMcp = Effect.fnUntraced(function* (
  mcp: McpServer.McpOptions,
  { body, headers, method }: Pick<ToolRequest, "body" | "headers" | "method">
) {
  // A stream from the server would have no events, because tools do not change during a run.
  if (method !== "POST") return GatewayAnswers.render(GatewayAnswers.known("method_not_allowed"), "openai")
  const response = yield* McpServer.answerHttp(mcp, headers, body)
  return {
    status: response.status,
    headers: { "content-type": response.headers.get("content-type") ?? "application/json" },
    body: yield* Effect.promise(() => response.text())
  }
})
