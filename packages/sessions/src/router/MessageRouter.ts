/**
 * From a message to its reply: which agent answers, in which session, and where that executes.
 *
 * A message is handled under one configuration, from the rule that decides to the last word. Messages of one session
 * are answered one after the other, in the order they came; those of different ones at the same time. Without a
 * sandbox, where there is to be one, nothing executes on the host unless the configuration says so, and then it is
 * said: at the start, each time it happens, and in the reply.
 */
import { problemsOf } from "@cogni/sandbox-core/SandboxSpec"
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

/** What came of a message. */
export interface Reply extends SessionExecution.Execution {
  readonly text: string
  readonly agent: string
  /** The session's: `channel:sender:agent`. */
  readonly key: string
  /** Why it was this agent. */
  readonly rule: AgentRouter.Rule
  /** The message's own. */
  readonly messageId?: string | undefined
}

export interface SessionView {
  readonly key: string
  /** Messages that are being answered or wait. */
  readonly messages: number
  /** Seconds since the last one was answered; 0 while there are some. */
  readonly idleSeconds: number
}

/** What a session is given to call, over its executor. */
export type ToolsFor = (input: {
  /** The one that the session is made under. */
  readonly configuration: Configuration.Configuration
  readonly agent: AgentConfig
  readonly key: string
  readonly executor: Orchestrator.OrchestratorInput["executor"]
}) => Effect.Effect<ToolRegistry, { readonly message: string }, Scope.Scope>

export interface RouterOptions {
  readonly toolsFor: ToolsFor
  /** From its turn to its reply, making the session included; 900 when left out. */
  readonly messageSecondsMax?: number | undefined
  /** Of one session at one time, answered and waiting; 32 when left out. */
  readonly messagesPerSessionMax?: number | undefined
  /** How long a session that is ended is waited for; 30 when left out. */
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

/** What a session holds. */
interface AnsweringSession {
  readonly orchestrator: Orchestrator.Orchestrator
  readonly execution: SessionExecution.SessionExecution
}

/** A message on its way, with all that was settled for it when it came. */
interface Routed {
  readonly message: Orchestrator.Message
  readonly configuration: Configuration.Configuration
  readonly resolution: AgentRouter.Resolution
  readonly key: string
}

export const make = Effect.fnUntraced(function* (options: RouterOptions) {
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

  /** All that a session is made of. Its scope ends what tools and orchestrator have under way. */
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
            remedy: "Look at tool_profile and tool_overrides of its configuration",
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

/** Closing it ends all sessions, within a bounded time. */
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

/** Why an agent executes on the host, if it does. */
const whyHost = (configuration: Configuration.Configuration, agent: AgentConfig): string | undefined =>
  placeOf(configuration, agent) === "sandbox"
    ? undefined
    : configuration.sandbox.enabled
      ? `the agent ${agent.name} has sandbox: false`
      : "sandbox.enabled is false"

/** What runs outside of sandboxes, said before the first message. */
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
      "there is no host executor: while the engine is not there, commands are refused, whatever on_unavailable says"
    )
  }
})

/** A defect is the program's business: whoever asked learns that there was one. */
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
            detail: `the agent ${name} failed inside`,
            remedy: "Whoever runs this host can see why",
            isRetryable: false
          })
        )
      )
    )
