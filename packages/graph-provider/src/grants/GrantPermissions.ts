/**
 * What a grant opens beyond its graphs: tools, models, repositories, how much of a model, how many runs at one time.
 *
 * Pure: {@link decide} takes what a request names and what the host offers, and answers the budget of the run or the
 * one reason why it may not start. What a grant does not mention it does not open; a grant that names no models opens
 * those that the host offers.
 */
import { LlmBudget } from "@cogni/sandbox-core/SandboxSpec"
import { Result, Schema } from "effect"
import * as GrantPattern from "./GrantPattern.ts"

const patternsMax = 64

const patterns = <S extends Schema.Constraint>(pattern: S) =>
  Schema.Array(pattern).check(Schema.isMaxLength(patternsMax))

export const GrantPermissions = Schema.Struct({
  /** Tools of the host, such as `core__get_current_time` or `core__*`. None when absent. */
  tools: Schema.optionalKey(patterns(GrantPattern.NamePattern)),
  /** Models that a request may name. Absent: those that the host offers. */
  models: Schema.optionalKey(patterns(GrantPattern.NamePattern)),
  /** Repositories, such as `https://github.com/acme/*`. None when absent. */
  repositories: Schema.optionalKey(patterns(GrantPattern.RepositoryPattern)),
  /** The most that one run may have, whatever its request says. Absent: as the request and the host say. */
  budget: Schema.optionalKey(LlmBudget),
  /** Runs under way at one time in one process. Absent: as the host says. */
  concurrentRunsMax: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10_000 })))
})

export type GrantPermissions = typeof GrantPermissions.Type

/** Opens no tool and no repository, and the models that the host offers. */
export const safeDefault: GrantPermissions = {}

/** What a request names. */
export interface Asked {
  readonly model: string
  readonly toolIds?: ReadonlyArray<string> | undefined
  readonly repository?: { readonly url: string } | undefined
  readonly budget?: LlmBudget | undefined
}

/** What the host gives to every grant. */
export interface HostOffer {
  /** Patterns of the models that a grant opens when it names none itself. */
  readonly models: ReadonlyArray<string>
  /** The most that any run may have. */
  readonly budget?: LlmBudget | undefined
}

export class ModelNotGranted extends Schema.TaggedError<ModelNotGranted>()("ModelNotGranted", {
  grantId: Schema.String
}) {
  override get message(): string {
    return `grant ${this.grantId} does not open the model that the request names. Name a model that it opens, or ask the operator for a grant with --model`
  }
}

export class ToolNotGranted extends Schema.TaggedError<ToolNotGranted>()("ToolNotGranted", {
  grantId: Schema.String,
  /** Checked before: a plain name. */
  toolId: Schema.String
}) {
  override get message(): string {
    return `grant ${this.grantId} does not open the tool ${this.toolId}. Leave it out, or ask the operator for a grant with --tool`
  }
}

export class RepositoryNotGranted extends Schema.TaggedError<RepositoryNotGranted>()("RepositoryNotGranted", {
  grantId: Schema.String
}) {
  override get message(): string {
    return `grant ${this.grantId} does not open the repository that the request names. Leave it out, or ask the operator for a grant with --repository`
  }
}

export type PermissionDenied = ModelNotGranted | ToolNotGranted | RepositoryNotGranted

/** The budget of the run, or the one reason why the grant does not open it. */
export const decide = (
  grantId: string,
  permissions: GrantPermissions,
  asked: Asked,
  offer: HostOffer
): Result.Result<{ readonly budget: LlmBudget | undefined }, PermissionDenied> => {
  const { models = offer.models, repositories = [], tools = [] } = permissions
  if (!GrantPattern.matchesAny(models, asked.model)) return Result.fail(new ModelNotGranted({ grantId }))
  const toolId = asked.toolIds?.find((name) => !GrantPattern.matchesAny(tools, name))
  if (toolId !== undefined) return Result.fail(new ToolNotGranted({ grantId, toolId }))
  if (asked.repository !== undefined) {
    const text = GrantPattern.repositoryText(asked.repository.url)
    if (text === undefined || !GrantPattern.matchesAny(repositories, text)) {
      return Result.fail(new RepositoryNotGranted({ grantId }))
    }
  }
  return Result.succeed({ budget: narrowest([asked.budget, permissions.budget, offer.budget]) })
}

/** The smallest figure of each field; `stop` if any says so. `undefined` when none says anything. */
export const narrowest = (budgets: ReadonlyArray<LlmBudget | undefined>): LlmBudget | undefined => {
  const said = budgets.filter((budget) => budget !== undefined)
  if (said.length === 0) return undefined
  const smallest = figures.flatMap((name) => {
    const values = said.flatMap((budget) => budget[name] ?? [])
    return values.length === 0 ? [] : [[name, Math.min(...values)] as const]
  })
  return {
    ...Object.fromEntries(smallest),
    onExhausted: said.some(({ onExhausted }) => onExhausted === "stop") ? "stop" : "refuse"
  }
}

/** Every limit of a budget. */
export const figures = [
  "callsMax",
  "inputTokensMax",
  "outputTokensMax",
  "costUsdMax",
  "bytesMax",
  "concurrentCallsMax",
  "requestsPerSecondMax"
] as const satisfies ReadonlyArray<Exclude<keyof LlmBudget, "onExhausted">>
