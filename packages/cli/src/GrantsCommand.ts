/**
 * `grants create`, `grants list`, `grants show`, `grants revoke`: manage who may ask this host's server for runs, and
 * on whose account.
 *
 * A token is printed once, alone on standard output, and is never stored.
 */
import { describeIssue, type InputIssue } from "@cogni/sandbox-core/SchemaIssues"
import * as ToolAccess from "@cogni/sandbox-core/ToolAccess"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import * as GrantPermissions from "@cogni/sandbox-graph-provider/grants/GrantPermissions"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { type GrantRefused } from "@cogni/sandbox-graph-provider/grants/GrantError"
import * as GrantToken from "@cogni/sandbox-graph-provider/grants/GrantToken"
import { Clock, Effect, Layer } from "effect"
import * as ConnectionRuleText from "./ConnectionRuleText.ts"
import { refusal } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import type * as GrantFlags from "./GrantFlags.ts"
import * as Output from "./Output.ts"
import * as ServeComposition from "./ServeComposition.ts"
import { Settings } from "./Settings.ts"
import { columns, oneLine } from "./TerminalText.ts"
import * as ToolRuleText from "./ToolRuleText.ts"

type CreateInput = Flags.Typed<typeof GrantFlags.create>

const grants = Layer.unwrap(Effect.map(Settings, ServeComposition.grants))

export const create = Effect.fnUntraced(function* (input: CreateInput) {
  const { account, allowSandbox, expiresSeconds, readOnly, user } = input
  const store = yield* GrantStore
  yield* checkReadOnly(input)
  const now = yield* Clock.currentTimeMillis
  const rules = yield* ToolRuleText.ofFlags(input)
  const { grant, token } = yield* store
    .issue({
      userId: user,
      billingAccountId: account,
      scopes: scopesOf(input),
      allowSandbox,
      expiresAt: expiresSeconds === undefined ? null : new Date(now + expiresSeconds * 1000),
      permissions: permissionsOf(input, rules)
    })
    .pipe(
      Effect.mapError((error) =>
        error._tag === "GrantRefused" ? refusedInput(error, input) : unanswered(error)
      )
    )
  if (input.output === "json")
    return yield* Output.json({ grant: toJson(grant), token: GrantToken.tell(token) })
  if (!allowSandbox && !readOnly)
    yield* Output.note("the grant cannot open sandboxes: that requires --allow-sandbox")
  yield* Output.note(`${grant.id}: the token is shown only once`)
  yield* Output.lines([GrantToken.tell(token)])
}, Effect.provide(grants))

export const list = Effect.fnUntraced(function* (input: Output.Asked) {
  const found = yield* (yield* GrantStore).list.pipe(Effect.mapError(unanswered))
  if (input.output === "json") return yield* Output.json(found.map(toJson))
  if (found.length > 0) return yield* Output.lines(render(found, new Date(yield* Clock.currentTimeMillis)))
  yield* Output.note("there are no grants; create one with: cogni-sandbox grants create")
}, Effect.provide(grants))

export const show = Effect.fnUntraced(function* (input: Output.Asked & { readonly grant: string }) {
  const found = yield* (yield* GrantStore).find(input.grant).pipe(Effect.mapError(unanswered))
  if (found === undefined) return yield* unknown(input.grant)
  if (input.output === "json") return yield* Output.json(toJson(found))
  yield* Output.lines(describe(found, new Date(yield* Clock.currentTimeMillis)))
}, Effect.provide(grants))

export const revoke = Effect.fnUntraced(function* (input: Output.Asked & { readonly grant: string }) {
  const revoked = yield* (yield* GrantStore).revoke(input.grant).pipe(Effect.mapError(unanswered))
  if (revoked === undefined) return yield* unknown(input.grant)
  if (input.output === "json") return yield* Output.json(toJson(revoked))
  yield* Output.note(`${revoked.id} is revoked`)
}, Effect.provide(grants))

export const render = (grants: ReadonlyArray<ExecutionGrant>, now: Date): ReadonlyArray<string> =>
  columns([
    [
      "GRANT",
      "STATE",
      "SANDBOX",
      "ACCOUNT",
      "USER",
      "GRAPHS",
      "MODELS",
      "TOOLS",
      "PACKAGES",
      "REPOSITORIES",
      "CONNECTIONS",
      "EXPIRES"
    ],
    ...grants.map((grant) => [
      grant.id,
      stateOf(grant, now),
      grant.allowSandbox ? "yes" : "no",
      grant.billingAccountId,
      grant.userId,
      graphsOf(grant),
      ...opened(grant),
      untilOf(grant)
    ])
  ])

/** Formats a grant, one line per property. */
export const describe = (grant: ExecutionGrant, now: Date): ReadonlyArray<string> => {
  const { approve, budget, concurrentRunsMax, propose, seeGrants } = grant.permissions
  const [models = "", tools = "", packages = "", repositories = "", connections = ""] = opened(grant)
  const limits = GrantPermissions.figures.flatMap((name) =>
    budget?.[name] === undefined ? [] : [`${name} ${budget[name]}`]
  )
  return columns([
    ["grant", grant.id],
    ["state", stateOf(grant, now)],
    ["read-only", grant.permissions.readOnly === true ? "yes" : "no"],
    ["sandbox", grant.allowSandbox ? "yes" : "no"],
    ["account", grant.billingAccountId],
    ["user", grant.userId],
    ["graphs", graphsOf(grant)],
    ["models", models],
    ["tools", tools],
    ["approves tool calls", approve === true ? "yes" : "no"],
    ["sees grants and connections", seeGrants === true ? "yes" : "no"],
    ["proposes changes of the configuration", propose === true ? "yes" : "no"],
    ["packages", packages],
    ["repositories", repositories],
    ["connections", connections],
    ["budget per run", limits.length === 0 ? "the server's limits" : limits.join(", ")],
    ["when exhausted", budget?.onExhausted === "stop" ? "the run ends" : "calls are refused"],
    ["concurrent runs", concurrentRunsMax === undefined ? "the server's limit" : String(concurrentRunsMax)],
    ["expires", untilOf(grant)]
  ])
}

const stateOf = ({ expiresAt, permissions, revokedAt }: ExecutionGrant, now: Date): string =>
  revokedAt !== null
    ? "revoked"
    : expiresAt !== null && expiresAt <= now
      ? "expired"
      : permissions.readOnly === true
        ? "read-only"
        : "active"

const graphsOf = ({ scopes }: ExecutionGrant): string =>
  scopes.map((scope) => scope.slice("graph:execute:".length)).join(" ") || "none"

/** Graphs of a new grant. A read-only one executes none. */
const scopesOf = ({ graphs, readOnly }: CreateInput): ReadonlyArray<string> =>
  (graphs.length === 0 && !readOnly ? ["*"] : graphs).map((graph) => `graph:execute:${graph}`)

/** Fails if other flags allow what `--read-only` forbids: the operator may have meant either. */
const checkReadOnly = (input: CreateInput) => {
  const { readOnly, output: _, ...others } = input
  const kept: ReadonlySet<string> = new Set(["user", "account", "expiresSeconds", "seeGrants"])
  const isGiven = (value: unknown) =>
    Array.isArray(value) ? value.length > 0 : value !== undefined && value !== false
  return readOnly && Object.entries(others).some(([name, value]) => !kept.has(name) && isGiven(value))
    ? Effect.fail(
        refusal(
          "input",
          "--read-only: another flag permits runs or decisions, and a read-only grant has none",
          "Use --read-only with --user, --account, --expires-in and --see-grants only, or omit it"
        )
      )
    : Effect.void
}

const untilOf = ({ expiresAt }: ExecutionGrant): string => expiresAt?.toISOString() ?? "never"

/** Returns models, tools, packages, repositories and connections, each as one cell. */
const opened = ({
  permissions: { connections, models, packages = [], readOnly, repositories = [], toolRules = [], tools = [] }
}: ExecutionGrant): ReadonlyArray<string> => {
  // A read-only grant executes nothing, so that it has no use of what the server opens.
  const absent = readOnly === true ? "none" : "the server's"
  return [
    models?.join(" ") ?? absent,
    [...tools, ...toolRules.map(ToolAccess.ruleText)].join(" ") || "none",
    packages.join(" ") || "none",
    repositories.join(" ") || "none",
    connections?.map(ConnectionRuleText.format).join(" ") ?? absent
  ]
}

const permissionsOf = (
  input: CreateInput,
  rules: ReadonlyArray<ToolAccess.ToolRule>
): GrantPermissions.GrantPermissions => {
  const { callsMax, concurrentRunsMax, costUsdMax, inputTokensMax, models, outputTokensMax } = input
  const { subagentShareMax } = input
  const figures = Flags.given({ callsMax, inputTokensMax, outputTokensMax, costUsdMax, subagentShareMax })
  return {
    tools: input.tools,
    ...(rules.length === 0 ? {} : { toolRules: rules }),
    ...(input.readOnly ? { readOnly: true } : {}),
    ...(input.approve ? { approve: true } : {}),
    ...(input.seeGrants ? { seeGrants: true } : {}),
    ...(input.propose ? { propose: true } : {}),
    ...(input.packages.length === 0 ? {} : { packages: input.packages }),
    repositories: input.repositories,
    ...(input.connections.length === 0 ? {} : { connections: input.connections }),
    ...(models.length === 0 ? {} : { models }),
    ...(Object.keys(figures).length === 0 && !input.stopWhenSpent
      ? {}
      : { budget: { ...figures, onExhausted: input.stopWhenSpent ? "stop" : "refuse" } }),
    ...Flags.given({ concurrentRunsMax })
  }
}

const unknown = (grant: string) =>
  refusal("notFound", `there is no grant ${oneLine(grant)}`, "See cogni-sandbox grants list")

const toJson = ({ createdAt, expiresAt, revokedAt, ...grant }: ExecutionGrant) => ({
  ...grant,
  createdAt: createdAt.toISOString(),
  expiresAt: expiresAt?.toISOString() ?? null,
  revokedAt: revokedAt?.toISOString() ?? null
})

/** Flags by the field of a grant that they set. */
const flags: Readonly<Record<string, readonly [flag: string, input: keyof CreateInput]>> = {
  userId: ["--user", "user"],
  billingAccountId: ["--account", "account"],
  scopes: ["--graph", "graphs"],
  expiresAt: ["--expires-in", "expiresSeconds"],
  tools: ["--tool", "tools"],
  toolRules: ["--ask-tool or --close-tool", "askTools"],
  packages: ["--packages", "packages"],
  models: ["--model", "models"],
  repositories: ["--repository", "repositories"],
  connections: ["--connection", "connections"],
  concurrentRunsMax: ["--max-runs", "concurrentRunsMax"],
  callsMax: ["--max-calls", "callsMax"],
  inputTokensMax: ["--max-input-tokens", "inputTokensMax"],
  outputTokensMax: ["--max-output-tokens", "outputTokensMax"],
  costUsdMax: ["--max-cost", "costUsdMax"],
  subagentShareMax: ["--subagent-share", "subagentShareMax"]
}

/** Describes invalid fields of a grant: the flag, its value, and the rule. */
const refusedInput = ({ _tag: reason, issues }: GrantRefused, input: CreateInput) =>
  refusal(
    "input",
    issues.map((issue) => inFlags(issue, input)).join("; "),
    "See cogni-sandbox grants create --help",
    { reason }
  )

const inFlags = (issue: InputIssue, input: CreateInput): string => {
  const [field = "", index] = issue.path.filter((key) => key !== "permissions" && key !== "budget")
  const [flag, name] = flags[field] ?? []
  if (flag === undefined || name === undefined) return describeIssue(issue)
  const given = input[name]
  const one = Array.isArray(given) ? given[Number(index)] : given
  const shown = one === undefined ? "" : ` ${oneLine(JSON.stringify(one).slice(0, 100))}`
  return `${flag}${shown}: ${issue.message.replace(/^Expected/u, "expected")}`
}

const unanswered = (error: { readonly _tag: string; readonly message: string }) =>
  refusal("unavailable", error.message.replace(/\.\s*[^.]*$/u, ""), "Try again in a moment", {
    reason: error._tag
  })
