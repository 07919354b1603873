/**
 * gVisor, the OCI runtime `runsc`: a kernel of its own for each sandbox, in a process of the host. Known by its name on
 * the engine. Pure.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { named } from "@cogni/sandbox-core/Remedy"
import { ContainerFailed } from "@cogni/sandbox-core/SandboxReason"

/**
 * Fewest processes that a container may have. About forty threads of gVisor itself count. With 32, gVisor hangs, and
 * the engine cannot remove the container.
 */
export const processesMin = 64

/** Returns why gVisor cannot start a container; `undefined` if it can. */
export const refusal = ({ limits, role }: Pick<ContainerSpec, "limits" | "role">) =>
  limits.processesMax >= processesMin
    ? undefined
    : new ContainerFailed({
        operation: "create",
        detail: `gVisor hangs in a container with fewer than ${processesMin} processes, and this one (${role}) may have ${limits.processesMax}`,
        remedy:
          role === "agent"
            ? `Set limits.processesMax to at least ${processesMin}`
            : `Use ${named("GatewayLlmProxy")}, or another ${named("DockerContainerRuntime.engineRuntime")}`
      })

/** Returns whether an OCI runtime of the engine is gVisor, by its name there. */
export const isNamed = (engineRuntime: string | undefined): boolean =>
  /^(?:io\.containerd\.)?(?:gvisor|runsc)(?:$|[.-])/u.test(engineRuntime ?? "")

/** Flags without which a posture does not verify, or a sandbox cannot reach its model. */
const flags = [
  // Otherwise it ignores the seccomp profile.
  { flag: "--oci-seccomp", isIn: /^--?oci-seccomp(?:=true)?$/u },
  // Otherwise the process that is the sandbox's kernel is root, and has capabilities.
  { flag: "--directfs=false", isIn: /^--?directfs=false$/u },
  // Otherwise no program of a sandbox can connect to a socket of the host.
  { flag: "--host-uds=open", isIn: /^--?host-uds=(?:open|all)$/u }
]

/** Returns the missing flags of gVisor's entry in the engine's configuration, as the engine reports it. */
export const missingFlags = (entry: unknown): ReadonlyArray<string> => {
  if (typeof entry !== "object" || entry === null || !("path" in entry)) return []
  const given: ReadonlyArray<unknown> =
    "runtimeArgs" in entry && Array.isArray(entry.runtimeArgs) ? entry.runtimeArgs : []
  return flags.filter(({ isIn }) => !given.some((word) => isIn.test(String(word)))).map(({ flag }) => flag)
}
