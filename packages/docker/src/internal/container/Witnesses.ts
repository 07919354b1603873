/**
 * The witnesses of a sandbox's isolation: its own report, the configuration that its engine states, and this host.
 *
 * A sandbox that waited reports once more when it has got its run. The host looks at it then, and does not wait for the
 * engine's answers, which come later in most cases.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { hostExchanged, type Posture } from "@cogni/sandbox-core/Posture"
import { PostureMismatch } from "@cogni/sandbox-core/SandboxReason"
import { Effect } from "effect"
import type { Inspected } from "../../DockerApi.ts"
import type * as EngineConfiguration from "./EngineConfiguration.ts"
import { hostsTarget } from "./Hardening.ts"
import * as HostsFile from "./HostsFile.ts"
import * as KernelFacts from "./KernelFacts.ts"
import * as PostureReport from "./PostureReport.ts"

/** Fails with the mismatches, if there are any. */
export const noneOf = (mismatches: ReadonlyArray<string>): Effect.Effect<void, PostureMismatch> =>
  mismatches.length === 0 ? Effect.void : Effect.fail(PostureMismatch.of(mismatches))

/** Report of a sandbox, and the host's view of its first process at that moment. */
export interface Witnessed {
  readonly inside: Posture | { readonly fault: string }
  readonly processId: number | undefined
  /** Absent: this host cannot see it. */
  readonly process: ReturnType<typeof KernelFacts.firstProcess>
}

/** Specification that a container is checked against. */
interface Checked {
  readonly spec: Pick<ContainerSpec, "mounts">
  readonly networkMismatches?: ((joined: Inspected) => ReadonlyArray<string>) | undefined
  /** Its `/etc/hosts`, if the engine does not configure its network. */
  readonly hosts?: HostsFile.HostsFile | undefined
}

/** Returns a function that looks at one container when it has reported its posture. */
export const makeLook = () => {
  const parse = PostureReport.makeParser()
  return (
    report: string,
    { inspected }: Pick<EngineConfiguration.Compared, "inspected">,
    { hosts, spec: { mounts } }: Pick<Checked, "hosts" | "spec">
  ): Witnessed => {
    const held = mounts.flatMap((mount) => (mount.held === undefined ? [] : [mount.target]))
    const looked = hosts === undefined ? held : [...held, hostsTarget]
    return {
      inside: parse(report) ?? { fault: PostureReport.reportFault(report) },
      processId: inspected?.State.Pid,
      process: inspected && KernelFacts.firstProcess(inspected.State.Pid, inspected.Id, looked)
    }
  }
}

/** Combines the reports of all witnesses, or fails with the mismatches. */
export const posture = (
  { inspected, mismatches }: EngineConfiguration.Compared,
  { bootId, hosts, networkMismatches, spec }: Checked & { readonly bootId: string },
  { inside, process, processId }: Witnessed
): Effect.Effect<Posture, PostureMismatch> => {
  if ("fault" in inside) return Effect.fail(PostureMismatch.of([inside.fault]))
  if (inspected === undefined)
    return Effect.fail(PostureMismatch.of(["the engine does not know the container"]))
  const found = [
    ...mismatches,
    ...(processId === inspected.State.Pid ? [] : ["the engine names another first process than before"]),
    ...(networkMismatches?.(inspected) ?? []),
    ...(hosts === undefined
      ? []
      : HostsFile.mismatches(hosts, inside, { onHost: process?.identities.get(hostsTarget) })),
    ...(process === undefined
      ? []
      : [
          ...PostureReport.hostMismatches(PostureReport.parseStatus(process.status)),
          ...hostExchanged(spec.mounts, bootId, (target) => process.identities.get(target))
        ])
  ]
  const witnesses = process === undefined ? (["engine"] as const) : (["engine", "host"] as const)
  return Effect.as(noneOf(found), { ...inside, confirmedBy: [...inside.confirmedBy, ...witnesses] })
}
