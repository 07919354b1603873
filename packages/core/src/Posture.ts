/**
 * The actual isolation of a sandbox, as the kernel reports it, and its comparison with the expected isolation.
 *
 * A posture is read in the sandbox before the agent's first instruction, and again by the host. `mismatches` is pure
 * and compares it with what the spec promises. A single mismatch prevents the start of the agent.
 */
import * as Schema from "effect/Schema"
import { shortened } from "./internal/Shortened.ts"
import type { Network } from "./SpecFields.ts"

/** The two numbers that identify a file or directory under one kernel. */
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
  /** The file or directory that is visible there. */
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
  /** 2 means a filter. */
  seccompMode: Schema.Int,
  /** Result of each system call that was tried: its error number, or 0 if it succeeded. */
  systemCalls: Schema.optionalKey(Schema.Record(Schema.String, Schema.Int)),
  /** Maps `net`, `pid`, … to the inode of the namespace. */
  namespaces: Schema.Record(Schema.String, Schema.String),
  interfaces: Schema.Array(Schema.String),
  routes: Schema.Array(Schema.String),
  mounts: Schema.Array(PostureMount),
  /** Boot ID of the kernel that reported this. Identities can be compared only under the same boot ID. */
  bootId: Schema.optionalKey(Schema.String),
  /** Witnesses that confirmed these facts: the sandbox itself, the engine's configuration, the host's `/proc`. */
  confirmedBy: Schema.Array(Schema.Literals(["sandbox", "engine", "host"]))
})

export type Posture = typeof Posture.Type

/** Numeric user and group IDs. Never 0. */
export interface User {
  readonly userId: number
  readonly groupId: number
}

/** Identity of a directory when its path was opened. The mounted directory must have the same identity. */
export interface HeldIdentity extends FileIdentity {
  /** Boot ID of the kernel that reported the identity. */
  readonly bootId: string
  /**
   * Whether only the host process can replace the directory. Then its path is sufficient proof for an engine with its
   * own kernel. Otherwise such an engine is refused.
   */
  readonly isPrivate: boolean
}

/** One mount that a posture must have. */
export interface ExpectedMount {
  readonly target: string
  readonly readOnly: boolean
  readonly held?: HeldIdentity | undefined
}

/** The isolation that a posture must have. */
export interface Expected {
  readonly user: User
  readonly network: Network
  /** Mounts that the sandbox must have besides the engine's own. Others are not allowed. */
  readonly mounts: ReadonlyArray<ExpectedMount>
}

/**
 * System calls and sockets that are tried before the agent starts. The seccomp filter must refuse each of them. Every
 * engine's own filter refuses some; only ours refuses others (`ptrace`, `socket-uevent`).
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

/** EPERM, the filter's error. Each call is made so that the kernel itself would return something else. */
const refusedByFilter = 1

/** Writable directories of every sandbox besides its workspace: bounded, and in memory. */
export const temporaryTargets: ReadonlyArray<string> = ["/tmp", "/home/agent"]

/** Mounts that every Linux engine adds to a container, at these paths or below them. */
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

/** Maximum length of a value in a sentence: a sandbox that reports it could choose one of 256 KiB. */
const valueCharactersMax = 200

const shown = (value: string) => shortened(value, valueCharactersMax)

/** Returns every mismatch between a posture and the expected isolation, each as a sentence; empty if all matches. */
export const mismatches = (seen: Posture, expected: Expected): ReadonlyArray<string> => {
  const found: Array<string> = []
  const expect = (holds: boolean, sentence: string) => {
    if (!holds) found.push(sentence)
  }
  expect(
    seen.userIds.length > 0 && seen.userIds.every((id) => id === expected.user.userId && id !== 0),
    `uid is ${shown(seen.userIds.join("/"))}, not ${expected.user.userId}`
  )
  expect(
    seen.groupIds.length > 0 && seen.groupIds.every((id) => id === expected.user.groupId && id !== 0),
    `gid is ${shown(seen.groupIds.join("/"))}, not ${expected.user.groupId}`
  )
  for (const [name, mask] of Object.entries(seen.capabilities)) {
    expect(/^0+$/u.test(mask), `${name} capabilities are ${shown(mask)}, not none`)
  }
  expect(seen.noNewPrivileges, "no-new-privileges is off")
  expect(seen.seccompMode === 2, `seccomp mode is ${seen.seccompMode}, not 2 (filter)`)
  for (const name of systemCallsTried) {
    const answer = seen.systemCalls?.[name]
    expect(
      answer === refusedByFilter,
      answer === undefined
        ? `the system call ${name} was not tried: the image is older than this library, so rebuild it`
        : `the system call ${name} is not refused by our filter (its answer is ${answer === 0 ? "success" : `error ${answer}`})`
    )
  }
  if (expected.network.mode === "none") {
    const others = seen.interfaces.filter((name) => name !== "lo")
    expect(others.length === 0, `there are interfaces besides lo: ${shown(others.join(", "))}`)
    expect(seen.routes.length === 0, `there are routes: ${shown(seen.routes.join("; "))}`)
  }
  const root = seen.mounts.find((mount) => mount.target === "/")
  expect(root !== undefined && root.readOnly, "the root file system can be written")
  for (const mount of seen.mounts) {
    if (mount.target === "/" || isEngineMount(mount.target)) continue
    if (temporaryTargets.includes(mount.target)) {
      expect(mount.fileSystem === "tmpfs", `${mount.target} is ${shown(mount.fileSystem)}, not tmpfs`)
      continue
    }
    const allowed = expected.mounts.find((other) => other.target === mount.target)
    if (allowed === undefined) found.push(`${shown(mount.target)} is mounted but was not requested`)
    else if (allowed.readOnly && !mount.readOnly) found.push(`${mount.target} can be written`)
    expect(!forbiddenSources.test(mount.target), `${shown(mount.target)} is an engine's socket`)
  }
  for (const { held, target } of expected.mounts) {
    // The last mount at a target hides earlier ones.
    const mount = seen.mounts.findLast((other) => other.target === target)
    if (mount === undefined) found.push(`${target} is not mounted`)
    else if (held !== undefined) found.push(...exchanged(target, held, mount.identity, seen.bootId))
  }
  return found
}

/** Reports a mount that is not the opened directory, or that cannot be verified to be it. */
const exchanged = (
  target: string,
  held: HeldIdentity,
  seen: FileIdentity | undefined,
  bootId: string | undefined
): ReadonlyArray<string> => {
  if (bootId === undefined || seen === undefined)
    return [
      `the sandbox did not report which directory is at ${target}; rebuild its image on the current runtime`
    ]
  if (bootId !== held.bootId)
    return held.isPrivate
      ? []
      : [
          `${target} cannot be verified to be the named directory: the sandbox has another kernel than this host. ` +
            "Run on the engine's own host, with runc or crun, or use a temporary workspace or a forge's repository"
        ]
  return seen.device === held.device && seen.inode === held.inode
    ? []
    : [
        `${target} is another directory (${shown(`${seen.device}:${seen.inode}`)}) than the named one ` +
          `(${held.device}:${held.inode}): its path was changed meanwhile`
      ]
}

/** The same comparison by the host, which does not rely on the image. Covers every mount that the host can inspect. */
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
