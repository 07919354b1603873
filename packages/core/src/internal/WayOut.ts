/** Egress of a run to its model and to packages: what the spec requires of the proxy, and the agent's environment. */
import { Effect, Redacted } from "effect"
import type * as LlmObservation from "../LlmObservation.ts"
import { enforcedInBodies } from "../LlmProxy.ts"
import * as SandboxPlace from "../SandboxPlace.ts"
import * as PackagePattern from "../PackagePattern.ts"
import { InvalidSpec } from "../SandboxReason.ts"
import type { SandboxSpec } from "../SandboxSpec.ts"
import type { LlmAccess } from "../SpecFields.ts"
import type { PlantedDirectory } from "../Workspace.ts"
import * as PackageEnvironment from "./PackageEnvironment.ts"

/** Whether a run has a socket at all. */
export const isOpen = ({ llm, packages }: Pick<SandboxSpec, "llm" | "packages">): boolean =>
  llm !== undefined || packages.length > 0

/** Whether the sandbox gets a socket. It sees nothing of a model that the host calls. */
export const isInside = ({ llm, packages }: Pick<SandboxSpec, "llm" | "packages">): boolean =>
  packages.length > 0 || (llm !== undefined && llm.caller !== "host")

/** Refuses a spec that requires more than this proxy can enforce. */
export const promised = (spec: SandboxSpec, proxy: LlmObservation.LlmProxyCapabilities) => {
  const { llm, tools } = spec
  const unserved = packageProblems(spec, proxy)
  if (llm === undefined) {
    const problems =
      tools.length === 0
        ? unserved
        : [
            "tools: a run without a model has none, because they are called over the model's socket. Name a model (llm.model)",
            ...unserved
          ]
    return problems.length === 0 ? Effect.void : Effect.fail(new InvalidSpec({ problems }))
  }
  const missing = tools.filter((name) => !proxy.tools.includes(name))
  const unread = proxy.inspectsBodies ? [] : enforcedInBodies({ canaries: spec.canaries, llm })
  const problems = [
    ...(proxy.servesModel === false
      ? ["llm: no model is configured. Configure an upstream, or leave llm out"]
      : []),
    ...unserved,
    ...(llm.caller === "host" && !proxy.servesHost
      ? [
          `llm.caller: the sockets of the proxy ${proxy.name} are not on this host. Use the gateway, in process`
        ]
      : []),
    ...missing.map(
      (name) => `tools: the proxy has no ${name} (it has ${proxy.tools.join(", ") || "no tool at all"})`
    ),
    ...unread.map((field) => `${field}: the proxy ${proxy.name} does not read bodies. Use the gateway`)
  ]
  return problems.length === 0 ? Effect.void : Effect.fail(new InvalidSpec({ problems }))
}

/** URL of the mirror, as the sandbox sees it. */
const packageUrl = `${SandboxPlace.baseUrl}/packages`

/** Directories with files that configure package managers. */
export const directories = ({ packages }: Pick<SandboxSpec, "packages">): ReadonlyArray<PlantedDirectory> =>
  PackageEnvironment.directories(PackagePattern.opened(packages), packageUrl)

/** Refuses packages that the proxy does not serve. */
const packageProblems = ({ packages }: SandboxSpec, proxy: LlmObservation.LlmProxyCapabilities) => {
  const served = proxy.packages ?? []
  return PackagePattern.opened(packages)
    .filter((registry) => !served.includes(registry))
    .map(
      (registry) =>
        `packages: the proxy ${proxy.name} has no mirror of ${registry} (it has ${served.join(", ") || "none"}). ` +
        `Configure the address of the registry, or leave ${registry}: patterns out`
    )
}

/**
 * Environment of an agent: its own, and that through which it finds its model and tools, and package managers find the
 * mirror. It is worthless outside its own sandbox.
 */
export const environment = (
  { env, llm, packages }: Pick<SandboxSpec, "env" | "llm" | "packages">,
  runId: string,
  token?: Redacted.Redacted<string>
): Record<string, string> => ({
  // A caller may have a variable of this name.
  RUN_ID: runId,
  ...env,
  COGNI_SOCKET: SandboxPlace.socketPath,
  ...PackageEnvironment.make(PackagePattern.opened(packages), packageUrl),
  ...(llm === undefined || llm.caller === "host" ? {} : modelEnvironment(llm, token))
})

const modelEnvironment = (
  llm: LlmAccess,
  token: Redacted.Redacted<string> = Redacted.make("none")
): Record<string, string> => ({
  COGNI_MODEL: llm.model,
  // The entrypoint removes its own name of the socket.
  COGNI_GATEWAY_SOCK: SandboxPlace.socketPath,
  OPENAI_API_BASE: SandboxPlace.baseUrl,
  OPENAI_BASE_URL: `${SandboxPlace.baseUrl}/v1`,
  OPENAI_API_KEY: Redacted.value(token),
  ANTHROPIC_BASE_URL: SandboxPlace.baseUrl,
  ANTHROPIC_API_KEY: Redacted.value(token)
})
