/**
 * How a container is held: a pure function from what it is asked to be to the engine's `HostConfig`.
 *
 * There is one way in and no switch to loosen it. The whole result is written out in `Hardening.test.ts`, so every
 * change of it shows in review; a property says that no spec weakens it; `test/integration/Hardening.test.ts` looks at
 * each line of it from inside.
 */
import type { ContainerSpec, Mount } from "@cogni/sandbox-core/ContainerRuntime"
import { temporaryTargets } from "@cogni/sandbox-core/Posture"
import type { Network } from "@cogni/sandbox-core/SandboxSpec"
import * as SeccompProfile from "./SeccompProfile.ts"

export type HostConfig = ReturnType<typeof hostConfig>

/** Below this a container's own `/dev/shm` stays. */
const sharedMemoryBytesMax = 16 * 1024 * 1024

/** One file may grow this far past what the workspace may, so that a run that is over its limit is seen to be. */
const fileSlackBytes = 64 * 1024

/** CFS period in microseconds; the quota is a share of it. */
const cpuPeriodMicros = 100_000

export const hostConfig = (spec: ContainerSpec) => {
  const { limits } = spec
  const fileBytesMax = limits.workspaceBytesMax + fileSlackBytes
  const temporary = `rw,exec,nosuid,nodev,size=${limits.temporaryBytesMax},mode=1777`
  return {
    // Output is collected before the container is removed, so the engine must not race us.
    AutoRemove: false,
    CapAdd: [],
    CapDrop: ["ALL"],
    CgroupnsMode: "private",
    CpuPeriod: cpuPeriodMicros,
    CpuQuota: Math.max(1000, Math.round(limits.cpusMax * cpuPeriodMicros)),
    Devices: [],
    // Reaps what an agent's children leave, and passes signals on. A supervisor does both itself: as the first process
    // nobody inside can end or stop it, and its pipes are in no other process that a command could take them from.
    Init: spec.supervised !== true,
    IpcMode: "private",
    // Output comes from attach, with our own cap: a log on the engine's disk would be a second, unbounded copy.
    LogConfig: { Type: "none", Config: {} },
    Memory: limits.memoryBytesMax,
    MemorySwap: limits.memoryBytesMax,
    Mounts: spec.mounts.map(mount),
    NetworkMode: networkMode(spec.network),
    OomKillDisable: false,
    PidMode: "",
    PidsLimit: limits.processesMax,
    Privileged: false,
    ReadonlyRootfs: true,
    RestartPolicy: { Name: "no", MaximumRetryCount: 0 },
    // Our own filter, so that what is refused does not depend on the engine's age.
    SecurityOpt: ["no-new-privileges", SeccompProfile.securityOption],
    ShmSize: sharedMemoryBytesMax,
    Tmpfs: Object.fromEntries(temporaryTargets.map((target) => [target, temporary])),
    // nproc is left out: the kernel counts it per uid over the whole host, so one sandbox could starve another.
    Ulimits: [
      { Name: "core", Soft: 0, Hard: 0 },
      { Name: "fsize", Soft: fileBytesMax, Hard: fileBytesMax },
      { Name: "nofile", Soft: limits.filesOpenMax, Hard: limits.filesOpenMax }
    ],
    UsernsMode: ""
  }
}

const networkMode = (network: Network): string => (network.mode === "none" ? "none" : network.networkName)

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
        // Otherwise the image's own directory would decide who owns the volume.
        VolumeOptions: { NoCopy: true }
      }
