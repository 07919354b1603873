/**
 * The tools of one run: who may call what, what was called, and what the agent hears of it.
 *
 * Whoever speaks over the run's socket is that run; a call that names another is refused. Nothing here knows HTTP or
 * MCP: both ask the same `call`, so both are held and written down alike.
 */
import { Deferred, Duration, Effect, Semaphore } from "effect"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { LlmIdentity } from "@cogni/sandbox-core/SandboxSpec"
import * as Tool from "@cogni/sandbox-loop/Tool"
import type { ToolCalled } from "./AuditEntry.ts"
import { sha256 } from "./internal/audit/AuditChain.ts"

export interface ToolGatewayOptions {
  readonly runId: RunId
  readonly identity: LlmIdentity
  readonly policy: Tool.ToolPolicy
  readonly tools: ReadonlyArray<Tool.Tool>
  readonly concurrentMax?: number | undefined
  /** Looks for what must not go out; true where the call must not happen. */
  readonly inspect: (argumentsText: string, requestId: string) => boolean
  readonly called: (fact: typeof ToolCalled.Type) => void
}

export interface ToolCall {
  readonly requestId: string
  readonly via: "http" | "mcp"
  readonly tool: string
  readonly input: unknown
  /** The run that the caller says it is, if it says so. */
  readonly runId?: string | undefined
}

export interface ToolGateway {
  /** Those that the run may call. */
  readonly allowed: ReadonlyArray<Tool.Tool>
  readonly call: (call: ToolCall) => Effect.Effect<unknown, Tool.ToolFailed>
  /** Interrupt every call that is under way, and see that each is written down. None begins any more. */
  readonly close: Effect.Effect<void>
}

/** What all tools of a run may be asked in one call. */
export const argumentsBytesMax = 256 * 1024

/** How long tools may take to stop when their run is over. */
const closeMillisMax = 1000

export const make = Effect.fnUntraced(function* (options: ToolGatewayOptions): Effect.fn.Return<ToolGateway> {
  const { identity, policy, runId, tools } = options
  const turns = yield* Semaphore.make(options.concurrentMax ?? 16)
  const over = yield* Deferred.make<never, Tool.ToolFailed>()
  const isOver = new Tool.ToolFailed({ code: "unavailable", detail: "the sandbox is over" })
  /** Of each call under way: writes it down as interrupted, unless its end is written down already. */
  const open = new Set<() => void>()
  let onIdle: (() => void) | undefined
  let closed = false

  const execute = (call: ToolCall, text: string) =>
    Effect.suspend(() => {
      const decided = Tool.decide(policy, tools, call.tool)
      if (decided instanceof Tool.ToolFailed) return Effect.fail(decided)
      if (call.runId !== undefined && call.runId !== runId)
        return refused("policy_denied", "this socket is another run's. Leave runId out")
      if (Buffer.byteLength(text) > argumentsBytesMax)
        return refused("validation", `the arguments are over ${argumentsBytesMax} bytes. Ask for less`)
      if (options.inspect(text, call.requestId))
        return refused("policy_denied", "the arguments hold a secret of this sandbox, and may not leave it")
      return turns.withPermit(
        Tool.called(decided, call.input, { runId, identity, requestId: call.requestId })
      )
    })

  return {
    allowed: tools.filter((tool) => !(Tool.decide(policy, tools, tool.name) instanceof Tool.ToolFailed)),
    call: (call) =>
      Effect.suspend(() => {
        const text = textOf(call.input)
        const startedMs = performance.now()
        const say = (outcome: string, result: string) => {
          if (!open.delete(interrupted)) return
          const effect = tools.find(({ name }) => name === call.tool)?.effect
          options.called({
            type: "tool.called",
            requestId: call.requestId,
            tool: call.tool.slice(0, 100),
            ...(effect === undefined ? {} : { effect }),
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
        return Effect.raceFirst(execute(call, text), Deferred.await(over)).pipe(
          Effect.tap((result) => Effect.sync(() => say("ok", textOf(result)))),
          Effect.tapError((error) =>
            Effect.sync(() => (error === isOver ? interrupted() : say(error.code, error.detail)))
          ),
          Effect.onExit(() => Effect.sync(interrupted))
        )
      }),
    close: Effect.callback<void>((resume) => {
      closed = true
      onIdle = () => resume(Effect.void)
      if (open.size === 0) onIdle()
      Deferred.doneUnsafe(over, Effect.fail(isOver))
    }).pipe(
      Effect.timeoutOption(Duration.millis(closeMillisMax)),
      // A tool that does not stop may have done what it was asked for.
      Effect.andThen(Effect.sync(() => [...open].forEach((interrupted) => interrupted())))
    )
  }
})

const refused = (code: Tool.ToolErrorCode, detail: string) =>
  Effect.fail(new Tool.ToolFailed({ code, detail }))

const textOf = (value: unknown): string => JSON.stringify(value) ?? "null"
