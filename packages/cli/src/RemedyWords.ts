/** Replaces names of the libraries in a message with what users of the command set or start. Pure. */
import * as Remedy from "@cogni/sandbox-core/Remedy"

type Fields = ReadonlyArray<readonly [field: string, setting: string]>

/** Fields of a spec, and the flags that set them. */
const flags: Fields = [
  ["limits.runtimeSecondsMax", "--timeout"],
  ["limits.memoryBytesMax", "--memory"],
  ["limits.processesMax", "--processes"],
  ["limits.cpusMax", "--cpus"],
  ["limits.outputBytesMax", "--output-limit"],
  ["limits.workspaceBytesMax", "--disk"],
  ["limits.stopGraceSecondsMax", "--grace"],
  ["workspace.path", "--workspace"],
  ["runId", "--run-id"],
  ["image", "--image"],
  ["llm.budget.callsMax", "--max-calls"],
  ["llm.budget.inputTokensMax", "--max-input-tokens"],
  ["llm.budget.outputTokensMax", "--max-output-tokens"],
  ["llm.budget.costUsdMax", "--max-cost"],
  ["llm.budget.subagentShareMax", "--subagent-share"],
  ["llm.unknownFields", "--strict"],
  ["llm.model", "--model"],
  ["llm.budget", "the budget (--max-calls, --max-cost, …)"],
  ["tools.0", "--tool"],
  ["packages.0", "--packages"],
  ["argv.0", "the command"]
]

/** Options and operations of the libraries, as users of the command set or start them. */
const words: Readonly<Record<Remedy.Name, string>> = {
  AccountLimits: "COGNI_ACCOUNT_LIMITS_FILE",
  "AcpOptions.ignoreMcpServers": "--ignore-mcp-servers",
  "CloneRequest.baseBranch": "--base",
  "CloneRequest.depth": "--depth",
  "ConnectionStore.add": "cogni-sandbox connections add",
  ConnectionUser: "--account",
  "DockerApi.host": "DOCKER_HOST",
  "DockerContainerRuntime.engineRuntime": "COGNI_ENGINE_RUNTIME",
  DockerDoctor: "cogni-sandbox doctor",
  DockerReaper: "cogni-sandbox prune",
  "FileRunStore.directory": "COGNI_STATE_DIR",
  "Forge.layer": "GITHUB_API_URL, GITLAB_HOST",
  GatewayLlmProxy: "--proxy gateway",
  "GatewayLlmProxy.image": "COGNI_GATEWAY_IMAGE",
  "GatewayLlmProxy.key": "COGNI_LLM_KEY",
  "GatewayLlmProxy.url": "COGNI_LLM_URL",
  "GatewayLlmProxy.packages": "COGNI_PACKAGES_FILE",
  "GatewayLlmProxy.profile": "COGNI_LLM_PROFILE",
  "GatewayLlmProxy.egressProxy": "HTTPS_PROXY",
  "GatewayLlmProxy.runKeys": "COGNI_RUN_KEYS",
  "LiteLlmRunKeys.deployment": "COGNI_DEPLOYMENT",
  "LiteLlmRunKeys.url": "COGNI_LLM_URL",
  GitCredentials: "GITHUB_TOKEN_FILE with GITHUB_SERVER_URL, or GITLAB_TOKEN with GITLAB_HOST",
  "GitRelay.discard": "cogni-sandbox relay drop",
  "GitRelay.kept": "cogni-sandbox relay list",
  "GitRelay.reopen": "cogni-sandbox relay retry",
  "HostGitRelay.network": "GIT_SSL_CAINFO",
  "HostGitRelay.privateServers": "for serve, COGNI_FORGES=HOST=private",
  NginxLlmProxy: "--proxy nginx",
  "NginxLlmProxy.profile": "COGNI_LLM_PROFILE",
  "NginxLlmProxy.egressProxy": "HTTPS_PROXY",
  "HostSessionWorkspaces.directory": "COGNI_STATE_DIR",
  "HostWorkspace.claims": "COGNI_STATE_DIR",
  "NginxLlmProxy.image": "COGNI_PROXY_IMAGE",
  "NginxLlmProxy.key": "COGNI_LLM_KEY",
  "NginxLlmProxy.upstream": "COGNI_LLM_URL",
  SharedNginxLlmProxy: "--proxy nginx-shared",
  "SharedNginxLlmProxy.egressProxy": "HTTPS_PROXY",
  "SharedNginxLlmProxy.key": "COGNI_LLM_KEY",
  "SharedNginxLlmProxy.profile": "COGNI_LLM_PROFILE",
  "SharedNginxLlmProxy.upstream": "COGNI_LLM_URL",
  "PoolLimits.memoryBytesMax": "--pool-memory",
  "PoolLimits.sandboxesMax": "--pool",
  "RelayRun.deliver": "relay retry --patch FILE",
  "ReopenOptions.branch": "relay retry --branch",
  "SecretBox.layerKeys": "COGNI_CONNECTIONS_KEY_FILE",
  "RunStore.list": "cogni-sandbox ps"
}

/** Fields of a spec that `chat` sets, by keys of its configuration and by flags. */
const chatSettings: Fields = [
  ...[
    ["limits.runtimeSecondsMax", "timeout_seconds"] as const,
    ["limits.memoryBytesMax", "memory_limit"] as const,
    ["limits.cpusMax", "cpu_limit"] as const
  ].map(([field, key]) => [field, `sandbox.${key}`] as const),
  ...flags.filter(([field]) => field.startsWith("llm.budget") || field === "llm.model")
]

/** Replaces the names of the libraries in a message with flags, variables and commands. */
export const inFlags = (message: string): string => replaced(flags, message)

/** The same for `chat`, whose limits are keys of its configuration. */
export const inChat = (message: string): string => replaced(chatSettings, message)

const replaced = (fields: Fields, message: string): string =>
  fields.reduce(
    (text, [field, flag]) =>
      field.includes(".")
        ? text.replaceAll(field, flag)
        : // Such a name is also an ordinary word: it is a field only at the beginning of a problem.
          text.replaceAll(`: ${field}: `, `: ${flag}: `).replaceAll(`; ${field}: `, `; ${flag}: `),
    Remedy.render(message, words)
  )
