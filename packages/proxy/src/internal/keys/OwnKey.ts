/** The credential of one run: a key of its own, or the gateway's key where the configuration allows that. */
import { Effect, type Scope } from "effect"
import type { LlmProxyError, LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import { Misconfigured, ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import { named } from "@cogni/sandbox-core/Remedy"
import type { LlmAccess } from "@cogni/sandbox-core/SpecFields"
import type { RunKeyed } from "../../AuditEntry.ts"
import * as KeyInjection from "../../KeyInjection.ts"
import type { RunKey, RunKeyFailed } from "../../RunKeys.ts"
import type { UpstreamProfile } from "../../UpstreamProfile.ts"
import type { KeyTold } from "../gateway/UpstreamKeys.ts"
import type { KeyDesk } from "../shards/KeyDesk.ts"
import type { RunKeyLeases } from "./RunKeyLease.ts"
import * as RunKeyTerms from "./RunKeyTerms.ts"

export interface OwnKey {
  /** Answers the thread that serves the run. */
  readonly desk: Pick<KeyDesk, "answer">
  /** Waits for the key. Returns which key the run has, for its audit. Fails if the run must not start. */
  readonly ready: Effect.Effect<RunKeyed, LlmProxyError>
}

export interface Options {
  readonly leases: RunKeyLeases
  readonly fallback: "none" | "masterKey"
  /** The gateway's own key. */
  readonly desk: KeyDesk
  readonly profile: UpstreamProfile
}

/** Begins to create the key of a run. Closing the scope deletes it. */
export const open = Effect.fnUntraced(function* (
  { desk, fallback, leases, profile }: Options,
  request: LlmRequest,
  llm: LlmAccess
): Effect.fn.Return<OwnKey, never, Scope.Scope> {
  const terms = RunKeyTerms.make(request, llm, profile)
  const { key } = yield* leases.open(terms)
  const budget = terms.budgetUsdMax === undefined ? {} : { budgetUsdMax: terms.budgetUsdMax }
  return {
    desk: {
      answer: (ask) =>
        Effect.matchEffect(key, {
          onSuccess: (found) => Effect.succeed(told(found)),
          onFailure: ({ detail, isRetryable }) =>
            fallback === "masterKey"
              ? desk.answer(ask)
              : Effect.succeed<KeyTold>({ _tag: "Unavailable", detail, isRetryable })
        })
    },
    ready: Effect.matchEffect(key, {
      onSuccess: ({ alias, expiresAt, hash }) =>
        Effect.succeed<RunKeyed>({
          type: "run.keyed",
          credential: "run",
          keyHash: hash,
          alias,
          expiresAt,
          ...budget
        }),
      onFailure: (failure) =>
        fallback === "masterKey"
          ? Effect.as(
              Effect.logWarning(`The run ${request.runId} uses the gateway's key: ${failure.message}`),
              { type: "run.keyed", credential: "shared", detail: failure.detail } satisfies RunKeyed
            )
          : Effect.fail(refusalOf(failure))
    })
  }
})

const told = ({ key }: RunKey): KeyTold => ({
  _tag: "Key",
  key: KeyInjection.handedOver(key),
  version: 0,
  freshMillis: Number.POSITIVE_INFINITY
})

/** Alternative for an operator whose LiteLLM can create no key. */
const orShared = `Or let runs use the gateway's own key (${named("GatewayLlmProxy.runKeys")})`

const refusalOf = ({ detail, isRetryable, remedy }: RunKeyFailed): ProxyFailed | Misconfigured =>
  isRetryable
    ? new ProxyFailed({ detail: `the run has no key of its own: ${detail}`, remedy })
    : new Misconfigured({
        option: named("GatewayLlmProxy.runKeys"),
        detail: `cannot create the run's key: ${detail}`,
        remedy: `${remedy}. ${orShared}`
      })
