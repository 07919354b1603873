/**
 * The sessions of one connection, and the turns in them.
 *
 * Each session has a scope, in which its turns run. So closing it ends its turn first, and then what the runner holds
 * for it.
 */
import type {
  ClientCapabilities,
  CloseSessionResponse,
  NewSessionRequest,
  NewSessionResponse,
  PromptRequest,
  PromptResponse
} from "@agentclientprotocol/sdk"
import { named } from "@cogni/sandbox-core/Remedy"
import { Cause, Effect, Exit, Fiber, Result, Scope } from "effect"
import { posix } from "node:path"
import { AcpRefusal } from "../AcpRefusal.ts"
import type { AcpLimits, AcpOptions, AcpSession, AcpTurnEnd } from "../AcpSession.ts"
import * as Conversation from "./Conversation.ts"
import * as Permission from "./Permission.ts"
import * as PromptText from "./PromptText.ts"
import * as Speech from "./Speech.ts"

/** A turn that has begun. */
interface Turn<R> {
  /** Runs it. Its value is `undefined` if the request was withdrawn. */
  readonly run: Effect.Effect<PromptResponse | undefined, AcpRefusal, R>
  /** Ends it because the client no longer waits for its answer. */
  readonly withdraw: Effect.Effect<void>
}

interface Running {
  ended: "cancelled" | "withdrawn" | undefined
  fiber: Fiber.Fiber<AcpTurnEnd, AcpRefusal> | undefined
}

interface Open<R> {
  readonly cwd: string
  readonly session: AcpSession<R>
  readonly scope: Scope.Closeable
  conversation: Conversation.Conversation
  turns: number
  running: Running | undefined
  /** Note for the user at the beginning of the first turn. */
  greeting: string | undefined
}

export const make = Effect.fnUntraced(function* <R>(options: AcpOptions<R>, limits: AcpLimits) {
  const sessions = new Map<string, Open<R>>()
  let opening = 0
  let prompts = 0
  let notices = false

  const found = (sessionId: string): Result.Result<Open<R>, AcpRefusal> => {
    const session = sessions.get(sessionId)
    return session === undefined
      ? refuse(
          "SessionUnknown",
          "there is no open session with this ID",
          "Open one: sessions end with their connection, and cannot be loaded again",
          { sessionId }
        )
      : Result.succeed(session)
  }

  const open = Effect.fnUntraced(function* (
    request: NewSessionRequest
  ): Effect.fn.Return<NewSessionResponse, AcpRefusal, R> {
    const { cwd } = request
    yield* Effect.fromResult(acceptable(request, options))
    if (sessions.size + opening >= limits.sessionsMax) {
      return yield* Effect.fromResult(
        refuse("SessionsExhausted", `${limits.sessionsMax} sessions are open`, "Close one first")
      )
    }
    const sessionId = crypto.randomUUID()
    opening++
    return yield* Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const session = yield* restore(Scope.provide(options.open({ sessionId, cwd }), scope)).pipe(
          Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause)))
        )
        sessions.set(sessionId, {
          cwd,
          session,
          scope,
          conversation: Conversation.empty,
          turns: 0,
          running: undefined,
          greeting: greetingOf(request)
        })
        return { sessionId }
      })
    ).pipe(Effect.ensuring(Effect.sync(() => void opening--)))
  })

  const interrupt = (running: Running | undefined, why: NonNullable<Running["ended"]>) =>
    Effect.suspend(() => {
      if (running === undefined) return Effect.void
      running.ended ??= why
      return running.fiber === undefined ? Effect.void : Effect.asVoid(Fiber.interrupt(running.fiber))
    })

  const end = (session: Open<R>) =>
    Effect.suspend(() => {
      if (session.running !== undefined) session.running.ended ??= "cancelled"
      return Scope.close(session.scope, Exit.void)
    })

  const close = Effect.fnUntraced(function* (
    sessionId: string
  ): Effect.fn.Return<CloseSessionResponse, AcpRefusal> {
    const session = yield* Effect.fromResult(found(sessionId))
    sessions.delete(sessionId)
    yield* Effect.uninterruptible(end(session))
    return {}
  })

  /** Begins a turn, or refuses it. Synchronous. */
  const begin = (
    request: PromptRequest,
    send: Speech.Send,
    ask: Permission.Ask
  ): Result.Result<Turn<R>, AcpRefusal> =>
    Result.gen(function* () {
      const session = yield* found(request.sessionId)
      if (session.running !== undefined) {
        return yield* refuse(
          "SessionBusy",
          "a prompt of this session is still running",
          "Wait for its answer, or cancel it"
        )
      }
      if (prompts >= limits.promptsMax) {
        return yield* refuse(
          "PromptsExhausted",
          `${limits.promptsMax} prompts are running in other sessions`,
          "Wait until one has ended"
        )
      }
      const directories = { outside: session.cwd, inside: session.session.directory }
      const prompt = yield* PromptText.of(request.prompt, directories, limits.promptBytesMax)
      const running: Running = { ended: undefined, fiber: undefined }
      session.running = running
      prompts++
      return {
        run: runTurn(session, running, prompt, send, ask).pipe(
          Effect.ensuring(
            Effect.sync(() => {
              session.running = undefined
              prompts--
            })
          )
        ),
        withdraw: interrupt(running, "withdrawn")
      }
    })

  const runTurn = Effect.fnUntraced(function* (
    session: Open<R>,
    running: Running,
    prompt: string,
    send: Speech.Send,
    ask: Permission.Ask
  ): Effect.fn.Return<PromptResponse | undefined, AcpRefusal, R> {
    const facts = {
      number: ++session.turns,
      shared: sharedOf(session),
      notices
    }
    const speech = Speech.make(facts, send)
    const { greeting } = session
    session.greeting = undefined
    const work = Effect.gen(function* () {
      if (greeting !== undefined) yield* speech.note("warning", greeting)
      const ended = yield* session.session.prompt({
        prompt,
        earlier: session.conversation.messages,
        say: speech.say,
        ask: (question) => Permission.ask(question, ask),
        note: speech.note
      })
      if (speech.text() === "" && ended.text !== "")
        yield* speech.say({ type: "text_delta", delta: ended.text })
      return ended
    })
    running.fiber = yield* Effect.forkIn(work, session.scope)
    // A cancellation that came before had no fiber to interrupt.
    if (running.ended !== undefined) yield* Fiber.interrupt(running.fiber)
    const outcome = yield* outcomeOf(yield* Fiber.await(running.fiber), running.ended)
    const { conversation } = session
    session.conversation = Conversation.add(
      conversation,
      prompt,
      answerOf(outcome, speech.text()),
      limits.historyCharsMax
    )
    const dropped = session.conversation.dropped - conversation.dropped
    if (dropped > 0) yield* speech.note("warning", forgotten(dropped, limits.historyCharsMax))
    switch (outcome._tag) {
      case "Ended":
        return outcome.why === "withdrawn" ? undefined : { stopReason: "cancelled" }
      case "Failed":
        return yield* outcome.refusal
      case "Answered":
        return { stopReason: outcome.end.stopReason }
    }
  })

  yield* Effect.addFinalizer(() =>
    Effect.forEach([...sessions.values()], end, { concurrency: "unbounded", discard: true })
  )

  return {
    /** Takes the capabilities of the client. */
    client: (capabilities: ClientCapabilities | undefined) => {
      notices = (capabilities?.session?.notices ?? undefined) !== undefined
    },
    open,
    begin,
    /** Cancels the turn of a session. Has no effect without one: it may have ended at the same moment. */
    cancel: (sessionId: string) =>
      Effect.suspend(() => interrupt(sessions.get(sessionId)?.running, "cancelled")),
    close
  }
})

type Outcome =
  | { readonly _tag: "Ended"; readonly why: NonNullable<Running["ended"]> }
  | { readonly _tag: "Failed"; readonly refusal: AcpRefusal }
  | { readonly _tag: "Answered"; readonly end: AcpTurnEnd }

/** A cancelled turn is cancelled, whatever it has become in the meantime: the protocol requires it. */
const outcomeOf = Effect.fnUntraced(function* (
  exit: Exit.Exit<AcpTurnEnd, AcpRefusal>,
  why: Running["ended"]
): Effect.fn.Return<Outcome> {
  if (why !== undefined) return { _tag: "Ended", why }
  if (Exit.isSuccess(exit)) return { _tag: "Answered", end: exit.value }
  if (Cause.hasInterruptsOnly(exit.cause)) return { _tag: "Ended", why: "cancelled" }
  const error = Cause.squash(exit.cause)
  if (error instanceof AcpRefusal) return { _tag: "Failed", refusal: error }
  yield* Effect.logError("a prompt failed with an internal error", exit.cause)
  return {
    _tag: "Failed",
    refusal: new AcpRefusal({
      reason: "RunFailed",
      detail: "internal error",
      remedy: "Read the log of the agent's process"
    })
  }
})

/** Returns the answer of this turn that the next ones get. */
const answerOf = (outcome: Outcome, textSoFar: string): string => {
  switch (outcome._tag) {
    case "Ended":
      return Conversation.unanswered(textSoFar, "the user cancelled it")
    case "Failed":
      return Conversation.unanswered(textSoFar, outcome.refusal.detail)
    case "Answered":
      return outcome.end.text.trim() === ""
        ? Conversation.unanswered(textSoFar, outcome.end.stopReason)
        : outcome.end.text
  }
}

const sharedOf = <R>({ cwd, session }: Open<R>) =>
  session.isShared === true && session.directory !== undefined
    ? { outside: cwd, inside: session.directory }
    : undefined

const forgotten = (turns: number, charsMax: number): string =>
  `the agent no longer sees ${turns === 1 ? "the oldest turn" : `the ${turns} oldest turns`} of this session, because earlier turns may have ${charsMax} characters. Open a new session for a new subject`

/** Refuses what a sandbox cannot give to a session. */
const acceptable = <R>(
  { additionalDirectories, cwd, mcpServers }: NewSessionRequest,
  { ignoreMcpServers }: AcpOptions<R>
): Result.Result<void, AcpRefusal> => {
  if (!posix.isAbsolute(cwd) || cwd.includes("\0")) {
    return refuse("DirectoryRefused", "cwd is not an absolute path", "Name the directory from the root on")
  }
  if (additionalDirectories !== undefined && additionalDirectories.length > 0) {
    return refuse(
      "DirectoriesUnsupported",
      "a session has one directory, and additionalDirectories names more",
      "Open the session in a directory that contains them all, or leave them out"
    )
  }
  return mcpServers.length > 0 && ignoreMcpServers !== true
    ? refuse(
        "McpServersUnsupported",
        `the client offers MCP servers (${mcpServers.length}), and the agent cannot reach them from its sandbox, which has no network`,
        `Remove them from the client's settings for this agent, or let the agent ignore them (${named("AcpOptions.ignoreMcpServers")})`,
        { mcpServers: mcpServers.length }
      )
    : Result.void
}

const greetingOf = ({ mcpServers: { length } }: NewSessionRequest): string | undefined =>
  length === 0
    ? undefined
    : `${length === 1 ? "the MCP server of this session is" : `the ${length} MCP servers of this session are`} ignored, because the sandbox has no network`

const refuse = (
  reason: AcpRefusal["reason"],
  detail: string,
  remedy: string,
  details?: NonNullable<AcpRefusal["details"]>
): Result.Result<never, AcpRefusal> =>
  Result.fail(new AcpRefusal({ reason, detail, remedy, ...(details === undefined ? {} : { details }) }))
