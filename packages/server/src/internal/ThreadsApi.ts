/** Endpoints of remembered threads: list them, read a history, remove one. */
import { Thread, ThreadKey, ThreadTurn } from "@cogni/sandbox-graph-provider/threads/Thread"
import { Schema, Struct } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Authentication } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import { Readable } from "./RunsApi.ts"

/** A thread of the caller's account. */
export const ThreadView = Thread.mapFields((fields) => ({
  ...Struct.omit(fields, ["billingAccountId", "files", "host"]),
  /** False if the next turn begins with empty files. */
  hasFiles: Schema.Boolean
})).annotate({ identifier: "ThreadView" })

export type ThreadView = typeof ThreadView.Type

const ThreadList = Schema.Struct({ threads: Schema.Array(ThreadView) }).annotate({
  identifier: "ThreadList"
})

const ThreadHistory = Schema.Struct({
  thread: ThreadView,
  /** The newest, or those before `before`: oldest first, at most 50 turns and 512 KiB, but at least one. */
  turns: Schema.Array(ThreadTurn),
  /** Value of `before` for the turns before these. Absent if the first turn is among them. */
  before: Schema.optionalKey(Schema.Int)
}).annotate({ identifier: "ThreadHistory" })

const ThreadRemoved = Schema.Struct({
  key: ThreadKey,
  status: Schema.Literals(["removed", "reset"])
}).annotate({ identifier: "ThreadRemoved" })

const params = { key: ThreadKey.annotate({ description: "`key` of a thread in the list" }) }

export class ThreadsGroup extends HttpApiGroup.make("threads")
  .add(
    HttpApiEndpoint.get("list", "/threads", {
      success: ThreadList,
      error: Problem.Unavailable
    }).annotateMerge(
      OpenApi.annotations({
        summary: "List the remembered threads of the grant's account",
        description: "Last used first. `threadId` is the name that a caller gave."
      })
    ),
    HttpApiEndpoint.get("get", "/threads/:key", {
      params,
      query: {
        before: Schema.optionalKey(
          Schema.NumberFromString.check(Schema.isInt(), Schema.isBetween({ minimum: 1, maximum: 1_000_000 }))
        )
      },
      success: ThreadHistory,
      error: [Problem.NotFound, Problem.Unavailable]
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Read the history of a thread",
        description: "The newest turns. `before` of the answer, as a parameter, reads those before them."
      })
    ),
    HttpApiEndpoint.delete("remove", "/threads/:key", {
      params,
      query: { history: Schema.optionalKey(Schema.Literals(["remove", "keep"])) },
      success: ThreadRemoved,
      error: [Problem.NotFound, Problem.TooMany, Problem.Internal, Problem.Unavailable]
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Remove a thread",
        description:
          "Removes its files, its agents' sessions and its history. With `history=keep`, the next turn begins with " +
          "empty files, and its agent receives the history as text."
      })
    )
  )
  .middleware(Readable)
  .middleware(Authentication) {}
