/**
 * Tool calls of one run: which tools it may call, what is audited, and what the agent gets back.
 *
 * The socket identifies the run; a call that names another run is refused. This module knows neither HTTP nor MCP: both
 * use the same `call`, so the same rules and the same audit apply to both.
 */
import { Context, Deferred, Duration, Effect, Semaphore } from "effect"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { LlmIdentity } from "@cogni/sandbox-core/SpecFields"
import * as ToolAccess from "@cogni/sandbox-core/ToolAccess"
import * as Tool from "@cogni/sandbox-loop/Tool"
import * as ToolSet from "@cogni/sandbox-loop/ToolSet"
import type { ToolCalled } from "./AuditEntry.ts"
import * as ApprovedTool from "./internal/ApprovedTool.ts"
import { sha256 } from "./internal/audit/AuditChain.ts"

export interface ToolGatewayOptions {
  readonly runId: RunId
  readonly identity: LlmIdentity
  /** All tools of the host. */
  readonly tools: ReadonlyArray<Tool.Tool>
  /** The tools that the run may call, and the rules for them. */
  readonly request: ToolAccess.ToolRequest
  readonly approvals: Omit<ApprovedTool.ApprovedToolOptions, "runId" | "identity" | "goneOf">
  readonly concurrentMax?: number | undefined
  /** Inspects the arguments for secrets. Returns true if the call must be refused. */
  readonly inspect: (argumentsText: string, requestId: string) => boolean
  readonly called: (fact: typeof ToolCalled.Type) => void
}

export interface ToolCall {
  readonly requestId: string
  readonly via: "http" | "mcp"
  readonly tool: string
  readonly input: unknown
  /** Run ID that the caller claims, if any. */
  readonly runId?: string | undefined
  /** Succeeds when the client no longer waits for the answer. A call that waits for an approval then gives up. */
  readonly gone?: Effect.Effect<void> | undefined
}

export interface ToolGateway {
  /** Tools that the run may call. */
  readonly allowed: ReadonlyArray<Tool.Tool>
  readonly call: (call: ToolCall) => Effect.Effect<unknown, Tool.ToolFailed>
  /** Interrupts every call in progress and audits each one. Later calls are refused. */
  readonly close: Effect.Effect<void>
}

/** Maximum size of the arguments of one call, in bytes, for every tool. */
export const argumentsBytesMax = 256 * 1024

/** How long tools may take to stop when their run ends. */
const closeMillisMax = 1000

export const make = Effect.fnUntraced(function* (options: ToolGatewayOptions): Effect.fn.Return<ToolGateway> {
  const { identity, runId, tools } = options
  const goneOf = new Map<string, Effect.Effect<void>>()
  const approved = ApprovedTool.make({
    ...options.approvals,
    runId,
    identity,
    goneOf: (requestId) => goneOf.get(requestId) ?? Effect.never
  })
  // Decided once for each tool, before any call: see `ToolAccess`.
  const allowed = ToolSet.make(
    tools.flatMap((tool) => {
      const access = ToolAccess.decide(options.request, {
        name: tool.name,
        effect: ToolAccess.effectOf(tool)
      })
      return access === "closed" ? [] : [access === "ask" ? approved(tool) : tool]
    })
  )
  const turns = yield* Semaphore.make(options.concurrentMax ?? 16)
  // A tool acts for the user of its run, whatever fiber serves the call, and on whose behalf.
  const ofRun = yield* Effect.context<never>()
  const inRun = <A, E>(call: Effect.Effect<A, E>) =>
    Effect.flatMap(Effect.context<never>(), (ofCall) =>
      Effect.provideContext(call, Context.merge(ofCall, ofRun))
    )
  const over = yield* Deferred.make<never, Tool.ToolFailed>()
  const isOver = new Tool.ToolFailed({ code: "unavailable", detail: "the run has ended" })
  /** One function per call in progress: audits it as interrupted, unless its end is already audited. */
  const open = new Set<() => void>()
  let onIdle: (() => void) | undefined
  let closed = false

  const execute = (call: ToolCall, text: string) =>
    Effect.suspend(() => {
      if (call.runId !== undefined && call.runId !== runId)
        return refused("policy_denied", "this socket belongs to another run. Omit runId")
      if (Buffer.byteLength(text) > argumentsBytesMax)
        return refused("validation", `the arguments are larger than ${argumentsBytesMax} bytes. Shorten them`)
      if (options.inspect(text, call.requestId))
        return refused("policy_denied", "the arguments contain a secret that may not leave this sandbox")
      const context = { runId, identity, requestId: call.requestId }
      return turns.withPermit(inRun(allowed.call(call.tool, call.input, context)))
    })

  return {
    allowed: allowed.offered,
    call: (call) =>
      Effect.suspend(() => {
        const text = textOf(call.input)
        const startedMs = performance.now()
        const say = (outcome: string, result: string) => {
          if (!open.delete(interrupted)) return
          const known = tools.find(({ name }) => name === call.tool)
          options.called({
            type: "tool.called",
            requestId: call.requestId,
            tool: call.tool.slice(0, 100),
            ...(known === undefined ? {} : { effect: ToolAccess.effectOf(known) }),
            via: call.via,
            argumentsBytes: Buffer.byteLength(text),
            argumentsDigest: sha256(text),
            outcome,
            resultBytes: Buffer.byteLength(result),
            resultDigest: sha256(result),
            durationMs: Math.round((performance.now() - startedMs) * 1000) / 1000
          })
          if (open.size === 0) onIdle?.()
        }
        const interrupted = () => say("interrupted", "")
        if (closed) return Effect.fail(isOver)
        open.add(interrupted)
        if (call.gone !== undefined) goneOf.set(call.requestId, call.gone)
        return Effect.raceFirst(execute(call, text), Deferred.await(over)).pipe(
          Effect.tap((result) => Effect.sync(() => say("ok", textOf(result)))),
          Effect.tapError((error) =>
            Effect.sync(() => (error === isOver ? interrupted() : say(error.code, error.detail)))
          ),
          Effect.onExit(() =>
            Effect.sync(() => {
              goneOf.delete(call.requestId)
              interrupted()
            })
          )
        )
      }),
    close: Effect.callback<void>((resume) => {
      closed = true
      onIdle = () => resume(Effect.void)
      if (open.size === 0) onIdle()
      Deferred.doneUnsafe(over, Effect.fail(isOver))
    }).pipe(
      Effect.timeoutOption(Duration.millis(closeMillisMax)),
      // A tool that does not stop may already have had its effect.
      Effect.andThen(Effect.sync(() => [...open].forEach((interrupted) => interrupted())))
    )
  }
})

const refused = (code: Tool.ToolErrorCode, detail: string) =>
  Effect.fail(new Tool.ToolFailed({ code, detail }))

const textOf = (value: unknown): string => JSON.stringify(value) ?? "null"
