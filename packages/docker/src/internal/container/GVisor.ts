/**
 * gVisor, the OCI runtime `runsc`: a kernel of its own for each sandbox, in a process of the host. Known by its name on
 * the engine. Pure.
 */

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
