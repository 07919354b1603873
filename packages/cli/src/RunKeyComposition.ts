/** Composes the keys of runs according to the environment, and deletes those that killed processes left behind. */
import { Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import { named } from "@cogni/sandbox-core/Remedy"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import type { GatewayLlmProxyOptions } from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as LiteLlmRunKeys from "@cogni/sandbox-proxy/LiteLlmRunKeys"
import type { RunKeys } from "@cogni/sandbox-proxy/RunKeys"
import { Effect, Schedule, type Scope } from "effect"
import { plural } from "./Quantity.ts"
import type { RunKeySettings } from "./RunKeySettings.ts"
import type { UpstreamWayOut } from "./RunPlan.ts"

export interface Input extends Pick<UpstreamWayOut, "options" | "url"> {
  readonly settings: RunKeySettings
  /** The configured key. */
  readonly key: LiteLlmRunKeys.LiteLlmRunKeysOptions["key"]
}

const refuse = (detail: string, remedy: string) =>
  new Misconfigured({ option: named("GatewayLlmProxy.runKeys"), detail, remedy })

/** Refuses keys of runs for a proxy that has none. */
export const refusal = ({ mode }: RunKeySettings): Misconfigured | undefined =>
  mode === "off" ? undefined : refuse("needs the gateway", "Use --proxy gateway, or set it to off")

/** Returns the option of the gateway; `undefined` if keys of runs are off. */
export const make = Effect.fnUntraced(function* ({
  key,
  options,
  settings: { deployment, mode },
  url
}: Input): Effect.fn.Return<GatewayLlmProxyOptions["runKeys"], Misconfigured> {
  if (mode === "off") return undefined
  const keys = yield* LiteLlmRunKeys.make({
    url,
    key,
    deployment,
    owners: HostOwner,
    egressProxy: options.egressProxy
  })
  return { keys, fallback: mode === "preferred" ? "masterKey" : "none" }
})

/** The same, and deletes the keys of dead runs until the scope closes. */
export const makeTidy = Effect.fnUntraced(function* (
  input: Input
): Effect.fn.Return<GatewayLlmProxyOptions["runKeys"], Misconfigured, Scope.Scope> {
  const made = yield* make(input)
  if (made !== undefined)
    yield* Effect.forkScoped(Effect.repeat(tidy(made.keys), Schedule.spaced("10 minutes")))
  return made
})

/** Deletes keys of dead runs once. A failure is only logged: the keys expire. */
const tidy = (keys: RunKeys["Service"]): Effect.Effect<void> =>
  Effect.matchEffect(keys.reap, {
    onSuccess: ({ deleted, left }) =>
      left.length > 0
        ? Effect.logWarning(
            `${plural(left.length, "key")} of dead runs cannot be deleted in LiteLLM: ${left.join(", ")}`
          )
        : deleted.length > 0
          ? Effect.logInfo(`Deleted ${plural(deleted.length, "key")} of dead runs in LiteLLM`)
          : Effect.void,
    onFailure: ({ message }) => Effect.logDebug(message)
  })
