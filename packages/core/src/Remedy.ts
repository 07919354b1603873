/**
 * Names in remedies.
 *
 * A library calls an option by its own name, such as `FileRunStore.directory`. A program whose users set flags or
 * environment variables replaces each name with what they set. So there is one text for both. Pure.
 */

/** Options, operations and fields that errors of these packages can name. */
export const names = [
  "AccountLimits",
  "AcpOptions.ignoreMcpServers",
  "CloneRequest.baseBranch",
  "CloneRequest.depth",
  "ConnectionStore.add",
  "ConnectionUser",
  "DockerApi.host",
  "DockerContainerRuntime.engineRuntime",
  "DockerDoctor",
  "DockerReaper",
  "FileRunStore.directory",
  "Forge.layer",
  "GatewayLlmProxy",
  "GatewayLlmProxy.egressProxy",
  "GatewayLlmProxy.image",
  "GatewayLlmProxy.key",
  "GatewayLlmProxy.packages",
  "GatewayLlmProxy.profile",
  "GatewayLlmProxy.runKeys",
  "GatewayLlmProxy.url",
  "GitCredentials",
  "GitRelay.discard",
  "GitRelay.kept",
  "GitRelay.reopen",
  "HostGitRelay.network",
  "HostGitRelay.privateServers",
  "HostSessionWorkspaces.directory",
  "HostWorkspace.claims",
  "LiteLlmRunKeys.deployment",
  "LiteLlmRunKeys.url",
  "NginxLlmProxy",
  "NginxLlmProxy.egressProxy",
  "NginxLlmProxy.image",
  "NginxLlmProxy.key",
  "NginxLlmProxy.profile",
  "NginxLlmProxy.upstream",
  "PoolLimits.memoryBytesMax",
  "PoolLimits.sandboxesMax",
  "RelayRun.deliver",
  "ReopenOptions.branch",
  "RunStore.list",
  "SecretBox.layerKeys",
  "SharedNginxLlmProxy",
  "SharedNginxLlmProxy.egressProxy",
  "SharedNginxLlmProxy.key",
  "SharedNginxLlmProxy.profile",
  "SharedNginxLlmProxy.upstream"
] as const

export type Name = (typeof names)[number]

/** Returns the name unchanged. Its type rejects a name that is not listed, which a program could not replace. */
export const named = (name: Name): string => name

/** Replaces each name in a message with the words of a program. A name inside a longer name is not replaced. */
export const render = (message: string, words: Readonly<Record<Name, string>>): string =>
  message.replace(pattern, (name) => words[name as Name])

const pattern = new RegExp(
  `(?<![\\w./-])(?:${names.map((name) => name.replaceAll(".", "\\.")).join("|")})(?![\\w/-]|\\.\\w)`,
  "gu"
)
