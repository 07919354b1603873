/**
 * The posture of a container in memory.
 */
import { type ContainerSpec } from "../ContainerRuntime.ts"
import { type Posture, systemCallsTried } from "../Posture.ts"

/** A posture without mismatches. */
export const goodPosture = (spec: ContainerSpec): Posture => ({
  userIds: [spec.user.userId],
  groupIds: [spec.user.groupId],
  capabilities: { inheritable: "0", permitted: "0", effective: "0", bounding: "0", ambient: "0" },
  noNewPrivileges: true,
  seccompMode: 2,
  systemCalls: Object.fromEntries(systemCallsTried.map((name) => [name, 1])),
  namespaces: { net: spec.runId },
  interfaces: ["lo"],
  routes: [],
  mounts: [
    { target: "/", fileSystem: "memory", readOnly: true, options: ["ro"] },
    ...spec.mounts.map((mount) => ({
      target: mount.target,
      fileSystem: "memory",
      readOnly: mount.readOnly,
      options: [mount.readOnly ? "ro" : "rw"],
      identity: { device: mount.held?.device ?? "0", inode: mount.held?.inode ?? "0" }
    }))
  ],
  bootId: spec.mounts.find(({ held }) => held !== undefined)?.held?.bootId ?? "memory",
  confirmedBy: ["sandbox"]
})
