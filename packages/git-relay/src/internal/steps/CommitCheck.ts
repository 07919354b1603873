/** Checks collected commits against the policy. */
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Effect } from "effect"
import type { Collected } from "../../RelaySteps.ts"
import { RelayFailed } from "../../GitRelayError.ts"
import * as CredentialUse from "../git/CredentialUse.ts"
import * as GitObjects from "../git/GitObjects.ts"
import * as PolicyGate from "../policy/PolicyGate.ts"
import { RelayContext } from "./RelayContext.ts"

export const check = Effect.fnUntraced(function* (collected: Collected) {
  const { limits, policies, runs, secrets = [] } = yield* RelayContext
  const { directory, request } = collected.clone
  const state = yield* runs.read(request.runId)
  const checked = yield* PolicyGate.check(collected, policies, {
    reader: yield* GitObjects.make(relayPaths(directory).repository),
    secrets: [...secrets.map(CredentialUse.soughtAfter), ...state.canaries]
  }).pipe(
    Effect.timeoutOrElse({
      duration: `${limits.checkSecondsMax} seconds`,
      orElse: () =>
        new RelayFailed({
          detail: `checking the commits took more than ${limits.checkSecondsMax} s`,
          remedy: "Have the agent change less in one run, or allow more time (limits.checkSecondsMax)"
        })
    })
  )
  yield* runs.save({ ...state, stage: "checked" })
  return checked
}, Effect.scoped)
