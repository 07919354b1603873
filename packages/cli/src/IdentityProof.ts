/** Sends one marked call at the start, if `COGNI_IDENTITY_CHECK_MODEL` names a model, and reads whose it is. */
import type { Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import * as IdentityCheck from "@cogni/sandbox-proxy/IdentityCheck"
import { Effect } from "effect"
import { type Refusal, refusal } from "./Failure.ts"
import * as KeyFile from "./KeyFile.ts"
import * as Reconciling from "./Reconciling.ts"
import * as RunKeyComposition from "./RunKeyComposition.ts"
import * as RunPlan from "./RunPlan.ts"
import type { Settings } from "./Settings.ts"

/** Checks the configured upstream, with a key as that of a run if runs have one. */
export const check = (
  settings: Settings["Service"],
  model: string
): Effect.Effect<IdentityCheck.Proof, IdentityCheck.IdentityUnproven | Misconfigured | Refusal> =>
  Effect.gen(function* () {
    const {
      key: configured,
      options,
      url
    } = yield* Effect.fromResult(RunPlan.upstreamAddress(settings, false))
    const key =
      settings.keyFile === undefined ? configured : KeyFile.source(settings.keyFile, "COGNI_LLM_KEY_FILE")
    return yield* IdentityCheck.check({
      url,
      model,
      key,
      runKeys: yield* RunKeyComposition.make({ settings: settings.runKeys, url, key, options }),
      egressProxy: options.egressProxy,
      rowsSeconds: settings.rowsSeconds
    }).pipe(Effect.provide(Reconciling.rows(settings)))
  })

const unverified =
  "it is not verified whose account the upstream bills: COGNI_IDENTITY_CHECK_MODEL names no model for a marked call"

/** Refuses to start if the check is configured and fails. Without a check, it only logs that. */
export const required = (settings: Settings["Service"]): Effect.Effect<void, Misconfigured | Refusal> =>
  settings.identityCheckModel === undefined
    ? Effect.logInfo(unverified)
    : Effect.logInfo("a marked call shows whose account is billed. Its row can take a minute").pipe(
        Effect.andThen(check(settings, settings.identityCheckModel)),
        Effect.catchTag("IdentityUnproven", ({ problem, remedy }) =>
          Effect.fail(refusal("configuration", problem, remedy))
        ),
        Effect.andThen(Effect.logInfo("the marked call is billed to the account that was sent"))
      )
