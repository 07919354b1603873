/**
 * A grant before it is stored: its input, checked, and its token.
 */
import { issuesOf } from "@cogni/sandbox-core/SchemaIssues"
import { Clock, Effect, type Redacted, Schema } from "effect"
import { ExecutionGrant } from "./ExecutionGrant.ts"
import { GrantPermissions, safeDefault } from "./GrantPermissions.ts"
import * as GrantToken from "./GrantToken.ts"
import { GrantRefused } from "./GrantError.ts"
import * as GraphIdForm from "../internal/GraphIdForm.ts"

/** Maximum number of grants in a list. */
export const listedMax = 1000

const { allowSandbox, billingAccountId, expiresAt, userId } = ExecutionGrant.fields

/** Stricter than that of a stored grant, so that older grants stay readable. */
const Scope = Schema.String.check(
  Schema.isPattern(new RegExp(`^graph:execute:(?:\\*|${GraphIdForm.source})$`, "u"), {
    expected: `${GraphIdForm.expected}, or *, after graph:execute:`
  })
)

/** A grant to issue: what it allows, to whom, until when. */
export const GrantInput = Schema.Struct({
  userId,
  billingAccountId,
  scopes: Schema.Array(Scope),
  allowSandbox,
  expiresAt,
  /** Default: no tools, no repositories, and the models that the host offers. */
  permissions: Schema.optionalKey(GrantPermissions)
})

export type GrantInput = typeof GrantInput.Type

export interface IssuedGrant {
  readonly grant: ExecutionGrant
  /** Shown once: the store keeps only its hash. */
  readonly token: Redacted.Redacted<string>
}

/** Also rejects an invalid date: a grant with one would never expire. */
const checkInput = Schema.decodeUnknownEffect(Schema.toType(GrantInput), { errors: "all" })

/** Creates a grant, dated now, and its token. For implementations of the port. */
export const draft = Effect.fnUntraced(function* (
  input: GrantInput
): Effect.fn.Return<IssuedGrant & { readonly tokenHash: string }, GrantRefused> {
  yield* Effect.mapError(checkInput(input), (error) => new GrantRefused({ issues: issuesOf(error) }))
  const token = yield* GrantToken.generate
  const grant: ExecutionGrant = {
    id: `grant-${crypto.randomUUID()}`,
    userId: input.userId,
    billingAccountId: input.billingAccountId,
    scopes: [...input.scopes],
    allowSandbox: input.allowSandbox,
    permissions: input.permissions ?? safeDefault,
    expiresAt: input.expiresAt,
    revokedAt: null,
    createdAt: new Date(yield* Clock.currentTimeMillis)
  }
  return { grant, token, tokenHash: yield* GrantToken.hash(token) }
})
