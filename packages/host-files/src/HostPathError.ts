/**
 * The error for host paths that are refused or cannot be used.
 *
 * The message names the path as given, the component at fault and a remedy. It never contains the content of a file, or
 * the target of a refused link.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

export const HostPathProblem = Schema.Literals([
  "invalid_path",
  "not_found",
  "not_a_directory",
  "not_a_file",
  "link_refused",
  "inside_workspace",
  "already_there",
  "too_large",
  "permission_denied",
  "no_space",
  "unreadable"
])

export type HostPathProblem = typeof HostPathProblem.Type

/** A path of the host was refused, or could not be used. */
export class HostPathRefused extends Schema.TaggedError<HostPathRefused>()("HostPathRefused", {
  /** The path as given. */
  path: Schema.String,
  /** The absolute path of the directory or link at fault, if that is not the path itself. */
  component: Schema.optionalKey(Schema.String),
  problem: HostPathProblem,
  detail: Schema.String,
  remedy: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    return `${JSON.stringify(this.path.slice(0, 200))} ${this.detail}. ${this.remedy}`
  }
}

/** Makes a refusal. `component` is the directory or link at fault, if that is not the path itself. */
export const refused = (
  path: string,
  problem: HostPathProblem,
  detail: string,
  remedy: string,
  component?: string
) => new HostPathRefused({ path, problem, detail, remedy, ...(component === undefined ? {} : { component }) })

type Words = readonly [problem: HostPathProblem, detail: string, remedy: string]

const noSpace: Words = [
  "no_space",
  "cannot be written: no space is left on its file system, or a quota or size limit is reached",
  "Make room there, or name another directory"
]

const checkPermissions = "Check its permissions and those of the directories above it"

const denied: Words = ["permission_denied", "cannot be accessed by this user", checkPermissions]

const words: Readonly<Record<string, Words>> = {
  ENOENT: ["not_found", "does not exist", "Check its spelling"],
  ENOTDIR: ["not_a_directory", "is, or lies below, something that is not a directory", "Check its spelling"],
  EISDIR: ["not_a_file", "is a directory", "Name a file"],
  EEXIST: ["already_there", "exists already", "Remove it, or name another"],
  ELOOP: [
    "link_refused",
    "became a symbolic link while it was opened",
    "Name a path that nothing else changes"
  ],
  ENAMETOOLONG: ["invalid_path", "is too long", "Name a shorter path"],
  ENXIO: ["not_a_file", "is a socket or a FIFO", "Name a regular file"],
  EROFS: ["permission_denied", "is on a read-only file system", checkPermissions],
  EACCES: denied,
  EPERM: denied,
  ENOSPC: noSpace,
  EDQUOT: noSpace,
  EFBIG: noSpace,
  ESTALE: [
    "unreadable",
    "was lost by its network file system (ESTALE)",
    "Try again once the server answers, or name a path on a local disk"
  ]
}

/** Makes the refusal for an error of the kernel. */
export const fromErrno = (path: string, thrown: unknown): HostPathRefused => {
  if (thrown instanceof HostPathRefused) return thrown
  const code = (thrown as NodeJS.ErrnoException | undefined)?.code ?? ""
  const said = (code === "" ? String(thrown) : code).slice(0, 200)
  const unknown: Words = ["unreadable", `cannot be used (${said})`, "Look at it and at its file system"]
  return refused(path, ...(words[code] ?? unknown))
}

/** Runs an operation on a path. Its errors become refusals. */
export const attempt = <A>(path: string, run: (signal: AbortSignal) => Promise<A>) =>
  Effect.tryPromise({ try: run, catch: (thrown) => fromErrno(path, thrown) })
