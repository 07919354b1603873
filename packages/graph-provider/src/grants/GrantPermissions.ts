/**
 * Permissions of a grant beyond its graphs: tools, packages, models, repositories, connections, budget, runs at once.
 *
 * Pure: {@link decide} compares a request with the grant and the host's offer. It returns the budget of the run, or the
 * reason why the run may not start. A grant denies everything that it does not list, except that a grant without
 * `models` allows the models that the host offers.
 */
import { ConnectionRules } from "@cogni/sandbox-connections/ConnectionDecision"
import * as GrantPattern from "@cogni/sandbox-core/GrantPattern"
import * as PackagePattern from "@cogni/sandbox-core/PackagePattern"
import { LlmBudget } from "@cogni/sandbox-core/SpecFields"
import * as ToolAccess from "@cogni/sandbox-core/ToolAccess"
import { Result, Schema } from "effect"

const patternsMax = 64

const patterns = <S extends Schema.Constraint>(pattern: S) =>
  Schema.Array(pattern).check(Schema.isMaxLength(patternsMax))

export const GrantPermissions = Schema.Struct({
  /** Host tools, such as `core__get_current_time` or `core__*`. Default: none. */
  tools: Schema.optionalKey(patterns(GrantPattern.NamePattern)),
  /**
   * Rules by name and effect class: which tools are open, ask for an approval of each call, or are closed. The
   * strictest rule decides, and `tools` are open rules. Default: none.
   */
  toolRules: Schema.optionalKey(
    Schema.Array(ToolAccess.ToolRule).check(Schema.isMaxLength(ToolAccess.rulesMax))
  ),
  /** Whether its holder may only see what runs, whatever else the grant allows. Default: no. */
  readOnly: Schema.optionalKey(Schema.Boolean),
  /** Whether its holder may approve and deny tool calls of the account's runs. Default: no. */
  approve: Schema.optionalKey(Schema.Boolean),
  /** Whether its holder may list the grants and connections of the account. Default: no. */
  seeGrants: Schema.optionalKey(Schema.Boolean),
  /** Whether its holder may propose changes of the configuration, in its repository. Default: no. */
  propose: Schema.optionalKey(Schema.Boolean),
  /** Packages that a sandbox may install, such as `npm:left-pad` or `npm:@types/*`. Default: none. */
  packages: Schema.optionalKey(PackagePattern.PackagePatterns),
  /** Models that a request may name. Default: those that the host offers. */
  models: Schema.optionalKey(patterns(GrantPattern.NamePattern)),
  /** Repositories, such as `https://github.com/acme/*`. Default: none. */
  repositories: Schema.optionalKey(patterns(GrantPattern.RepositoryPattern)),
  /** Connections, and what they may be used for. Default: those of the host, for git and the repositories above. */
  connections: Schema.optionalKey(ConnectionRules),
  /** Maximum budget of one run, whatever its request asks for. Default: the limits of the request and the host. */
  budget: Schema.optionalKey(LlmBudget),
  /** Concurrent runs allowed in one process. Default: only the host's limit. */
  concurrentRunsMax: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10_000 })))
})

export type GrantPermissions = typeof GrantPermissions.Type

/** Allows no tools, no packages and no repositories, and the models that the host offers. */
export const safeDefault: GrantPermissions = {}

/** The parts of a request that need permission. */
export interface Asked {
  readonly model: string
  readonly toolIds?: ReadonlyArray<string> | undefined
  readonly packages?: ReadonlyArray<PackagePattern.PackagePattern> | undefined
  readonly repository?: { readonly url: string } | undefined
  readonly budget?: LlmBudget | undefined
}

/** Models and budget that the host offers to every grant. */
export interface HostOffer {
  /** Patterns of the models that a grant without `models` allows. */
  readonly models: ReadonlyArray<string>
  /** Maximum budget of any run. */
  readonly budget?: LlmBudget | undefined
}

export class ModelNotGranted extends Schema.TaggedError<ModelNotGranted>()("ModelNotGranted", {
  grantId: Schema.String
}) {
  override get message(): string {
    return `grant ${this.grantId} does not allow the model that the request names. Name a model that it allows, or ask the operator for a grant with --model`
  }
}

export class ToolNotGranted extends Schema.TaggedError<ToolNotGranted>()("ToolNotGranted", {
  grantId: Schema.String,
  /** Already validated as a plain tool name. */
  toolId: Schema.String
}) {
  override get message(): string {
    return `grant ${this.grantId} does not allow the tool ${this.toolId}. Omit it, or ask the operator for a grant with --tool`
  }
}

export class PackageNotGranted extends Schema.TaggedError<PackageNotGranted>()("PackageNotGranted", {
  grantId: Schema.String,
  /** Already validated as a pattern. */
  pattern: Schema.String
}) {
  override get message(): string {
    return `grant ${this.grantId} does not allow all packages of ${this.pattern}. Name fewer packages, or ask the operator for a grant with --packages`
  }
}

export class RepositoryNotGranted extends Schema.TaggedError<RepositoryNotGranted>()("RepositoryNotGranted", {
  grantId: Schema.String
}) {
  override get message(): string {
    return `grant ${this.grantId} does not allow the repository that the request names. Omit it, or ask the operator for a grant with --repository`
  }
}

export type PermissionDenied = ModelNotGranted | ToolNotGranted | PackageNotGranted | RepositoryNotGranted

/** Returns whether a grant allows work in a repository. */
export const allowsRepository = ({ repositories = [] }: GrantPermissions, url: string): boolean => {
  const text = GrantPattern.repositoryText(url)
  return text !== undefined && GrantPattern.matchesAny(repositories, text)
}

/** Returns the rules for the tools of a grant's runs. `undefined`: all tools that it allows by name are open. */
export const toolRulesOf = ({
  toolRules,
  tools = []
}: GrantPermissions): ReadonlyArray<ToolAccess.ToolRule> | undefined =>
  toolRules === undefined || toolRules.length === 0
    ? undefined
    : // A pattern with other characters matches no tool, and opens none.
      [...tools.filter(isToolPattern).map((tool) => ({ tool, access: "open" as const })), ...toolRules]

const isToolPattern = Schema.is(GrantPattern.ToolPattern)

/** Returns whether a grant allows calls of a tool, at least of one effect class. The tool's own class decides later. */
const allowsTool = (permissions: GrantPermissions, name: string): boolean => {
  const rules = toolRulesOf(permissions)
  return rules === undefined
    ? GrantPattern.matchesAny(permissions.tools ?? [], name)
    : ToolAccess.mayName(rules, name)
}

/** Returns the budget of the run, or the first reason why the grant does not allow it. */
export const decide = (
  grantId: string,
  permissions: GrantPermissions,
  asked: Asked,
  offer: HostOffer
): Result.Result<{ readonly budget: LlmBudget | undefined }, PermissionDenied> => {
  const { models = offer.models, packages = [] } = permissions
  if (!GrantPattern.matchesAny(models, asked.model)) return Result.fail(new ModelNotGranted({ grantId }))
  const toolId = asked.toolIds?.find((name) => !allowsTool(permissions, name))
  if (toolId !== undefined) return Result.fail(new ToolNotGranted({ grantId, toolId }))
  const pattern = asked.packages?.find((one) => !PackagePattern.covers(packages, one))
  if (pattern !== undefined) return Result.fail(new PackageNotGranted({ grantId, pattern }))
  if (asked.repository !== undefined && !allowsRepository(permissions, asked.repository.url)) {
    return Result.fail(new RepositoryNotGranted({ grantId }))
  }
  return Result.succeed({ budget: narrowest([asked.budget, permissions.budget, offer.budget]) })
}

/** Combines budgets: the smallest value of each field, and `stop` if any has it. `undefined` if all are undefined. */
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

/** The numeric limits of a budget. */
export const figures = [
  "callsMax",
  "inputTokensMax",
  "outputTokensMax",
  "costUsdMax",
  "bytesMax",
  "concurrentCallsMax",
  "requestsPerSecondMax",
  "subagentShareMax"
] as const satisfies ReadonlyArray<Exclude<keyof LlmBudget, "onExhausted">>
