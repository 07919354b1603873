/**
 * Settings from the environment, read once.
 *
 * The key is removed from the process's environment before anything else happens, so that no child can inherit it, and
 * is `Redacted` from then on. The kernel still shows the initial environment, and no program can change that. A key in
 * a file (`COGNI_LLM_KEY_FILE`) never appears there. An incomplete configuration or an invalid key file is an error
 * only if a model is needed.
 */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import { defaultImage } from "@cogni/sandbox-graph-provider/agents/AgentParts"
import { builtIn } from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { Prices } from "@cogni/sandbox-proxy/Prices"
import * as UpstreamProfile from "@cogni/sandbox-proxy/UpstreamProfile"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import { Config, ConfigProvider, Context, Effect, Layer, Option, Redacted, Schema } from "effect"
import * as AccountSettings from "./AccountSettings.ts"
import * as ConnectionSettings from "./ConnectionSettings.ts"
import * as DatabaseSettings from "./DatabaseSettings.ts"
import type { Refusal } from "./Failure.ts"
import * as GitSettings from "./GitSettings.ts"
import * as HttpToolSettings from "./HttpToolSettings.ts"
import * as McpServerSettings from "./McpServerSettings.ts"
import * as SqlTool from "./SqlTool.ts"
import * as ImageSettings from "./ImageSettings.ts"
import type { Tags } from "./InstalledImages.ts"
import * as KeyFile from "./KeyFile.ts"
import * as PackageSettings from "./PackageSettings.ts"
import * as TemporalSettings from "./TemporalSettings.ts"
import * as ThreadSettings from "./ThreadSettings.ts"
import * as RunKeySettings from "./RunKeySettings.ts"
import * as UpstreamSettings from "./UpstreamSettings.ts"

/** Configuration of the upstream. */
type UpstreamSetting =
  | { readonly _tag: "Absent" }
  | { readonly _tag: "Configured"; readonly url: string; readonly key: Redacted.Redacted<string> }
  /** Only the URL or only the key is set. */
  | {
      readonly _tag: "Incomplete"
      readonly missing: "COGNI_LLM_URL" | "COGNI_LLM_KEY"
      readonly present: "COGNI_LLM_URL" | KeyVariable
    }
  /** The key cannot be read. */
  | { readonly _tag: "Refused"; readonly refusal: Refusal }

type KeyVariable = "COGNI_LLM_KEY" | "COGNI_LLM_KEY_FILE"

/** Variables that hold a secret. */
export const secretNames: ReadonlyArray<string> = [
  "COGNI_LLM_KEY",
  "COGNI_LLM_IDENTITY_SECRET",
  "COGNI_DATABASE_URL",
  "GITHUB_TOKEN",
  "GITLAB_TOKEN",
  "OTEL_EXPORTER_OTLP_HEADERS",
  "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
  "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
  "OTEL_EXPORTER_OTLP_METRICS_HEADERS"
]

/** Whether an endpoint for traces, logs or metrics is configured. */
export const isTraced = (environment: Readonly<Record<string, string>>): boolean =>
  [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
  ].some((name) => (environment[name] ?? "") !== "")

/** Copies an environment, and removes the secrets from the original. */
export const takeEnvironment = (environment: Record<string, string | undefined>): Record<string, string> => {
  const taken = Object.fromEntries(
    Object.entries(environment).filter((entry): entry is [string, string] => entry[1] !== undefined)
  )
  for (const name of secretNames) delete environment[name]
  return taken
}

const upstreamOf = (
  url: string | undefined,
  key: Redacted.Redacted<string> | undefined,
  from: KeyVariable = "COGNI_LLM_KEY"
): UpstreamSetting => {
  if (url !== undefined)
    return key === undefined
      ? { _tag: "Incomplete", missing: "COGNI_LLM_KEY", present: "COGNI_LLM_URL" }
      : { _tag: "Configured", url, key }
  return key === undefined
    ? { _tag: "Absent" }
    : { _tag: "Incomplete", missing: "COGNI_LLM_URL", present: from }
}

const optional = <A>(config: Config.Config<A>) =>
  config.pipe(
    Config.option,
    Config.map((value) => Option.getOrUndefined(value))
  )

/** Reads a variable. An empty one counts as unset. */
const text = (name: string) =>
  optional(Config.String(name)).pipe(Config.map((value) => (value === "" ? undefined : value)))

const secret = (name: string) =>
  text(name).pipe(Config.map((value) => (value === undefined ? undefined : Redacted.make(value))))

/** Returns the variable for the tag of an agent's image: `COGNI_CLAUDE_CODE_IMAGE` for `claude-code`. */
export const imageVariable = (image: string): string =>
  `COGNI_${image.toUpperCase().replaceAll("-", "_")}_IMAGE`

const agentImages = [...new Set(builtIn.map(({ image }) => image))]

const config = Config.all({
  stateDirectory: text("COGNI_STATE_DIR"),
  stateHome: text("XDG_STATE_HOME"),
  database: Config.all({
    // The URL may contain a password: it is parsed here, and redacted from here on.
    url: text("COGNI_DATABASE_URL").pipe(
      Config.map((value) => (value === undefined ? undefined : DatabaseAddress.parse(value)))
    ),
    urlFile: text("COGNI_DATABASE_URL_FILE")
  }),
  dockerHost: text("DOCKER_HOST"),
  engineRuntime: text("COGNI_ENGINE_RUNTIME"),
  runtimeImage: text("COGNI_RUNTIME_IMAGE"),
  proxyImage: text("COGNI_PROXY_IMAGE"),
  gatewayImage: text("COGNI_GATEWAY_IMAGE"),
  agentImages: Config.all(
    Object.fromEntries(agentImages.map((image) => [image, text(imageVariable(image))]))
  ),
  images: Config.all({
    pull: optional(Config.schema(Schema.Literals(["never", "missing"]), "COGNI_IMAGE_PULL")),
    keyFile: text("COGNI_IMAGE_KEY_FILE")
  }),
  packagesFile: text("COGNI_PACKAGES_FILE"),
  httpToolsFile: text("COGNI_HTTP_TOOLS_FILE"),
  mcpServersFile: text("COGNI_MCP_SERVERS_FILE"),
  sqlToolFile: text("COGNI_SQL_TOOL_FILE"),
  accountLimitsFile: text("COGNI_ACCOUNT_LIMITS_FILE"),
  runKeys: Config.all({
    mode: optional(Config.schema(RunKeySettings.Mode, "COGNI_RUN_KEYS")),
    deployment: text("COGNI_DEPLOYMENT")
  }),
  prices: optional(Config.schema(Schema.fromJsonString(Prices), "COGNI_LLM_PRICES")),
  rowsSeconds: optional(
    Config.schema(
      Schema.NumberFromString.check(Schema.isInt(), Schema.isBetween({ minimum: 1, maximum: 3600 })),
      "COGNI_LLM_ROWS_SECONDS"
    )
  ),
  identityCheckModel: text("COGNI_IDENTITY_CHECK_MODEL"),
  threads: ThreadSettings.config,
  prometheusUrl: text("COGNI_PROMETHEUS_URL"),
  upstream: Config.all({
    profile: optional(Config.schema(UpstreamProfile.Name, "COGNI_LLM_PROFILE")),
    profileFile: text("COGNI_LLM_PROFILE_FILE"),
    keyHeader: optional(Config.schema(UpstreamProfile.KeyHeader, "COGNI_LLM_KEY_HEADER")),
    identitySecret: secret("COGNI_LLM_IDENTITY_SECRET"),
    identitySecretFile: text("COGNI_LLM_IDENTITY_SECRET_FILE")
  }),
  connections: Config.all({
    keyFile: text("COGNI_CONNECTIONS_KEY_FILE"),
    gitHubAppId: text("COGNI_GITHUB_APP_ID"),
    gitHubAppKeyFile: text("COGNI_GITHUB_APP_KEY_FILE")
  }),
  temporal: TemporalSettings.config,
  configDirectory: text("COGNI_CONFIG_DIR"),
  configRepository: text("COGNI_CONFIG_REPOSITORY"),
  configBranch: text("COGNI_CONFIG_BRANCH"),
  configModels: text("COGNI_CONFIG_MODELS"),
  url: text("COGNI_LLM_URL"),
  key: secret("COGNI_LLM_KEY"),
  keyFile: text("COGNI_LLM_KEY_FILE"),
  model: text("COGNI_LLM_MODEL"),
  billingAccountId: text("COGNI_BILLING_ACCOUNT"),
  sandboxEnabled: optional(Config.schema(Schema.Literals(["true", "false"]), "SANDBOX_ENABLED")),
  git: Config.all({
    gitHubToken: secret("GITHUB_TOKEN"),
    gitHubTokenFile: text("GITHUB_TOKEN_FILE"),
    gitHubServer: text("GITHUB_SERVER_URL"),
    gitHubApi: text("GITHUB_API_URL"),
    gitLabToken: secret("GITLAB_TOKEN"),
    gitLabHost: text("GITLAB_HOST"),
    caFile: text("GIT_SSL_CAINFO"),
    proxyUrl: text("HTTPS_PROXY"),
    forges: text("COGNI_FORGES"),
    noProxy: text("NO_PROXY"),
    policyFile: text("COGNI_RELAY_POLICY_FILE")
  })
})

const make = Effect.fnUntraced(function* (tags: Tags = {}) {
  const found = yield* config
  const { keyFile } = found
  const keyVariable = keyFile === undefined ? "COGNI_LLM_KEY" : "COGNI_LLM_KEY_FILE"
  const upstream = KeyFile.secretOf("COGNI_LLM_KEY", found.key, keyFile).pipe(
    Effect.map((key) => upstreamOf(found.url, key, keyVariable)),
    Effect.catch((refusal) => Effect.succeed<UpstreamSetting>({ _tag: "Refused", refusal }))
  )
  const stateDirectory = found.stateDirectory ?? StateDirectory.defaultPath(found.stateHome)
  return {
    stateDirectory,
    /** The run database. An invalid URL is an error only if the database is needed. */
    database: yield* Effect.result(DatabaseSettings.make(found.database, stateDirectory)),
    /** The file that contains the database URL, if any. */
    databaseFile: found.database.urlFile,
    dockerHost: found.dockerHost,
    runtimeImage: found.runtimeImage ?? tags["runtime"] ?? defaultImage("runtime"),
    proxyImage: found.proxyImage ?? tags["proxy"] ?? defaultImage("proxy"),
    gatewayImage: found.gatewayImage ?? tags["gateway"] ?? defaultImage("gateway"),
    imageOf: (image: string) => found.agentImages[image] ?? tags[image] ?? defaultImage(image),
    /** The pull policy. An invalid configuration is an error only if a run or a pull needs it. */
    images: yield* Effect.result(ImageSettings.make(found.images)),
    /** The file of the key that images are verified with, if any. */
    imageKeyFile: found.images.keyFile,
    /** Images that were named by a variable. The command builds only the others. */
    isNamed: { runtime: found.runtimeImage !== undefined, gateway: found.gatewayImage !== undefined },
    /** URL of the Prometheus server for the metrics tool. */
    prometheusUrl: found.prometheusUrl,
    /** Registries of the package mirror. An invalid file is an error only if a sandbox is started. */
    packages: yield* Effect.result(
      PackageSettings.make(
        { file: found.packagesFile, proxyUrl: found.git.proxyUrl, noProxy: found.git.noProxy },
        stateDirectory
      )
    ),
    /** Limits of accounts. An invalid file is an error only if a run with a model starts, or limits are shown. */
    accountLimits: yield* Effect.result(AccountSettings.make(found.accountLimitsFile)),
    /** Whether each run gets a key of its own. */
    runKeys: RunKeySettings.make(found.runKeys),
    threads: found.threads,
    /** Prices of models; seconds for which the upstream collects rows; the model of the check of identity. */
    prices: found.prices,
    rowsSeconds: found.rowsSeconds,
    identityCheckModel: found.identityCheckModel,
    /** Profile of the upstream. An invalid one is an error only if a model is needed. */
    upstreamOptions: yield* Effect.result(
      UpstreamSettings.make({
        ...found.upstream,
        url: found.url,
        proxyUrl: found.git.proxyUrl,
        noProxy: found.git.noProxy
      })
    ),
    /** Keys of connections. An invalid file is an error only if a connection is used. */
    connections: yield* Effect.result(ConnectionSettings.make(found.connections)),
    ...(yield* toolsOf(found)),
    ...configurationOf(found),
    /** Files that decide what leaves this host, where to, and at whose cost. No agent may write them. */
    upstreamFiles: filesOf(found),
    /** The file that contains the key, if any. */
    keyFile,
    upstream: yield* upstream,
    model: found.model,
    ...accountOf(found),
    /** Whether a server may run sandboxes; off by default. */
    sandboxEnabled: found.sandboxEnabled === "true",
    /** Git servers. An invalid configuration is an error only if the relay is needed. */
    git: yield* Effect.result(GitSettings.make(found.git))
  }
})

/** Settings of host tools. */
const toolsOf = Effect.fnUntraced(function* (found: Config.Success<typeof config>) {
  return {
    /** Rules of HTTP tools. An invalid file is an error for every run with a model. */
    httpTools: yield* Effect.result(HttpToolSettings.make(found.httpToolsFile)),
    /** Database of the SQL tool. An invalid file is an error for every run with a model. */
    sqlTool: yield* Effect.result(SqlTool.read(found.sqlToolFile)),
    /** MCP servers. An invalid file is an error for every run with a model. */
    mcpServers: yield* Effect.result(McpServerSettings.make(found.mcpServersFile, secretNames))
  }
})

type Found = Config.Success<typeof config>

const configurationOf = ({
  configBranch,
  configDirectory,
  configModels,
  configRepository,
  engineRuntime,
  temporal
}: Found) => ({
  /** OCI runtime that starts containers, by its name on the engine. Absent: the engine's default. */
  engineRuntime,
  /** The Temporal server. Its files are read only by the commands that need it. */
  temporal: TemporalSettings.given(temporal),
  /** Directory with personalities and skills; the repository that holds them, and its branch. */
  configDirectory,
  configRepository,
  configBranch,
  configModels
})

const accountOf = ({ billingAccountId }: Found) => ({
  billingAccountId: billingAccountId ?? "local",
  /** Whether that account was configured. A model that costs money is not asked on behalf of a default. */
  isAccountNamed: billingAccountId !== undefined
})

const filesOf = ({
  accountLimitsFile,
  connections,
  httpToolsFile,
  mcpServersFile,
  packagesFile,
  sqlToolFile,
  temporal,
  upstream
}: Config.Success<typeof config>): ReadonlyArray<string> =>
  [
    upstream.profileFile,
    upstream.identitySecretFile,
    packagesFile,
    httpToolsFile,
    mcpServersFile,
    sqlToolFile,
    accountLimitsFile,
    connections.keyFile,
    connections.gitHubAppKeyFile,
    temporal.keyFile,
    temporal.apiKeyFile
  ].filter((path) => path !== undefined)

export class Settings extends Context.Service<Settings>()("@cogni/sandbox-cli/Settings", { make }) {}

/** Reads the settings. `tags` are the images of the installed package; without them, the default is `latest`. */
export const layer = (
  environment: Record<string, string>,
  tags?: Tags
): Layer.Layer<Settings, Config.ConfigError> =>
  Layer.effect(Settings, Settings.make(tags)).pipe(
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromEnvRecord(environment)))
  )
