/**
 * `grants create`, `grants list`, `grants revoke`: who may ask this host's server for runs, and on whose account.
 *
 * A token is told once, alone on standard output, and is kept by nobody here.
 */
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/ExecutionGrant"
import { GrantStore } from "@cogni/sandbox-graph-provider/GrantStore"
import * as GrantToken from "@cogni/sandbox-graph-provider/GrantToken"
import { Clock, Effect, Layer } from "effect"
import { Refusal } from "./Failure.ts"
import * as Output from "./Output.ts"
import * as ServeComposition from "./ServeComposition.ts"
import { Settings } from "./Settings.ts"
import { columns } from "./TerminalText.ts"

/** @category models */
export interface CreateInput {
  readonly user: string
  readonly account: string
  /** `sandbox:agent`; none: all of them. */
  readonly graphs: ReadonlyArray<string>
  readonly allowSandbox: boolean
  readonly expiresSeconds?: number | undefined
  readonly output: Output.OutputFormat
}

const grants = Layer.unwrap(Effect.map(Settings, ServeComposition.grants))

/** @category constructors */
export const create = Effect.fnUntraced(function* (input: CreateInput) {
  const { account, allowSandbox, expiresSeconds, graphs, user } = input
  const store = yield* GrantStore
  const now = yield* Clock.currentTimeMillis
  const { grant, token } = yield* store
    .issue({
      userId: user,
      billingAccountId: account,
      scopes: (graphs.length === 0 ? ["*"] : graphs).map((graph) => `graph:execute:${graph}`),
      allowSandbox,
      expiresAt: expiresSeconds === undefined ? null : new Date(now + expiresSeconds * 1000)
    })
    .pipe(Effect.mapError(unanswered))
  const output = yield* Output.Output
  if (input.output === "json")
    return yield* Output.json({ grant: toJson(grant), token: GrantToken.tell(token) })
  if (!allowSandbox) {
    yield* output.stderr("· it opens no sandbox: that takes --allow-sandbox\n")
  }
  yield* output.stderr(`· ${grant.id}: the token is told this once\n`)
  yield* output.stdout(`${GrantToken.tell(token)}\n`)
}, Effect.provide(grants))

/** @category constructors */
export const list = Effect.fnUntraced(function* (input: { readonly output: Output.OutputFormat }) {
  const found = yield* (yield* GrantStore).list.pipe(Effect.mapError(unanswered))
  if (input.output === "json") return yield* Output.json(found.map(toJson))
  if (found.length > 0) return yield* Output.lines(render(found, new Date(yield* Clock.currentTimeMillis)))
  yield* Output.Output.use((output) => output.stderr("· there are no grants: cogni-sandbox grants create\n"))
}, Effect.provide(grants))

/** @category constructors */
export const revoke = Effect.fnUntraced(function* (input: {
  readonly grant: string
  readonly output: Output.OutputFormat
}) {
  const revoked = yield* (yield* GrantStore).revoke(input.grant).pipe(Effect.mapError(unanswered))
  if (revoked === undefined) {
    return yield* new Refusal({
      exit: "notFound",
      detail: `there is no grant ${input.grant}`,
      remedy: "See cogni-sandbox grants list"
    })
  }
  if (input.output === "json") return yield* Output.json(toJson(revoked))
  yield* Output.Output.use((output) => output.stderr(`· ${revoked.id} opens nothing any more\n`))
}, Effect.provide(grants))

/** @category converting */
export const render = (grants: ReadonlyArray<ExecutionGrant>, now: Date): ReadonlyArray<string> =>
  columns([
    ["GRANT", "STATE", "SANDBOX", "ACCOUNT", "USER", "GRAPHS", "UNTIL"],
    ...grants.map((grant) => [
      grant.id,
      stateOf(grant, now),
      grant.allowSandbox ? "yes" : "no",
      grant.billingAccountId,
      grant.userId,
      grant.scopes.map((scope) => scope.slice("graph:execute:".length)).join(" "),
      grant.expiresAt?.toISOString() ?? "it is revoked"
    ])
  ])

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const stateOf = ({ expiresAt, revokedAt }: ExecutionGrant, now: Date): string =>
  revokedAt !== null ? "revoked" : expiresAt !== null && expiresAt <= now ? "expired" : "stands"

const toJson = ({ createdAt, expiresAt, revokedAt, ...grant }: ExecutionGrant) => ({
  ...grant,
  createdAt: createdAt.toISOString(),
  expiresAt: expiresAt?.toISOString() ?? null,
  revokedAt: revokedAt?.toISOString() ?? null
})

const unanswered = (error: { readonly _tag: string; readonly message: string }) =>
  new Refusal({
    exit: error._tag === "GrantRefused" ? "input" : "unavailable",
    reason: error._tag,
    detail: error.message.replace(/\.\s*[^.]*$/u, ""),
    remedy: error._tag === "GrantRefused" ? "See cogni-sandbox grants create --help" : "Try again in a moment"
  })
