/**
 * Handles messages: selects the agent, the session and the place of execution, and returns the reply.
 *
 * A message is handled under one configuration from start to end. Messages of one session are answered one after the
 * other, in order of arrival; those of different sessions concurrently. If a required sandbox is unavailable, nothing
 * executes on the host unless the configuration allows it. The use of the host is reported at startup, each time it
 * happens, and in the reply.
 */
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import { Cause, Context, Duration, Effect, Function, Layer, Option, Schema, type Scope, Stream } from "effect"
import type { AgentConfig } from "../config/AgentConfig.ts"
import * as AgentRouter from "./AgentRouter.ts"
import * as Configuration from "../config/Configuration.ts"
import * as ConfigurationError from "../config/ConfigurationError.ts"
import { ConfigurationStore } from "../config/ConfigurationStore.ts"
import { Executors } from "../executor/Executors.ts"
import * as SessionExecution from "../internal/SessionExecution.ts"
import * as SessionTable from "../internal/SessionTable.ts"
import {
  HostUnavailable,
  MessageError,
  MessageInvalid,
  MessageTimedOut,
  RouterStopping,
  SessionBusy,
  SessionsFull
} from "./MessageError.ts"
import * as Orchestrator from "./Orchestrator.ts"
import type { ToolRegistry } from "@cogni/sandbox-loop/ToolRegistry"

/** The reply to a message. */
export interface Reply extends SessionExecution.Execution {
  readonly text: string
  readonly agent: string
  /** Key of the session: `channel:sender:agent`. */
  readonly key: string
  /** The rule that selected the agent. */
  readonly rule: AgentRouter.Rule
  /** ID of the message, as sent. */
  readonly messageId?: string | undefined
}

export interface SessionView {
  readonly key: string
  /** Messages that are being answered or wait for their turn. */
  readonly messages: number
  /** Seconds since the last message was answered; 0 while there are messages. */
  readonly idleSeconds: number
}

/** Creates the tools of a session over its executor. */
export type ToolsFor = (input: {
  /** The configuration in use when the session is created. */
  readonly configuration: Configuration.Configuration
  readonly agent: AgentConfig
  readonly key: string
  readonly executor: Orchestrator.OrchestratorInput["executor"]
}) => Effect.Effect<ToolRegistry, { readonly message: string }, Scope.Scope>

export interface RouterOptions {
  readonly toolsFor: ToolsFor
  /** Time from a message's turn to its reply, including the creation of the session (default 900). */
  readonly messageSecondsMax?: number | undefined
  /** Messages of one session that are being answered or wait (default 32). */
  readonly messagesPerSessionMax?: number | undefined
  /** How long to wait for a session to close (default 30). */
  readonly closeSecondsMax?: number | undefined
}

export class MessageRouter extends Context.Service<
  MessageRouter,
  {
    readonly handle: (message: Orchestrator.Message) => Effect.Effect<Reply, MessageError>
    readonly sessions: Effect.Effect<ReadonlyArray<SessionView>>
  }
>()("@cogni/sandbox-sessions/MessageRouter") {}

type Reason = MessageError["reason"]

/** The value that a session holds. */
interface AnsweringSession {
  readonly orchestrator: Orchestrator.Orchestrator
  readonly execution: SessionExecution.SessionExecution
}

/** A message with everything that was decided when it arrived. */
interface Routed {
  readonly message: Orchestrator.Message
  readonly configuration: Configuration.Configuration
  readonly resolution: AgentRouter.Resolution
  readonly key: string
}

const make = Effect.fnUntraced(function* (options: RouterOptions) {
  const { closeSecondsMax = 30, messageSecondsMax = 900, messagesPerSessionMax = 32, toolsFor } = options
  const store = yield* ConfigurationStore
  const executors = yield* Executors
  const orchestrators = yield* Orchestrator.Orchestrators
  const sessions = yield* SessionTable.make<AnsweringSession, Reason>({
    closeSecondsMax,
    idleSeconds: Effect.map(store.current, ({ sandbox }) => sandbox.idleSeconds)
  })
  const routerOf = Function.memoize<Configuration.Configuration, AgentRouter.AgentRouter>(AgentRouter.make)

  const route = Effect.fnUntraced(function* (input: Orchestrator.Message) {
    const message = yield* decodeMessage(input).pipe(
      Effect.mapError(
        (error) => new MessageError({ reason: new MessageInvalid({ problems: problemsOf(error) }) })
      )
    )
    const configuration = yield* store.current
    const resolution = routerOf(configuration).resolve(message)
    const key = AgentRouter.keyOf(message, resolution.agent.name)
    return { message, configuration, resolution, key } satisfies Routed
  })

  /** Creates a session. Closing its scope ends the running work of its tools and its orchestrator. */
  const build = Effect.fnUntraced(function* ({ configuration, key, resolution: { agent } }: Routed) {
    const execution = SessionExecution.make({
      key,
      agent: agent.name,
      place: placeOf(configuration, agent),
      onUnavailable: configuration.sandbox.onUnavailable,
      executors
    })
    const { bound, executor } = execution
    const tools = yield* toolsFor({ configuration, agent, key, executor }).pipe(
      Effect.mapError(
        ({ message }) =>
          new Orchestrator.OrchestratorFailed({
            detail: `the agent ${agent.name} has no tools: ${message}`,
            remedy: "Check tool_profile and tool_overrides in its configuration",
            isRetryable: false
          })
      )
    )
    const model = configuration.models[agent.modelTier]
    const orchestrator = yield* orchestrators.make({ agent, key, executor, bound, tools, model })
    return { orchestrator, execution } satisfies AnsweringSession
  })

  const answer = (routed: Routed) => {
    const { configuration, key, message, resolution } = routed
    const { agent, rule } = resolution
    const toError = (reason: Reason) => new MessageError({ key, agent: agent.name, reason })
    const detail = whyHost(configuration, agent)
    if (detail !== undefined && Option.isNone(executors.host)) {
      return Effect.fail(toError(new HostUnavailable({ detail })))
    }
    const reply = ({ execution, orchestrator }: AnsweringSession) =>
      Effect.map(
        execution.during(guarded(agent)(orchestrator.handle(message))),
        ([{ text }, where]): Reply => ({
          text,
          agent: agent.name,
          key,
          rule,
          ...where,
          messageId: message.messageId
        })
      )
    const recipe = {
      fingerprint: Configuration.fingerprint(configuration, agent),
      make: guarded(agent)(build(routed))
    }
    const stopped = Effect.andThen(sessions.stopping, Effect.fail(new RouterStopping()))
    const turn = (seat: SessionTable.Seat<AnsweringSession, Reason>) =>
      Effect.scoped(Effect.flatMap(seat.hold(recipe), reply)).pipe(
        Effect.timeoutOrElse({
          duration: Duration.seconds(messageSecondsMax),
          orElse: () => Effect.fail(new MessageTimedOut({ messageSecondsMax }))
        }),
        Effect.raceFirst(stopped),
        seat.turn.withPermit
      )
    const bounds = { ...configuration.sandbox, usersMax: messagesPerSessionMax }
    return sessions.seat(key, bounds).pipe(
      Effect.flatMap(turn),
      Effect.scoped,
      Effect.catchTag("SessionRefusal", ({ refusal }) =>
        Effect.fail(
          refusal === "full"
            ? new SessionsFull(bounds)
            : refusal === "busy"
              ? new SessionBusy({ messagesPerSessionMax })
              : new RouterStopping()
        )
      ),
      Effect.mapError(toError)
    )
  }

  const handle = Effect.fn("MessageRouter.handle")(function* (input: Orchestrator.Message) {
    const routed = yield* route(input)
    yield* Effect.annotateCurrentSpan(Telemetry.attribute.agentId, routed.resolution.agent.name)
    const reply = yield* answer(routed)
    yield* Effect.annotateCurrentSpan({
      [Telemetry.attribute.executor]: reply.executor,
      [Telemetry.attribute.executorFallback]: reply.fallback,
      ...(reply.runId === undefined ? {} : { [Telemetry.attribute.runId]: reply.runId })
    })
    return reply
  })

  const first = yield* store.current
  yield* announce(first, executors)
  yield* Stream.runForEach(store.changes, (next) =>
    next === first ? Effect.void : announce(next, executors)
  ).pipe(Effect.forkScoped({ startImmediately: true }))
  return MessageRouter.of({
    handle,
    sessions: Effect.map(sessions.list, (views) =>
      views.map(({ idleSeconds, key, users }) => ({ key, messages: users, idleSeconds }))
    )
  })
})

/** Closing the layer ends all sessions within a bounded time. */
export const layer = (
  options: RouterOptions
): Layer.Layer<MessageRouter, never, ConfigurationStore | Executors | Orchestrator.Orchestrators> =>
  Layer.effect(MessageRouter, make(options))

const decodeMessage = Schema.decodeUnknownEffect(Orchestrator.Message, {
  errors: "all",
  onExcessProperty: "error"
})

const placeOf = ({ sandbox }: Configuration.Configuration, agent: AgentConfig): "sandbox" | "host" =>
  sandbox.enabled && agent.sandbox ? "sandbox" : "host"

/** Returns why an agent executes on the host, or `undefined` if it does not. */
const whyHost = (configuration: Configuration.Configuration, agent: AgentConfig): string | undefined =>
  placeOf(configuration, agent) === "sandbox"
    ? undefined
    : configuration.sandbox.enabled
      ? `the agent ${agent.name} has sandbox: false`
      : "sandbox.enabled is false"

/** Logs what runs outside of sandboxes, before the first message and after each change. */
const announce = Effect.fnUntraced(function* (
  configuration: Configuration.Configuration,
  { host }: Executors["Service"]
) {
  const { agents, file, sandbox, warnings } = configuration
  for (const warning of warnings) {
    yield* Effect.logWarning(`${file}:${ConfigurationError.describe(warning)}`)
  }
  if (Option.isSome(host)) return
  const without = agents.list.filter((agent) => placeOf(configuration, agent) === "host")
  if (without.length > 0) {
    yield* Effect.logWarning(
      `there is no host executor: messages for ${without.map(({ name }) => name).join(", ")} are refused`
    )
  }
  if (sandbox.enabled && sandbox.onUnavailable === "host") {
    yield* Effect.logWarning(
      "there is no host executor: while the engine is absent, commands are refused, although on_unavailable is host"
    )
  }
})

/** Reports a defect to the caller as a failure without details, and logs its cause. */
const guarded =
  ({ name }: AgentConfig) =>
  <A, R>(
    effect: Effect.Effect<A, Orchestrator.OrchestratorFailed, R>
  ): Effect.Effect<A, Orchestrator.OrchestratorFailed, R> =>
    Effect.catchDefect(effect, (defect) =>
      Effect.andThen(
        Effect.logError(`the agent ${name} has a defect`, Cause.die(defect)),
        Effect.fail(
          new Orchestrator.OrchestratorFailed({
            detail: `the agent ${name} failed with an internal error`,
            remedy: "Ask the operator of this host for the cause",
            isRetryable: false
          })
        )
      )
    )
