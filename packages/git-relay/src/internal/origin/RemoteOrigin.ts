/**
 * Communicates with an origin over a network: lists references, fetches and pushes. Each conversation has its own
 * credential. A repository of this host is never accessed this way: see `PathClone` and `PathDelivery`.
 */
import { Effect, FiberSet } from "effect"
import { type GitCredential, GitCredentials } from "../../GitCredentials.ts"
import type { GitNetwork } from "../git/GitEnvironment.ts"
import type { Operation } from "../../GitRelayError.ts"
import { RelayObserver } from "../../GitRelay.ts"
import * as OriginAnswers from "./OriginAnswers.ts"
import type { PrivateServers } from "../../OriginAddress.ts"
import { type CommitId, serverOf } from "../../Refs.ts"
import * as HostGit from "../git/HostGit.ts"
import * as OriginRoute from "./OriginRoute.ts"
import * as Redaction from "../git/Redaction.ts"
import { attempt } from "../git/RelayFiles.ts"
import { packedBytes } from "../git/HostRepository.ts"

/** Milliseconds between measurements of the received bytes. */
const measureMillis = 200

export interface OriginOptions {
  readonly url: string
  readonly network: GitNetwork | undefined
  /** Servers whose addresses may be private. */
  readonly privateServers: PrivateServers
  readonly transferSecondsMax: number
  readonly cloneBytesMax: number
}

/** Settings that all commands to an origin share, and the redaction of their output. */
const towards = Effect.fnUntraced(function* (
  options: OriginOptions,
  operation: Operation,
  purpose: "fetch" | "push"
) {
  const { privateServers, transferSecondsMax, url } = options
  const credentials = yield* GitCredentials
  const observe = yield* RelayObserver
  const way = yield* OriginRoute.wayTo(url, options.network, privateServers)
  const credential: GitCredential | undefined = yield* credentials.get({ url, purpose })
  const redact = Redaction.make(credential === undefined ? [] : [credential])
  const run = yield* FiberSet.makeRuntime<never>()
  const server = serverOf(url)
  return {
    redact,
    git: (command: HostGit.HostGitCommand) => whileValid(credential, HostGit.run(command)),
    access: { server, hasCredential: credential !== undefined },
    command: {
      transport: OriginAnswers.transportOf(url),
      ...way,
      runtimeSecondsMax: transferSecondsMax,
      credential,
      credentialServer: credential === undefined ? undefined : server,
      onProgress: (text: string) => void run(observe({ operation, text: redact(text) }))
    } satisfies Partial<HostGit.HostGitCommand>
  }
})

/** Runs git until it has ended or its credential becomes invalid. */
const whileValid = <A, E, R>(credential: GitCredential | undefined, use: Effect.Effect<A, E, R>) =>
  credential?.ended === undefined ? use : Effect.raceFirst(use, credential.ended)

/** Lists references of the origin. */
export const advertised = Effect.fnUntraced(function* (
  options: OriginOptions,
  refs: ReadonlyArray<string>,
  purpose: "fetch" | "push" = "fetch"
) {
  const { access, command, git, redact } = yield* towards(
    options,
    purpose === "push" ? "push" : "clone",
    purpose
  )
  const answer = yield* git({
    ...command,
    argv: ["ls-remote", "--symref", "--", options.url, ...refs]
  })
  if (answer.exitCode !== 0) return yield* OriginAnswers.faultOf(redact(meant(answer.stderr)), access)
  return OriginAnswers.parseAdvertised(answer.stdout.toString("utf8"))
}, Effect.scoped)

/** Fetches one reference or commit, to a given depth, into a reference of a repository of the host. */
export const fetch = Effect.fnUntraced(function* (
  options: OriginOptions,
  what: {
    readonly gitDirectory: string
    /** `refs/heads/…`, or a commit ID. */
    readonly source: string
    readonly depth: number
    readonly into: string
  }
) {
  const { access, command, git, redact } = yield* towards(options, "clone", "fetch")
  const fetched = git({
    ...command,
    gitDirectory: what.gitDirectory,
    argv: [
      "fetch",
      "--progress",
      "--no-tags",
      `--depth=${what.depth}`,
      "--no-write-fetch-head",
      "--no-auto-maintenance",
      "--no-recurse-submodules",
      "--",
      options.url,
      `+${what.source}:${what.into}`
    ]
  })
  const withinBounds = bounded(what.gitDirectory, options.cloneBytesMax)
  const answer = yield* Effect.raceFirst(
    fetched,
    withinBounds.pipe(Effect.andThen(Effect.sleep(`${measureMillis} millis`)), Effect.forever)
  )
  if (answer.exitCode !== 0) return yield* OriginAnswers.faultOf(redact(meant(answer.stderr)), access)
  yield* withinBounds
}, Effect.scoped)

/** Pushes one commit to one branch, if the branch is still at the expected commit (`""`: it does not exist). */
export const push = Effect.fnUntraced(function* (
  options: OriginOptions,
  what: {
    readonly gitDirectory: string
    readonly branch: string
    readonly tip: CommitId
    readonly expected: string
  }
) {
  const { access, command, git, redact } = yield* towards(options, "push", "push")
  const answer = yield* git({
    ...command,
    gitDirectory: what.gitDirectory,
    argv: [
      "push",
      "--porcelain",
      "--progress",
      "--no-verify",
      "--no-follow-tags",
      "--no-signed",
      "--recurse-submodules=no",
      `--force-with-lease=refs/heads/${what.branch}:${what.expected}`,
      "--",
      options.url,
      `${what.tip}:refs/heads/${what.branch}`
    ]
  })
  const status = OriginAnswers.parsePush(answer.stdout.toString("utf8"), what.branch)
  const taken = answer.exitCode === 0 && status !== undefined && /^[ *=]$/u.test(status.flag)
  return { taken, access, said: redact([status?.summary ?? "", meant(answer.stderr)].join(" ")) }
}, Effect.scoped)

/** Fails if more bytes have arrived than allowed, because git itself has no limit. */
const bounded = (gitDirectory: string, bytesMax: number) =>
  Effect.flatMap(
    attempt(gitDirectory, () => packedBytes(gitDirectory)),
    (bytes) => (bytes <= bytesMax ? Effect.void : Effect.fail(OriginAnswers.tooLarge(bytesMax)))
  )

/** Extracts the error lines of stderr, without progress. */
const meant = (stderr: string): string => {
  const lines = stderr.split(/[\r\n]/u).filter((line) => line.trim() !== "")
  const grave = lines.filter((line) => /^(?:fatal|error|remote: (?:error|fatal)|remote:)/u.test(line))
  return (grave.length > 0 ? grave : lines.slice(-3)).join("; ")
}
