/**
 * Why a path of the host was not opened.
 *
 * The message names the path as it was given, the component at fault and a remedy; never the content of a file, and
 * never where a refused link leads.
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
  /** As it was given. */
  path: Schema.String,
  /** The absolute path of the directory or link at fault, where that is not the path itself. */
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

/** A refusal; `component` is the directory or link at fault, where that is not the path itself. */
export const refused = (
  path: string,
  problem: HostPathProblem,
  detail: string,
  remedy: string,
  component?: string
) =>
  new HostPathRefused({ path, problem, detail, remedy, ...(component === undefined ? {} : { component }) })

interface Words {
  readonly problem: HostPathProblem
  readonly detail: string
  readonly remedy: string
}

const noSpace: Words = {
  problem: "no_space",
  detail: "cannot be written: no space is left on its file system, or a quota or size limit is reached",
  remedy: "Make room there, or name another directory"
}

const denied: Words = {
  problem: "permission_denied",
  detail: "is closed to this user",
  remedy: "Check its permissions and those of the directories above it"
}

const words: Readonly<Record<string, Words>> = {
  ENOENT: { problem: "not_found", detail: "does not exist", remedy: "Check its spelling" },
  ENOTDIR: {
    problem: "not_a_directory",
    detail: "is, or lies below, something that is not a directory",
    remedy: "Check its spelling"
  },
  EISDIR: { problem: "not_a_file", detail: "is a directory", remedy: "Name a file" },
  EEXIST: { problem: "already_there", detail: "exists already", remedy: "Remove it, or name another" },
  ELOOP: {
    problem: "link_refused",
    detail: "became a symbolic link while it was opened",
    remedy: "Name a path that nothing else changes"
  },
  ENAMETOOLONG: { problem: "invalid_path", detail: "is too long", remedy: "Name a shorter path" },
  ENXIO: { problem: "not_a_file", detail: "is a socket or a FIFO", remedy: "Name a regular file" },
  EROFS: { ...denied, detail: "lies on a file system that is read-only" },
  EACCES: denied,
  EPERM: denied,
  ENOSPC: noSpace,
  EDQUOT: noSpace,
  EFBIG: noSpace,
  ESTALE: {
    problem: "unreadable",
    detail: "was lost by its network file system (ESTALE)",
    remedy: "Try again once the server answers, or name a path on a local disk"
  }
}

/** The refusal for an error that the kernel gave. */
export const fromErrno = (path: string, thrown: unknown): HostPathRefused => {
  if (thrown instanceof HostPathRefused) return thrown
  const code = (thrown as NodeJS.ErrnoException | undefined)?.code ?? ""
  return new HostPathRefused({
    path,
    ...(words[code] ?? {
      problem: "unreadable",
      detail: `cannot be used (${(code === "" ? String(thrown) : code).slice(0, 200)})`,
      remedy: "Look at it and at its file system"
    })
  })
}

/** Work on a path, whose errors are refusals. */
export const attempt = <A>(path: string, run: (signal: AbortSignal) => Promise<A>) =>
  Effect.tryPromise({ try: run, catch: (thrown) => fromErrno(path, thrown) })
