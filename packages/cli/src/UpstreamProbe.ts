/** Checks whether the configured model API answers. The request has no key: any HTTP response counts. */
import { fail, type Finding, ok, warn } from "@cogni/sandbox-docker/Finding"
import * as Upstream from "@cogni/sandbox-proxy/Upstream"
import { Effect, Result } from "effect"
import { FetchHttpClient, HttpClient } from "effect/http"
import * as RunPlan from "./RunPlan.ts"
import type { Settings } from "./Settings.ts"
import { oneLine } from "./TerminalText.ts"

const check = "upstream"

export const probeSecondsMax = 5

export const probe = (
  settings: Pick<Settings["Service"], "upstream" | "upstreamOptions" | "model">
): Effect.Effect<Finding> => {
  const { upstream } = settings
  if (upstream._tag === "Absent") {
    return Effect.succeed(
      warn(
        check,
        "not configured: run --demo and demo work, but agents have no model",
        "Set COGNI_LLM_URL, COGNI_LLM_KEY_FILE (or COGNI_LLM_KEY) and COGNI_LLM_MODEL"
      )
    )
  }
  const resolved = Result.flatMap(RunPlan.upstreamAddress(settings, false), ({ options, url }) =>
    Upstream.resolve({ type: "host", url }, options)
  )
  if (Result.isFailure(resolved)) {
    const { detail, remedy } = resolved.failure
    return Effect.succeed(fail(check, oneLine(detail), oneLine(remedy)))
  }
  const { address, profile } = resolved.success
  const { display } = address
  return HttpClient.get(`${display}${profile.pathPrefix.replace("/{model}", "")}/models`).pipe(
    Effect.timeout(`${probeSecondsMax} seconds`),
    Effect.match({
      onSuccess: ({ status }) =>
        status >= 500
          ? warn(check, `${display} answers ${status}`, "Look at its log")
          : settings.model === undefined
            ? warn(check, `${display} answers`, "Set COGNI_LLM_MODEL, or name --model for each run")
            : ok(check, `${display} answers; model ${settings.model}, profile ${profile.name}`),
      onFailure: (error) =>
        fail(
          check,
          `${display} does not answer within ${probeSecondsMax} s (${oneLine(error.message)})`,
          "Start it, or correct COGNI_LLM_URL"
        )
    }),
    Effect.provide(FetchHttpClient.layer),
    Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" })
  )
}
