/** Handlers of remembered threads. A caller sees and removes those of its own account. */
import type { Thread, ThreadKey } from "@cogni/sandbox-graph-provider/threads/Thread"
import type { ThreadsUnavailable } from "@cogni/sandbox-graph-provider/threads/ThreadError"
import { Threads } from "@cogni/sandbox-graph-provider/threads/Threads"
import { Effect, Struct } from "effect"
import { CurrentGrant } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import * as Readings from "./Readings.ts"
import type { ThreadView } from "./ThreadsApi.ts"

/** The part of a history in one answer. */
const part = { turnsMax: 50, bytesMax: 512 * 1024 }

const tooMany = Problem.make(
  "unavailable",
  "TooManyReadings",
  `this account has ${Readings.perAccountMax} readings of threads under way. Try again when they have ended`
)

const viewOf = (thread: Thread): ThreadView => ({
  ...Struct.omit(thread, ["billingAccountId", "files", "host"]),
  hasFiles: thread.files !== undefined
})

const unavailable = ({ _tag, message }: ThreadsUnavailable) =>
  Problem.retryLater(Problem.make("unavailable", _tag, message), 5)

const unknown = ({ _tag, message }: { readonly _tag: string; readonly message: string }) =>
  Effect.fail(Problem.make("not_found", _tag, message))

const broken = ({ _tag, message }: { readonly _tag: string; readonly message: string }) =>
  Effect.fail(Problem.make("internal", _tag, message))

export const make = Effect.gen(function* () {
  const threads = yield* Threads
  const limited = yield* Readings.make(tooMany)
  return {
    list: Effect.gen(function* () {
      const { billingAccountId } = yield* CurrentGrant
      const found = yield* threads.list({ billingAccountId }).pipe(Effect.catch(unavailable))
      return { threads: found.map(viewOf) }
    }),
    get: Effect.fn("SandboxServer.thread")(function* (key: ThreadKey, before?: number) {
      const { billingAccountId } = yield* CurrentGrant
      const { earlier, thread, turns } = yield* limited(
        threads.find(key, billingAccountId, { ...part, before })
      ).pipe(Effect.catchTags({ ThreadNotFound: unknown, ThreadsUnavailable: unavailable }))
      return { thread: viewOf(thread), turns, ...(earlier === 0 ? {} : { before: earlier + 1 }) }
    }),
    remove: Effect.fn("SandboxServer.removeThread")(function* (
      key: ThreadKey,
      history: "keep" | "remove" = "remove"
    ) {
      const { billingAccountId } = yield* CurrentGrant
      yield* threads.remove(key, { history, billingAccountId }).pipe(
        Effect.catchTags({
          ThreadNotFound: unknown,
          ThreadBusy: ({ _tag, message, retrySeconds }) =>
            Problem.retryLater(Problem.make("rate_limit", _tag, message), retrySeconds),
          ThreadFilesFailed: (error) =>
            Effect.andThen(
              Effect.logWarning(error.message),
              broken({
                _tag: error._tag,
                message: "the files of this thread could not be removed; see the log of the server"
              })
            ),
          ThreadLost: broken,
          ThreadsUnavailable: unavailable
        })
      )
      return { key, status: history === "keep" ? ("reset" as const) : ("removed" as const) }
    })
  }
})
