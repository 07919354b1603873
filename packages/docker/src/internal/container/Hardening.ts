/**
 * The security settings of a container: a pure function from its spec to the engine's `HostConfig`.
 *
 * No option loosens them. `Hardening.test.ts` contains the complete result, so that every change shows in review, and a
 * property that no spec weakens it. `test/integration/Hardening.test.ts` checks each setting from inside.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import { temporaryTargets } from "@cogni/sandbox-core/Posture"
import type { Network } from "@cogni/sandbox-core/SpecFields"
import * as GVisor from "./GVisor.ts"
import * as SeccompProfile from "./SeccompProfile.ts"

export type HostConfig = ReturnType<typeof hostConfig>

/** A file of this host that a sandbox has as its `/etc/hosts`. */
interface HostsPath {
  readonly path: string
}

/** Where a sandbox has the file with the address of `localhost`. */
export const hostsTarget = "/etc/hosts"

/** Size of a container's `/dev/shm`. */
const sharedMemoryBytesMax = 16 * 1024 * 1024

/** Bytes by which a file may exceed the workspace's limit, so that the run is seen to break it. */
const fileSlackBytes = 64 * 1024

/** CFS period in microseconds. The CPU limit is a quota of it. */
const cpuPeriodMicros = 100_000

export const hostConfig = (
  spec: ContainerSpec,
  {
    engineRuntime,
    hosts
  }: {
    /** Its `/etc/hosts`, if the engine does not configure its network. */
    readonly hosts?: HostsPath | undefined
    /** OCI runtime that starts the container, as the engine names it. Absent: the engine's default. */
    readonly engineRuntime?: string | undefined
  } = {}
) => {
  const { limits } = spec
  const fileBytesMax = limits.workspaceBytesMax + fileSlackBytes
  const temporary = `rw,exec,nosuid,nodev,size=${limits.temporaryBytesMax},mode=1777`
  return {
    // We remove the container after collecting its output, so the engine must not remove it earlier.
    AutoRemove: false,
    CapAdd: [],
    CapDrop: ["ALL"],
    CgroupnsMode: "private",
    CpuPeriod: cpuPeriodMicros,
    CpuQuota: Math.max(1000, Math.round(limits.cpusMax * cpuPeriodMicros)),
    Devices: [],
    // Only for our own programs. Agents and relays have a first process of ours, which also keeps their deadline, and
    // which no process inside can stop, read or write.
    Init: spec.role === "proxy" || spec.role === "gateway",
    IpcMode: "private",
    // Output comes from attach, with our limit: a log on the engine's disk would be a second copy without one.
    LogConfig: { Type: "none", Config: {} },
    Memory: limits.memoryBytesMax,
    MemorySwap: limits.memoryBytesMax,
    Mounts: [...spec.mounts, ...(hosts === undefined ? [] : [hostsMount(hosts)])].map(mount),
    NetworkMode: networkMode(spec.network),
    OomKillDisable: false,
    PidMode: "",
    PidsLimit: limits.processesMax,
    Privileged: false,
    ReadonlyRootfs: true,
    RestartPolicy: { Name: "no", MaximumRetryCount: 0 },
    ...(engineRuntime === undefined ? {} : { Runtime: engineRuntime }),
    // Our own profile, so that the refused calls do not depend on the engine's version.
    SecurityOpt: [
      "no-new-privileges",
      GVisor.isNamed(engineRuntime) ? SeccompProfile.gVisorSecurityOption : SeccompProfile.securityOption
    ],
    ShmSize: sharedMemoryBytesMax,
    Tmpfs: Object.fromEntries(temporaryTargets.map((target) => [target, temporary])),
    // No nproc: the kernel counts it per uid over the whole host, so one sandbox could starve another.
    Ulimits: [
      { Name: "core", Soft: 0, Hard: 0 },
      { Name: "fsize", Soft: fileBytesMax, Hard: fileBytesMax },
      { Name: "nofile", Soft: limits.filesOpenMax, Hard: limits.filesOpenMax }
    ],
    UsernsMode: ""
  }
}

const networkMode = (network: Network): string => (network.mode === "none" ? "none" : network.networkName)

const hostsMount = ({ path }: HostsPath): Mount => ({
  type: "directory",
  source: path,
  target: hostsTarget,
  readOnly: true
})

const mount = ({ readOnly, source, target, type }: Mount) =>
  type === "directory"
    ? {
        Type: "bind" as const,
        Source: source,
        Target: target,
        ReadOnly: readOnly,
        BindOptions: { Propagation: "rprivate" as const }
      }
    : {
        Type: "volume" as const,
        Source: source,
        Target: target,
        ReadOnly: readOnly,
        // Otherwise the owner of the volume would be that of the image's directory at the target.
        VolumeOptions: { NoCopy: true }
      }
