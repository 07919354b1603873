/**
 * What an origin says, and what that means. Pure.
 *
 * git tells by text only (of the C locale), so this is the one place that reads it. What is not recognised is passed on
 * as it was said, without secrets.
 */
import { Result } from "effect"
import { OriginUnavailable, type OriginFault, type PushFault } from "../../GitRelayError.ts"
import { CommitId, type ObjectFormat } from "../../Refs.ts"

/** What `ls-remote --symref URL HEAD refs/heads/…` told. */
export interface Advertised {
  /** The branch that HEAD names; absent when it names none. */
  readonly headBranch: string | undefined
  /** Commits by reference. */
  readonly refs: ReadonlyMap<string, CommitId>
  readonly objectFormat: ObjectFormat
}

export const parseAdvertised = (stdout: string): Advertised => {
  const refs = new Map<string, CommitId>()
  let headBranch: string | undefined
  for (const line of stdout.split("\n")) {
    const symbolic = /^ref: refs\/heads\/(.+)\tHEAD$/u.exec(line)
    if (symbolic !== null) headBranch = symbolic[1]
    const named = /^([0-9a-f]{40}|[0-9a-f]{64})\t(\S+)$/u.exec(line)
    if (named !== null) refs.set(named[2]!, CommitId.make(named[1]!))
  }
  const head = refs.get("HEAD")
  if (headBranch !== undefined && head !== undefined) refs.set(`refs/heads/${headBranch}`, head)
  const [any] = refs.values()
  return { headBranch, refs, objectFormat: any?.length === 64 ? "sha256" : "sha1" }
}

/** Which branch a run starts from, and where it stands. */
export const baseOf = (
  advertised: Advertised,
  asked: string | undefined
): Result.Result<{ readonly branch: string; readonly commit: CommitId }, OriginUnavailable> => {
  const { headBranch, refs } = advertised
  const name = asked ?? headBranch
  const commit = name === undefined ? undefined : refs.get(`refs/heads/${name}`)
  if (name !== undefined && commit !== undefined) return Result.succeed({ branch: name, commit })
  if (refs.size === 0 && asked === undefined) {
    return fault("empty", "is empty: it has no commit to start from", "Push a first commit to it")
  }
  if (name === undefined) {
    return fault("base_unnamed", "names no branch as its HEAD", "Say which one to start from (--base)")
  }
  return refs.size === 0
    ? fault(
        "base_missing",
        `has no branch ${name}, and no commit at all that could be seen`,
        "Check its name, and that the repository is not empty"
      )
    : fault("base_missing", `has no branch ${name}`, "Check its name, or push it first")
}

interface Pattern<Fault> {
  readonly fault: Fault
  readonly pattern: RegExp
  readonly remedy: string
  readonly isRetryable?: true
}

const patterns: ReadonlyArray<Pattern<OriginFault> & { readonly detail: string }> = [
  {
    fault: "unknown_host",
    pattern: /could not resolve (?:host|proxy)/iu,
    detail: "has a host name that cannot be resolved",
    remedy: "Check the URL, and this host's name service",
    isRetryable: true
  },
  {
    fault: "tls",
    pattern: /ssl|tls|certificate/iu,
    detail: "has no connection that can be trusted",
    remedy: "Check its certificate, or name the file of its authority (GIT_SSL_CAINFO)"
  },
  {
    fault: "redirected",
    pattern: /requested URL returned error: 30\d|redirect/iu,
    detail: "redirects to somewhere else",
    remedy:
      "Give the URL that it leads to; redirects are never followed, for they could lead a credential away"
  },
  {
    fault: "unauthorized",
    pattern:
      /authentication failed|returned error: 401|could not read (?:username|password)|terminal prompts disabled/iu,
    detail: "wants a credential, or does not take the one it got",
    remedy: "Set GITHUB_TOKEN to a token that may read and write it, and check for which server it is"
  },
  {
    fault: "forbidden",
    pattern: /returned error: 403|access denied|permission to .* denied/iu,
    detail: "does not allow this credential to do that",
    remedy: "Give the token the right to the repository's contents"
  },
  {
    fault: "not_found",
    pattern:
      /returned error: 404|repository '.*' not found|does not appear to be a git repository|repository not found|not a git repository|does not exist/iu,
    detail: "is not there, or not visible with this credential",
    remedy: "Check the URL or path, and that the token may see it"
  },
  {
    fault: "unreachable",
    pattern:
      /failed to connect|couldn't connect|connection (?:refused|reset|timed out)|early EOF|remote end hung up|empty reply|returned error: 5\d\d|returned error: 429|RPC failed|curl \d+|unexpected disconnect/iu,
    detail: "cannot be reached, or broke off",
    remedy: "Try again",
    isRetryable: true
  }
]

/** Why git could not speak to it; `said` is already redacted. */
export const faultOf = (said: string): OriginUnavailable => {
  const words = withoutNames(said)
  const known = patterns.find(({ pattern }) => pattern.test(words))
  if (known === undefined)
    return new OriginUnavailable({
      fault: "other",
      detail: `cannot be used: ${said === "" ? "git said nothing" : said}`,
      remedy: "Look at what it says"
    })
  const { detail, fault, isRetryable = false, remedy } = known
  return new OriginUnavailable({ fault, detail: `${detail} (${said})`, remedy, isRetryable })
}

/** What came of one reference, by its line of `push --porcelain`; the flag is ` `, `*`, `=`, `!` or `+`. */
export const parsePush = (stdout: string, branch: string) => {
  const suffix = `:refs/heads/${branch}`
  for (const line of stdout.split("\n")) {
    const [flag, refs, ...summary] = line.split("\t")
    if (flag !== undefined && refs?.endsWith(suffix) === true) return { flag, summary: summary.join(" ") }
  }
  return undefined
}

/** Why a push was not taken, from all that was said of it. */
export const pushFaultOf = (
  all: string
): { readonly fault: PushFault; readonly remedy: string; readonly isRetryable: boolean } => {
  const said = withoutNames(all)
  const known = pushPatterns.find(({ pattern }) => pattern.test(said))
  if (known !== undefined) {
    const { fault, isRetryable = false, remedy } = known
    return { fault, remedy, isRetryable }
  }
  const { fault, isRetryable, remedy } = faultOf(said)
  if (fault === "unauthorized" || fault === "forbidden" || fault === "not_found")
    return { fault, remedy, isRetryable }
  return fault === "unreachable" || fault === "unknown_host" || fault === "tls"
    ? { fault: "unreachable", remedy, isRetryable }
    : { fault: "rejected", remedy: "Look at what the origin says", isRetryable: false }
}

const pushPatterns: ReadonlyArray<Pattern<PushFault>> = [
  {
    fault: "base_vanished",
    pattern: /shallow update not allowed|missing necessary objects|did not receive expected object/iu,
    remedy: "The base branch was rewritten while the agent worked; run it again on the new one"
  },
  {
    fault: "branch_protected",
    pattern: /protected branch|GH006|GH013|repository rule violations/iu,
    remedy: "Allow the token to push to sandbox/* in the rules of the repository"
  },
  {
    fault: "raced",
    pattern:
      /stale info|fetch first|non-fast-forward|cannot lock ref|reference already exists|failed to update ref/iu,
    remedy: "Somebody else has just moved the branch; look at it, then push under another name (--branch)",
    isRetryable: true
  },
  {
    fault: "timeout",
    pattern: /took more than \d+ s/u,
    remedy: "Try again, or allow it more time",
    isRetryable: true
  }
]

/** What comes is counted: an origin may send no more. */
export const tooLarge = (bytesMax: number) =>
  new OriginUnavailable({
    fault: "unsupported",
    detail: `sends more than ${bytesMax} bytes`,
    remedy: "Ask for less history (--depth), or allow more (limits.cloneBytesMax)"
  })

export const transportOf = (url: string): "https" | "http" => (url.startsWith("https:") ? "https" : "http")

/** A repository called `openssl`, or a branch `GH006`, says nothing of what is wrong. */
const withoutNames = (said: string): string =>
  said.replace(/(?<![^\s(;])'[^']*'/gu, "'…'").replace(/https?:\/\/\S+|(?<!\S)[\w.-]*\/\S*/gu, "…")

const fault = (kind: OriginFault, detail: string, remedy: string) =>
  Result.fail(new OriginUnavailable({ fault: kind, detail, remedy }))
