/** Sends one marked call at the start, if `COGNI_IDENTITY_CHECK_MODEL` names a model, and reads whose it is. */
import * as IdentityCheck from "@cogni/sandbox-proxy/IdentityCheck"
import { Effect } from "effect"
import { type Refusal, refusal } from "./Failure.ts"
import * as KeyFile from "./KeyFile.ts"
import * as Reconciling from "./Reconciling.ts"
import * as RunPlan from "./RunPlan.ts"
import type { Settings } from "./Settings.ts"

/** How long to wait for the row, as a multiple of the time for which the upstream collects rows. */
const waitFactor = 3
const waitSecondsMin = 180

/** Checks the configured upstream. */
export const check = (
  settings: Settings["Service"],
  model: string
): Effect.Effect<IdentityCheck.Proof, IdentityCheck.IdentityUnproven | Refusal> =>
  Effect.gen(function* () {
    const { key, options, url } = yield* Effect.fromResult(RunPlan.upstreamAddress(settings, false))
    return yield* IdentityCheck.check({
      url,
      model,
      key: settings.keyFile === undefined ? key : KeyFile.source(settings.keyFile, "COGNI_LLM_KEY_FILE"),
      egressProxy: options.egressProxy,
      waitSecondsMax: Math.max(waitSecondsMin, waitFactor * (settings.rowsSeconds ?? 0))
    }).pipe(Effect.provide(Reconciling.rows(settings)))
  })

/** Refuses to start if the check is configured and fails. */
export const required = (settings: Settings["Service"]): Effect.Effect<void, Refusal> =>
  settings.identityCheckModel === undefined
    ? Effect.void
    : Effect.logInfo("a marked call shows whose account is billed. Its row can take a minute").pipe(
        Effect.andThen(check(settings, settings.identityCheckModel)),
        Effect.catchTag("IdentityUnproven", ({ detail, remedy }) =>
          Effect.fail(
            refusal(
              "configuration",
              `it is not shown that calls are billed to their account: ${detail}`,
              remedy
            )
          )
        ),
        Effect.andThen(Effect.logInfo("the marked call is billed to the account that was sent"))
      )
