/**
 * Handlers of proposed changes of the configuration.
 *
 * A grant must say that its holder may propose changes, and must allow the repository of the configuration. The relay
 * uses a credential of the grant's account. An agent has no grant, so it cannot change its own instructions.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import * as GrantConnections from "@cogni/sandbox-graph-provider/grants/GrantConnections"
import { allowsRepository, RepositoryNotGranted } from "@cogni/sandbox-graph-provider/grants/GrantPermissions"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { PersonalityEdit, SkillEdit } from "@cogni/sandbox-sessions/config/Personality"
import { Effect, Option, Schema } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { RateLimiter } from "effect/persistence"
import {
  type ChangeRefused,
  type ConfigurationChange,
  ConfigurationProposals
} from "../ConfigurationProposals.ts"
import type { ServerLimits } from "../ServerLimits.ts"
import { CurrentGrant, withinRate } from "./Authentication.ts"
import * as JsonBody from "./JsonBody.ts"
import * as Problem from "./Problem.ts"
import { NewPersonality, NewSkill } from "./ProposalsApi.ts"

/** Largest body: the longest text, with every character escaped. */
const bodyBytesMax = 512 * 1024

const notGranted = (grantId: string) =>
  Problem.make(
    "authz_denied",
    "ProposalNotGranted",
    `grant ${grantId} may not propose changes of the configuration. Ask the operator for a grant with --propose`
  )

const notConfigured = Problem.make(
  "not_found",
  "RepositoryNotConfigured",
  "this server has no repository of its configuration. Its operator names one with COGNI_CONFIG_REPOSITORY"
)

export const make = Effect.fnUntraced(function* ({ proposalsPerMinutePerGrantMax }: ServerLimits) {
  const proposals = yield* Effect.serviceOption(ConfigurationProposals)
  const grants = yield* GrantStore
  const limiter = yield* RateLimiter.RateLimiter

  /** Decides before the body is read. */
  const permitted = Effect.gen(function* () {
    const grant = yield* CurrentGrant
    if (grant.permissions.propose !== true) return yield* Effect.fail(notGranted(grant.id))
    if (Option.isNone(proposals)) return yield* Effect.fail(notConfigured)
    const { repository } = proposals.value
    if (!allowsRepository(grant.permissions, repository)) {
      const { _tag, message } = new RepositoryNotGranted({ grantId: grant.id })
      return yield* Effect.fail(Problem.make("authz_denied", _tag, message))
    }
    yield* withinRate(limiter, "proposals", grant.id, proposalsPerMinutePerGrantMax)
    return { grant, propose: proposals.value.propose }
  })

  return <S extends Schema.ConstraintDecoder<unknown>>(
    payload: S,
    changeOf: (body: S["Type"]) => ConfigurationChange
  ) => {
    const decode = Schema.decodeUnknownEffect(payload, { errors: "all", onExcessProperty: "error" })
    return Effect.fn("SandboxServer.propose")(function* (request: HttpServerRequest.HttpServerRequest) {
      const { grant, propose } = yield* permitted
      const value = yield* JsonBody.read(request, bodyBytesMax, "Send shorter texts")
      const body = yield* Effect.mapError(decode(value), (error) =>
        Problem.make(
          "invalid_request",
          "BodyInvalid",
          `the body is invalid: ${problemsOf(error).slice(0, 5).join("; ")}`
        )
      )
      const { billingAccountId, id: grantId } = grant
      const runId = yield* RunId.generate
      const proposed = yield* propose(changeOf(body)).pipe(
        GrantConnections.asUser(grants, { grantId, billingAccountId, runId }),
        Effect.catch(refused)
      )
      yield* Effect.logInfo(`${grantId} proposed a change of ${proposed.path}: ${proposed.status}`)
      return HttpServerResponse.jsonUnsafe(proposed, { headers: { "cache-control": "private, no-store" } })
    })
  }
})

/** The payloads and changes of the endpoints. */
export const kinds = {
  createPersonality: [
    NewPersonality,
    ({ name, ...content }: typeof NewPersonality.Type): ConfigurationChange => ({
      _tag: "CreatePersonality",
      name,
      content
    })
  ],
  createSkill: [
    NewSkill,
    ({ name, ...content }: typeof NewSkill.Type): ConfigurationChange => ({
      _tag: "CreateSkill",
      name,
      content
    })
  ],
  editPersonality: [
    PersonalityEdit,
    (name: string) =>
      (edit: PersonalityEdit): ConfigurationChange => ({ _tag: "EditPersonality", name, edit })
  ],
  editSkill: [
    SkillEdit,
    (name: string) =>
      (edit: SkillEdit): ConfigurationChange => ({ _tag: "EditSkill", name, edit })
  ]
} as const

const codes = {
  invalid: "invalid_request",
  denied: "authz_denied",
  not_found: "not_found",
  conflict: "conflict"
} as const

/** An unreachable repository is reported without details, which could name hosts of the operator's network. */
const refused = (
  error: ChangeRefused
): Effect.Effect<
  never,
  Extract<
    Problem.Problem,
    { readonly error: { readonly code: (typeof codes)[keyof typeof codes] | "unavailable" } }
  >,
  HttpServerRequest.HttpServerRequest
> => {
  if (error.code !== "unavailable")
    return Effect.fail(Problem.make(codes[error.code], error.reason, error.message))
  const again = error.isRetryable ? "Try again in a moment" : "The operator of this server must correct that"
  return Effect.logWarning("a proposed change failed", error.message).pipe(
    Effect.andThen(
      Problem.retryLater(
        Problem.make(
          "unavailable",
          error.reason,
          `the repository of the configuration could not be changed. ${again}`
        ),
        error.isRetryable ? 5 : undefined
      )
    )
  )
}
