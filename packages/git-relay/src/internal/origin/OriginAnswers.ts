/**
 * Interprets what git reports about an origin. Pure.
 *
 * git reports errors only as text (in the C locale), and only this module parses it. Text that is not recognized is
 * passed on as it is, without secrets.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { Result } from "effect"
import { OriginUnavailable, type OriginFault, type PushFault } from "../../GitRelayError.ts"
import { CommitId, type ObjectFormat } from "../../Refs.ts"
import * as PushRefusal from "./PushRefusal.ts"

/** Parsed output of `ls-remote --symref URL HEAD refs/heads/…`. */
export interface Advertised {
  /** Branch that HEAD names; `undefined` if it names no branch. */
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

/** Returns the branch that a run starts from, and its commit. */
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
    return fault(
      "base_unnamed",
      "has a HEAD that names no branch",
      `Name the branch to start from (${named("CloneRequest.baseBranch")})`
    )
  }
  return refs.size === 0
    ? fault(
        "base_missing",
        `has no branch ${name}, and no visible commit`,
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
    detail: "has no trusted TLS connection",
    remedy: `Check its certificate, or name the file of its authority (${named("HostGitRelay.network")})`
  },
  {
    fault: "redirected",
    pattern: /requested URL returned error: 30\d|redirect/iu,
    detail: "redirects to another address",
    remedy:
      "Use the URL that it redirects to; redirects are never followed, because they could leak the credential"
  },
  {
    fault: "unauthorized",
    pattern:
      /authentication failed|returned error: 401|could not read (?:username|password)|terminal prompts disabled/iu,
    detail: "requires a credential, or rejected the one it received",
    remedy: `Configure a token for this server that can read and write the repository (${named("GitCredentials")})`
  },
  {
    fault: "forbidden",
    pattern: /returned error: 403|access denied|permission to .* denied/iu,
    detail: "does not allow this operation with this credential",
    remedy: "Give the token access to the repository's contents"
  },
  {
    fault: "not_found",
    pattern:
      /returned error: 404|repository '.*' not found|does not appear to be a git repository|repository not found|not a git repository|does not exist/iu,
    detail: "does not exist, or is not visible with this credential",
    remedy: "Check the URL or path, and that the token can read it"
  },
  {
    fault: "unreachable",
    pattern:
      /failed to connect|couldn't connect|connection (?:refused|reset|timed out)|early EOF|remote end hung up|empty reply|returned error: 5\d\d|returned error: 429|RPC failed|curl \d+|unexpected disconnect/iu,
    detail: "cannot be reached, or closed the connection",
    remedy: "Try again",
    isRetryable: true
  }
]

/** How git accessed an origin. */
export interface OriginAccess {
  /** Scheme, host and port. */
  readonly server: string
  readonly hasCredential: boolean
}

/** Explains a fault that depends on whether git had a credential. */
const accessFaultOf = (
  fault: OriginFault,
  said: string,
  { hasCredential, server }: OriginAccess
): Pick<OriginUnavailable, "detail" | "remedy"> | undefined => {
  const configure = `onfigure a token for ${server} (${named("GitCredentials")})`
  if (fault === "unauthorized" && hasCredential) {
    const reason = said.split("; ").filter((line) => !ofPrompt.test(line))
    return {
      detail: `rejected the token that is configured for ${server}${reason.length === 0 ? "" : ` (${reason.join("; ")})`}`,
      remedy: "Check that the token is not expired, and can read and write the repository"
    }
  }
  if (hasCredential) return undefined
  if (fault === "unauthorized") {
    return { detail: `requires a credential, and none is configured for ${server}`, remedy: `C${configure}` }
  }
  return fault === "not_found"
    ? {
        detail: `does not exist, or is not visible without a credential (${said})`,
        remedy: `Check the URL. If the repository is private, c${configure}`
      }
    : undefined
}

/** Lines of git about the prompt that it must not show. They name our programs, and explain nothing. */
const ofPrompt = /askpass|could not read (?:username|password)|terminal prompts disabled/iu

/** Classifies why git could not communicate with an origin; `said` is already redacted. */
export const faultOf = (said: string, access?: OriginAccess): OriginUnavailable => {
  const words = withoutNames(said)
  const known = patterns.find(({ pattern }) => pattern.test(words))
  if (known === undefined)
    return new OriginUnavailable({
      fault: "other",
      detail: `cannot be used: ${said === "" ? "git gave no reason" : said}`,
      remedy: "Read the message of git"
    })
  const { detail, fault, isRetryable = false, remedy } = known
  const told = (access && accessFaultOf(fault, said, access)) ?? { detail: `${detail} (${said})`, remedy }
  return new OriginUnavailable({ fault, ...told, isRetryable })
}

/** Parses the result of one reference from its line of `push --porcelain`; the flag is ` `, `*`, `=`, `!` or `+`. */
export const parsePush = (stdout: string, branch: string) => {
  const suffix = `:refs/heads/${branch}`
  for (const line of stdout.split("\n")) {
    const [flag, refs, ...summary] = line.split("\t")
    if (flag !== undefined && refs?.endsWith(suffix) === true) return { flag, summary: summary.join(" ") }
  }
  return undefined
}

/** Classifies why a push was not accepted, from everything that was reported about it. */
export const pushFaultOf = (
  all: string,
  access?: OriginAccess
): {
  readonly fault: PushFault
  readonly remedy: string
  readonly isRetryable: boolean
  /** Replaces the text of git, if that explains nothing. */
  readonly detail?: string
} => {
  const said = withoutNames(all)
  const known = pushPatterns.find(({ pattern }) => pattern.test(said))
  if (known !== undefined) {
    const { fault, isRetryable = false, remedy } = known
    return { fault, remedy, isRetryable }
  }
  const unusable = faultOf(said, access)
  const fault = PushRefusal.pushFaultOf(unusable.fault)
  if (fault === "rejected") return { fault, remedy: "Read the message of the origin", isRetryable: false }
  const { detail, isRetryable, remedy } = unusable
  return {
    fault,
    remedy,
    isRetryable,
    ...(fault === "unauthorized" ? { detail: `the origin ${detail}` } : {})
  }
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
    remedy: `Another client has just moved the branch; check it, then push under another name (${named("ReopenOptions.branch")})`,
    isRetryable: true
  }
]

/** The origin sent more bytes than it may. */
export const tooLarge = (bytesMax: number) =>
  new OriginUnavailable({
    fault: "unsupported",
    detail: `sends more than ${bytesMax} bytes`,
    remedy: `Ask for less history (${named("CloneRequest.depth")}), or allow more (limits.cloneBytesMax)`
  })

export const transportOf = (url: string): "https" | "http" => (url.startsWith("https:") ? "https" : "http")

/** Removes names: a repository called `openssl`, or a branch `GH006`, does not indicate a fault. */
const withoutNames = (said: string): string =>
  said.replace(/(?<![^\s(;])'[^']*'/gu, "'…'").replace(/https?:\/\/\S+|(?<!\S)[\w.-]*\/\S*/gu, "…")

const fault = (kind: OriginFault, detail: string, remedy: string) =>
  Result.fail(new OriginUnavailable({ fault: kind, detail, remedy }))
