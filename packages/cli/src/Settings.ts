/**
 * What the environment says, read once.
 *
 * The key leaves the process's environment before anything else happens, so that no child can inherit it, and is
 * `Redacted` from then on. Half a configuration is an error where a model is needed, and nowhere else.
 */
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import { Config, ConfigProvider, Context, Effect, Layer, Option, Redacted } from "effect"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** Whether there is a model to speak to. @category models */
export type UpstreamSetting =
  | { readonly _tag: "Absent" }
  | { readonly _tag: "Configured"; readonly url: string; readonly key: Redacted.Redacted<string> }
  /** One without the other. */
  | { readonly _tag: "Incomplete"; readonly missing: "COGNI_LLM_URL" | "COGNI_LLM_KEY" }

/** @category services */
export class Settings extends Context.Service<
  Settings,
  {
    readonly stateDirectory: string
    readonly dockerHost: string | undefined
    readonly runtimeImage: string
    readonly proxyImage: string
    readonly upstream: UpstreamSetting
    readonly model: string | undefined
    readonly billingAccountId: string
  }
>()("@cogni/sandbox-cli/Settings") {}

/** Variables that hold a secret. @category constants */
export const secretNames: ReadonlyArray<string> = ["COGNI_LLM_KEY"]

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** Copy an environment, and take the secrets out of the original. @category constructors */
export const takeEnvironment = (environment: Record<string, string | undefined>): Record<string, string> => {
  const taken = Object.fromEntries(
    Object.entries(environment).filter((entry): entry is [string, string] => entry[1] !== undefined)
  )
  for (const name of secretNames) delete environment[name]
  return taken
}

/** @category constructors */
export const upstreamOf = (
  url: string | undefined,
  key: Redacted.Redacted<string> | undefined
): UpstreamSetting => {
  if (url !== undefined && key !== undefined) return { _tag: "Configured", url, key }
  if (url === undefined && key === undefined) return { _tag: "Absent" }
  return { _tag: "Incomplete", missing: url === undefined ? "COGNI_LLM_URL" : "COGNI_LLM_KEY" }
}

/** An empty variable is one that is not set. */
const text = (name: string) =>
  Config.String(name).pipe(
    Config.option,
    Config.map((value) => Option.getOrUndefined(Option.filter(value, (found) => found !== "")))
  )

const config = Config.all({
  stateDirectory: text("COGNI_STATE_DIR"),
  stateHome: text("XDG_STATE_HOME"),
  dockerHost: text("DOCKER_HOST"),
  runtimeImage: text("COGNI_RUNTIME_IMAGE"),
  proxyImage: text("COGNI_PROXY_IMAGE"),
  url: text("COGNI_LLM_URL"),
  key: text("COGNI_LLM_KEY").pipe(
    Config.map((value) => (value === undefined ? undefined : Redacted.make(value)))
  ),
  model: text("COGNI_LLM_MODEL"),
  billingAccountId: text("COGNI_BILLING_ACCOUNT")
})

/** @category constructors */
export const make = Effect.gen(function* () {
  const found = yield* config
  return Settings.of({
    stateDirectory: found.stateDirectory ?? FileRunStore.defaultDirectory(found.stateHome),
    dockerHost: found.dockerHost,
    runtimeImage: found.runtimeImage ?? "cogni-sandbox/runtime:latest",
    proxyImage: found.proxyImage ?? "cogni-sandbox/proxy:latest",
    upstream: upstreamOf(found.url, found.key),
    model: found.model,
    billingAccountId: found.billingAccountId ?? "local"
  })
})

/** @category layers */
export const layer = (environment: Record<string, string>): Layer.Layer<Settings, Config.ConfigError> =>
  Layer.effect(Settings, make).pipe(
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromEnvRecord(environment)))
  )
