/** One attempt of a durable run, as its steps get it. */
import * as RunId from "@cogni/sandbox-core/RunId"
import { Schema } from "effect"
import { DurableRun } from "../DurableRun.ts"

const { grantId, hostGoneSecondsMax, needs, request } = DurableRun.fields

/** One attempt of a durable run: a run of a keeper. */
export const RunTask = Schema.Struct({
  runId: RunId.RunId,
  attempt: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 9 })),
  grantId,
  request,
  needs,
  hostGoneSecondsMax,
  /** ID of the host that it was placed on. Absent: the host has none, or a worker of an earlier version placed it. */
  hostId: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(200)))
})

export type RunTask = typeof RunTask.Type
