/**
 * How a sandbox was really held, as the kernel tells it, and what it had to be.
 *
 * A posture is read inside, before the agent's first instruction, and again by the host. Pure: `mismatches` compares
 * what was seen with what a spec promises. One entry in its answer and the run does not start.
 */
import * as Schema from "effect/Schema"
import type { Network } from "./SandboxSpec.ts"

/** The two numbers by which one kernel tells any file or directory apart from every other. */
export const FileIdentity = Schema.Struct({
  /** `st_dev` and `st_ino`, in decimal. */
  device: Schema.String,
  inode: Schema.String
})

export type FileIdentity = typeof FileIdentity.Type

/** One mount of the sandbox. */
export const PostureMount = Schema.Struct({
  target: Schema.String,
  fileSystem: Schema.String,
  readOnly: Schema.Boolean,
  options: Schema.Array(Schema.String),
  /** The file or directory that is seen there. */
  identity: Schema.optionalKey(FileIdentity)
})

export const Posture = Schema.Struct({
  userIds: Schema.Array(Schema.Int),
  groupIds: Schema.Array(Schema.Int),
  /** Hexadecimal masks of `/proc/self/status`. */
  capabilities: Schema.Struct({
    inheritable: Schema.String,
    permitted: Schema.String,
    effective: Schema.String,
    bounding: Schema.String,
    ambient: Schema.String
  }),
  noNewPrivileges: Schema.Boolean,
  /** 2 is a filter. */
  seccompMode: Schema.Int,
  /** What the kernel answered to each system call that was tried: the number of its error, 0 where it worked. */
  systemCalls: Schema.optionalKey(Schema.Record(Schema.String, Schema.Int)),
  /** `net`, `pid`, … to the inode of the namespace. */
  namespaces: Schema.Record(Schema.String, Schema.String),
  interfaces: Schema.Array(Schema.String),
  routes: Schema.Array(Schema.String),
  mounts: Schema.Array(PostureMount),
  /** The boot of the kernel that said all this; only under the same one do identities compare. */
  bootId: Schema.optionalKey(Schema.String),
  /** Where the same facts were confirmed: by the sandbox itself, the engine's configuration, the host's `/proc`. */
  confirmedBy: Schema.Array(Schema.Literals(["sandbox", "engine", "host"]))
})

export type Posture = typeof Posture.Type

/** Numeric, as the kernel knows them. Never 0. */
export interface User {
  readonly userId: number
  readonly groupId: number
}

/** The directory that a path led to when it was opened, and that must be the one that is mounted. */
export interface HeldIdentity extends FileIdentity {
  /** The kernel that says so. */
  readonly bootId: string
  /**
   * Only the host process can exchange the directory, so that its path is proof enough where the engine has a kernel of
   * its own. Otherwise such an engine is refused.
   */
  readonly isPrivate: boolean
}

/** One mount that a posture must have. */
export interface ExpectedMount {
  readonly target: string
  readonly readOnly: boolean
  readonly held?: HeldIdentity | undefined
}

/** What a posture is held against. */
export interface Expected {
  readonly user: User
  readonly network: Network
  /** Targets the sandbox may have besides the engine's own, and whether they may be written. */
  readonly mounts: ReadonlyArray<ExpectedMount>
}

/**
 * System calls and sockets that are tried before the agent starts; the filter must refuse each. Some of them every
 * engine's own filter refuses, others (`ptrace`, `socket-uevent`) only ours.
 */
export const systemCallsTried: ReadonlyArray<string> = [
  "bpf",
  "clone-user",
  "io_uring_setup",
  "keyctl",
  "perf_event_open",
  "ptrace",
  "socket-alg",
  "socket-uevent",
  "socket-vsock",
  "unshare-user",
  "userfaultfd"
]

/** EPERM: the filter's answer. Each call is made so that the kernel itself would answer something else. */
const refusedByFilter = 1

/** Where every sandbox may write besides its workspace: bounded, and in memory. */
export const temporaryTargets: ReadonlyArray<string> = ["/tmp", "/home/agent"]

/** What every Linux engine itself puts into a container: at these, or below them. */
const engineMounts = [
  "/proc",
  "/sys",
  "/dev",
  "/etc/hosts",
  "/etc/hostname",
  "/etc/resolv.conf",
  "/sbin/docker-init",
  "/usr/sbin/docker-init"
]

const isEngineMount = (target: string) =>
  engineMounts.some((own) => target === own || (own !== "/dev" && target.startsWith(`${own}/`))) ||
  ["/dev/pts", "/dev/mqueue", "/dev/shm", "/dev/console"].includes(target)

const forbiddenSources = /docker\.sock|containerd\.sock|podman\.sock/u

/** Everything in which a posture is weaker than it had to be, each as one sentence; empty when it holds. */
export const mismatches = (seen: Posture, expected: Expected): ReadonlyArray<string> => {
  const found: Array<string> = []
  const expect = (holds: boolean, sentence: string) => {
    if (!holds) found.push(sentence)
  }
  expect(
    seen.userIds.length > 0 && seen.userIds.every((id) => id === expected.user.userId && id !== 0),
    `uid is ${seen.userIds.join("/")}, not ${expected.user.userId}`
  )
  expect(
    seen.groupIds.length > 0 && seen.groupIds.every((id) => id === expected.user.groupId && id !== 0),
    `gid is ${seen.groupIds.join("/")}, not ${expected.user.groupId}`
  )
  for (const [name, mask] of Object.entries(seen.capabilities)) {
    expect(/^0+$/u.test(mask), `${name} capabilities are ${mask}, not none`)
  }
  expect(seen.noNewPrivileges, "no-new-privileges is off")
  expect(seen.seccompMode === 2, `seccomp mode is ${seen.seccompMode}, not 2 (filter)`)
  for (const name of systemCallsTried) {
    const answer = seen.systemCalls?.[name]
    expect(
      answer === refusedByFilter,
      answer === undefined
        ? `the system call ${name} was not tried: the image is older than this library, so build it anew`
        : `the system call ${name} is not refused by our filter (its answer is ${answer === 0 ? "success" : `error ${answer}`})`
    )
  }
  if (expected.network.mode === "none") {
    const others = seen.interfaces.filter((name) => name !== "lo")
    expect(others.length === 0, `there are interfaces besides lo: ${others.join(", ")}`)
    expect(seen.routes.length === 0, `there are routes: ${seen.routes.join("; ")}`)
  }
  const root = seen.mounts.find((mount) => mount.target === "/")
  expect(root !== undefined && root.readOnly, "the root file system can be written")
  for (const mount of seen.mounts) {
    if (mount.target === "/" || isEngineMount(mount.target)) continue
    if (temporaryTargets.includes(mount.target)) {
      expect(mount.fileSystem === "tmpfs", `${mount.target} is ${mount.fileSystem}, not tmpfs`)
      continue
    }
    const allowed = expected.mounts.find((other) => other.target === mount.target)
    if (allowed === undefined) found.push(`${mount.target} is mounted and was not asked for`)
    else if (allowed.readOnly && !mount.readOnly) found.push(`${mount.target} can be written`)
    expect(!forbiddenSources.test(mount.target), `${mount.target} is an engine's socket`)
  }
  for (const { held, target } of expected.mounts) {
    // What is mounted last at a place hides what was mounted there before.
    const mount = seen.mounts.findLast((other) => other.target === target)
    if (mount === undefined) found.push(`${target} is not mounted`)
    else if (held !== undefined) found.push(...exchanged(target, held, mount.identity, seen.bootId))
  }
  return found
}

/** Whether a mount is another directory than the one that was opened, or cannot be shown to be the same. */
const exchanged = (
  target: string,
  held: HeldIdentity,
  seen: FileIdentity | undefined,
  bootId: string | undefined
): ReadonlyArray<string> => {
  if (bootId === undefined || seen === undefined)
    return [
      `the sandbox did not say which directory is at ${target}; rebuild its image on the current runtime`
    ]
  if (bootId !== held.bootId)
    return held.isPrivate
      ? []
      : [
          `${target} cannot be shown to be the directory that was named: the engine has a kernel of its own. ` +
            "Run on the engine's own host, or use a temporary workspace or a repository"
        ]
  return seen.device === held.device && seen.inode === held.inode
    ? []
    : [
        `${target} is another directory (${seen.device}:${seen.inode}) than the one that was named ` +
          `(${held.device}:${held.inode}): its path was changed meanwhile`
      ]
}

/** The same comparison by the host, which needs no word of the image; for every mount that it could look at. */
export const hostExchanged = (
  mounts: ReadonlyArray<ExpectedMount>,
  bootId: string,
  look: (target: string) => FileIdentity | undefined
): ReadonlyArray<string> =>
  mounts.flatMap(({ held, target }) => {
    const seen = held === undefined ? undefined : look(target)
    return held === undefined || seen === undefined
      ? []
      : exchanged(target, held, seen, bootId).map((sentence) => `on the host, ${sentence}`)
  })
