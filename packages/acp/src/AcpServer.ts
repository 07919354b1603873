/**
 * Agent of the Agent Client Protocol (version 1) for one client, such as an editor, over any runner of prompts.
 *
 *     initialize ─► session/new ─► session/prompt, with session/update while it runs ─► session/close
 *
 * The SDK implements the protocol. This module adds sessions, their conversations and the limits. It never asks the
 * client for files or terminals: an agent works on the files of its sandbox. When the client closes its end, every
 * session ends with all that it holds.
 */
import {
  agent as acpAgent,
  type InitializeResponse,
  MessageTooLargeError,
  PROTOCOL_VERSION,
  RequestError
} from "@agentclientprotocol/sdk"
import { Effect, FiberSet, Schema } from "effect"
import type { AcpRefusal } from "./AcpRefusal.ts"
import type { AcpLimits, AcpOptions } from "./AcpSession.ts"
import { errorCodes } from "./internal/ErrorCodes.ts"
import * as Sessions from "./internal/Sessions.ts"
import * as Transport from "./internal/Transport.ts"

/** The connection to the client failed. */
export class AcpFailed extends Schema.TaggedError<AcpFailed>()("AcpFailed", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `the ACP connection ${this.detail}. ${this.remedy}`
  }
}

const limits: AcpLimits = {
  messageBytesMax: 8 * 1024 * 1024,
  promptBytesMax: 1024 * 1024,
  sessionsMax: 64,
  promptsMax: 8,
  historyCharsMax: 512 * 1024
}

/** Requests beside running prompts that may wait for their answers before no more input is read. */
const requestsWaitingMax = 64

/**
 * Serves one client until its input ends or the output fails. Then all sessions end, and this waits until they hold
 * nothing.
 */
export const serve = <E, E2, R>(
  bytes: Transport.AcpBytes<E, E2>,
  options: AcpOptions<R>
): Effect.Effect<void, AcpFailed | E | E2, R> =>
  Effect.gen(function* () {
    const bounds = { ...limits, ...options.limits }
    // The finalizers run in reverse order: no more messages, then no more handlers, then no more sessions.
    const sessions = yield* Sessions.make(options, bounds)
    const run = yield* FiberSet.makeRuntimePromise<R>()
    const { broken, stream } = yield* Transport.make(bytes, {
      messageBytesMax: bounds.messageBytesMax,
      requestsPendingMax: bounds.promptsMax + requestsWaitingMax
    })
    const answer = async <A>(effect: Effect.Effect<A, AcpRefusal, R>, signal?: AbortSignal): Promise<A> => {
      const answered = await run(
        Effect.match(effect, {
          onFailure: (refusal) => ({ error: requestError(refusal, options) }),
          onSuccess: (value) => ({ value })
        }),
        signal === undefined ? undefined : { signal }
      )
      if ("error" in answered) throw answered.error
      return answered.value
    }
    const app = acpAgent({ name: options.info.name })
      .onRequest("initialize", ({ params }) => {
        sessions.client(params.clientCapabilities)
        return initialized(options)
      })
      .onRequest("session/new", ({ params, signal }) => answer(sessions.open(params), signal))
      .onRequest("session/prompt", async ({ client, params, signal }) => {
        // Before anything asynchronous: a cancellation that follows at once must find the turn.
        const { sessionId } = params
        const turn = sessions.begin(
          params,
          (update) => client.notify("session/update", { sessionId, update }),
          (question, cancellationSignal) =>
            client.request("session/request_permission", { sessionId, ...question }, { cancellationSignal })
        )
        if (turn._tag === "Failure") throw requestError(turn.failure, options)
        // It also aborts when the connection closes, and then this fiber may be interrupted itself.
        const withdraw = () => void run(turn.success.withdraw).catch(() => undefined)
        signal.addEventListener("abort", withdraw, { once: true })
        try {
          const end = await answer(turn.success.run)
          if (end === undefined) throw RequestError.requestCancelled()
          return end
        } finally {
          signal.removeEventListener("abort", withdraw)
        }
      })
      .onRequest("session/close", ({ params }) => answer(sessions.close(params.sessionId)))
      // Registered after the prompt, so that it does not overtake the prompt that it cancels.
      .onNotification("session/cancel", ({ params }) => run(sessions.cancel(params.sessionId)))
    const connection = yield* Effect.acquireRelease(
      Effect.sync(() => app.connect(stream)),
      (connection) => Effect.sync(() => connection.close())
    )
    yield* Effect.raceFirst(
      Effect.promise(() => connection.closed),
      broken
    )
    if (connection.signal.reason instanceof MessageTooLargeError) {
      return yield* new AcpFailed({
        detail: `received a message of more than ${bounds.messageBytesMax} bytes`,
        remedy: "Send smaller messages: put long content into a file of the session's directory"
      })
    }
  }).pipe(Effect.scoped)

/** Advertises exactly what is implemented: a client must not offer the rest to its user. */
const initialized = <R>({ info }: AcpOptions<R>): InitializeResponse => ({
  protocolVersion: PROTOCOL_VERSION,
  agentInfo: info,
  agentCapabilities: {
    loadSession: false,
    promptCapabilities: { image: false, audio: false, embeddedContext: true },
    mcpCapabilities: { http: false, sse: false },
    sessionCapabilities: { close: {} }
  },
  authMethods: []
})

const requestError = <R>(
  { details, message, reason, remedy }: AcpRefusal,
  { wording = (text) => text }: AcpOptions<R>
): RequestError =>
  new RequestError(errorCodes[reason], wording(message), {
    ...details,
    reason,
    ...(remedy === "" ? {} : { remedy: wording(remedy) })
  })
