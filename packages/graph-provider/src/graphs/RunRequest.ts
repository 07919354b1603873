/**
 * The part of a run that its caller chooses, as plain data: what an HTTP request and a durable run have in common.
 *
 * The account, the user and the identity of a run are not in it. They come from a grant.
 */
import { ToolName } from "@cogni/sandbox-core/SpecFields"
import { Schema } from "effect"
import { GraphRunRequest } from "./GraphProvider.ts"

const { budget, graphId, messages, packages, personality, remember, repository, runtimeSecondsMax } =
  GraphRunRequest.fields

const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

export const RunRequest = Schema.Struct({
  graphId,
  messages,
  /** Absent: the default model of the server that runs it. */
  model: Schema.optionalKey(Identifier),
  personality,
  repository,
  toolIds: Schema.optionalKey(Schema.Array(ToolName).check(Schema.isMaxLength(64))),
  packages,
  runtimeSecondsMax,
  budget,
  /** The conversation to which the run belongs. */
  threadId: Schema.optionalKey(Identifier),
  /** Keeps the files, the history and the agent's session of the thread. `messages` is then only the new message. */
  remember
})

export type RunRequest = typeof RunRequest.Type
