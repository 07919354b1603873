/**
 * The short facts of a run by which lists select and sort: its state, its reason, its agent, who pays. Pure.
 *
 * A store keeps them beside the record, so that a query reads no record that it does not return.
 */
import { Option, Schema } from "effect"
import type { RunId } from "./RunId.ts"
import type { RunResult } from "./RunResult.ts"
import type { LlmTraffic } from "./RunFigures.ts"
import type { SandboxSpec } from "./SandboxSpec.ts"

/** Name of the annotation with the text of a run's commits, which can be long. Only `RunStore.get` returns it. */
export const patchAnnotation = "patch"

/** Name of the annotation with the text that a run's agent answered. Only `RunStore.get` returns it. */
export const answerAnnotation = "answer"

/** Names of the annotations that can be long. Only `RunStore.get` returns them. */
export const longAnnotations: ReadonlyArray<string> = [patchAnnotation, answerAnnotation]

/** State of a run that has a record. An agent that ended with an error, or without an answer, has `failed`. */
export const RunState = Schema.Literals([
  "running",
  "succeeded",
  "failed",
  "closed",
  "interrupted",
  "abandoned"
])

export type RunState = typeof RunState.Type

export interface RunFacts {
  readonly runId: RunId
  readonly startedAt: string
  readonly state: RunState
  /** Why the run failed, such as `OomKilled`. Absent for an agent that only ended with a nonzero exit code. */
  readonly reason?: string | undefined
  readonly billingAccountId?: string | undefined
  readonly grantId?: string | undefined
  readonly sessionId?: string | undefined
  readonly agentId?: string | undefined
  readonly graphId?: string | undefined
  readonly model?: string | undefined
  /** URL of the repository that the run worked in. */
  readonly repository?: string | undefined
  /** Known or estimated cost when the run ended. A ledger may correct it later. */
  readonly costUsd?: number | undefined
}

/** The parts of a record that its facts come from. */
export interface Source {
  readonly runId: RunId
  readonly startedAt: string
  readonly spec: Pick<SandboxSpec, "llm">
  readonly outcome:
    | { readonly status: "exited"; readonly result: Pick<RunResult, "exitCode"> }
    | { readonly status: "failed"; readonly reason: string }
    | { readonly status: "running" | "closed" | "interrupted" | "abandoned" }
  readonly llm?: LlmTraffic
  readonly annotations?: Readonly<Record<string, Schema.Json>>
}

/** The part of the annotation `graph`, which graph providers write, that decides about a run. */
const Graph = Schema.Struct({
  ok: Schema.Boolean,
  error: Schema.optionalKey(Schema.String),
  reason: Schema.optionalKey(Schema.String)
})

const decodeGraph = Schema.decodeUnknownOption(Graph)
const decodeNames = Schema.decodeUnknownOption(
  Schema.Struct({
    graphId: Schema.optionalKey(Schema.String),
    grantId: Schema.optionalKey(Schema.String),
    repository: Schema.optionalKey(Schema.String)
  })
)
const decodeOrigin = Schema.decodeUnknownOption(Schema.Struct({ origin: Schema.String }))

/** Longest text of a fact. Longer ones are cut, because an annotation can have any length. */
export const factCharsMax = 2000

const cut = (text: string | undefined) => text?.slice(0, factCharsMax)

/** Returns the facts of a record with its annotations. */
export const of = (record: Source): RunFacts => {
  const { annotations, llm, outcome, runId, spec, startedAt } = record
  const graph = Option.getOrUndefined(decodeGraph(annotations?.["graph"]))
  const names = Option.getOrUndefined(decodeNames(annotations?.["graph"]))
  const origin = Option.getOrUndefined(decodeOrigin(annotations?.["relay"]))?.origin
  const { identity, model, observed } = spec.llm ?? {}
  return {
    runId,
    startedAt,
    state:
      outcome.status !== "exited"
        ? outcome.status
        : (graph?.ok ?? outcome.result.exitCode === 0)
          ? "succeeded"
          : "failed",
    reason: cut(
      graph?.ok === false
        ? (graph.reason ?? graph.error ?? "Unknown")
        : outcome.status === "failed"
          ? outcome.reason
          : undefined
    ),
    billingAccountId: identity?.billingAccountId,
    grantId: cut(names?.grantId ?? observed?.grantId),
    sessionId: identity?.sessionId,
    agentId: identity?.agentId,
    graphId: cut(names?.graphId ?? identity?.graphId),
    model,
    repository: cut(origin ?? names?.repository),
    costUsd: llm?.usage?.costUsd
  }
}
