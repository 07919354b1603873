/** Handlers of remembered threads. A caller sees and removes those of its own account. */
import type { Thread, ThreadKey } from "@cogni/sandbox-graph-provider/threads/Thread"
import type { ThreadsUnavailable } from "@cogni/sandbox-graph-provider/threads/ThreadError"
import { Threads } from "@cogni/sandbox-graph-provider/threads/Threads"
import { Effect, Struct } from "effect"
import { CurrentGrant } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import type { ThreadView } from "./ThreadsApi.ts"

const viewOf = (thread: Thread): ThreadView => ({
  ...Struct.omit(thread, ["billingAccountId", "host"]),
  hasFiles: thread.host !== undefined
})

const unavailable = ({ _tag, message }: ThreadsUnavailable) =>
  Problem.retryLater(Problem.make("unavailable", _tag, message), 5)

const unknown = ({ _tag, message }: { readonly _tag: string; readonly message: string }) =>
  Effect.fail(Problem.make("not_found", _tag, message))

const broken = ({ _tag, message }: { readonly _tag: string; readonly message: string }) =>
  Effect.fail(Problem.make("internal", _tag, message))

export const make = Effect.gen(function* () {
  const threads = yield* Threads
  return {
    list: Effect.gen(function* () {
      const { billingAccountId } = yield* CurrentGrant
      const found = yield* threads.list({ billingAccountId }).pipe(Effect.catch(unavailable))
      return { threads: found.map(viewOf) }
    }),
    get: Effect.fn("SandboxServer.thread")(function* (key: ThreadKey) {
      const { billingAccountId } = yield* CurrentGrant
      const { thread, turns } = yield* threads
        .find(key, billingAccountId)
        .pipe(Effect.catchTags({ ThreadNotFound: unknown, ThreadsUnavailable: unavailable }))
      return { thread: viewOf(thread), turns }
    }),
    remove: Effect.fn("SandboxServer.removeThread")(function* (
      key: ThreadKey,
      history: "keep" | "remove" = "remove"
    ) {
      const { billingAccountId } = yield* CurrentGrant
      yield* threads.remove(key, { history, billingAccountId }).pipe(
        Effect.catchTags({
          ThreadNotFound: unknown,
          ThreadFilesLost: unknown,
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
