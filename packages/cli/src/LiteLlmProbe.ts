/** Checks the version of a configured LiteLLM, its database, and what it must be set to for costs and keys. */
import { fail, type Finding, ok, warn } from "@cogni/sandbox-docker/Finding"
import * as LiteLlmVersion from "@cogni/sandbox-proxy/LiteLlmVersion"
import * as Upstream from "@cogni/sandbox-proxy/Upstream"
import { Effect, Result } from "effect"
import * as RunPlan from "./RunPlan.ts"
import type { Settings } from "./Settings.ts"
import { oneLine } from "./TerminalText.ts"

const check = "litellm"

const probeSecondsMax = 5

/** Settings that no route of LiteLLM tells, and that its costs depend on. */
const advice =
  "it must have include_cost_in_streaming_usage: true for costs of streams, and writes rows every proxy_batch_write_at seconds"

/** Returns no finding for an upstream that is not LiteLLM, or that `UpstreamProbe` reports already. */
export const probe = (
  settings: Pick<Settings["Service"], "model" | "runKeys" | "upstream" | "upstreamOptions">
): Effect.Effect<ReadonlyArray<Finding>> => {
  const address = RunPlan.upstreamAddress(settings, false)
  if (settings.upstream._tag === "Absent" || Result.isFailure(address)) return Effect.succeed([])
  const { key, options, url } = address.success
  const resolved = Upstream.resolve({ type: "host", url }, options)
  if (Result.isFailure(resolved) || resolved.success.profile.name !== "litellm") return Effect.succeed([])
  return LiteLlmVersion.read({
    url: resolved.success.address.display,
    key,
    egressProxy: options.egressProxy,
    requestSecondsMax: probeSecondsMax
  }).pipe(
    Effect.match({
      onSuccess: (found) => [findingOf(found, settings.runKeys.mode)],
      onFailure: ({ detail, remedy }) => [
        warn(check, `its version is unknown: ${oneLine(detail)}`, oneLine(remedy))
      ]
    })
  )
}

/** Judges what LiteLLM tells about itself. */
export const findingOf = (
  { hasDatabase, version }: LiteLlmVersion.Found,
  mode: Settings["Service"]["runKeys"]["mode"]
): Finding => {
  const problem = version === undefined ? undefined : LiteLlmVersion.problemOf(version)
  if (problem !== undefined) return fail(check, problem.detail, problem.remedy)
  if (!hasDatabase && mode !== "off")
    return fail(
      check,
      "LiteLLM has no database, so it can issue no keys",
      "Set DATABASE_URL of LiteLLM, or COGNI_RUN_KEYS=off"
    )
  return version === undefined
    ? warn(check, "LiteLLM does not tell its version", "Compare it with the list in docs/guides/gateway.md")
    : ok(check, `version ${oneLine(version)}, keys for runs ${mode}; ${advice}`)
}
