/**
 * Port that proposes changes of personalities and skills to the repository that holds the configuration, and its
 * implementation over the git relay.
 *
 *     change ─► clone ─► new file ─► the whole catalog is checked ─► branch ─► pull request ─► (people merge it)
 *
 * Nothing takes effect here: servers and commands read a directory that their operator updates after the merge.
 */
import type { FileRefused } from "@cogni/sandbox-core/SandboxReason"
import * as FileProposal from "@cogni/sandbox-git-relay/FileProposal"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { describeViolation, type GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import { describe } from "@cogni/sandbox-sessions/config/ConfigurationError"
import * as Personality from "@cogni/sandbox-sessions/config/Personality"
import * as PersonalityCatalog from "@cogni/sandbox-sessions/config/PersonalityCatalog"
import { Context, Effect, Layer, Result, Schema, Semaphore } from "effect"

/** A change of one file of the configuration. */
export type ConfigurationChange =
  | { readonly _tag: "CreatePersonality"; readonly name: string; readonly content: Personality.Personality }
  | { readonly _tag: "EditPersonality"; readonly name: string; readonly edit: Personality.PersonalityEdit }
  | { readonly _tag: "CreateSkill"; readonly name: string; readonly content: Personality.Skill }
  | { readonly _tag: "EditSkill"; readonly name: string; readonly edit: Personality.SkillEdit }

/** Outcome of a change. */
export interface ProposedChange {
  /** `unchanged`: the configuration already has this content. */
  readonly status: "proposed" | "unchanged"
  readonly path: string
  readonly baseBranch: string
  readonly branch?: string
  readonly pullRequestUrl?: string
  /** Whether the pull request was already open. */
  readonly existing?: boolean
}

/** The change cannot be proposed. */
export class ChangeRefused extends Schema.TaggedError<ChangeRefused>()("ChangeRefused", {
  code: Schema.Literals(["invalid", "denied", "not_found", "conflict", "unavailable"]),
  /** Such as `NameTaken`, `ConfigurationInvalid`, or the reason of the relay. */
  reason: Schema.String,
  detail: Schema.String,
  remedy: Schema.String,
  isRetryable: Schema.Boolean
}) {
  override get message(): string {
    return this.remedy === "" ? this.detail : `${this.detail}. ${this.remedy}`
  }
}

export class ConfigurationProposals extends Context.Service<
  ConfigurationProposals,
  {
    /** Address of the repository that holds the configuration. A request cannot name another. */
    readonly repository: string
    readonly propose: (change: ConfigurationChange) => Effect.Effect<ProposedChange, ChangeRefused>
  }
>()("@cogni/sandbox-server/ConfigurationProposals") {}

export interface ProposalsOptions extends PersonalityCatalog.CatalogOptions {
  readonly repository: string
  /** Branch to propose changes of. Default: the branch that the repository's HEAD names. */
  readonly baseBranch?: string | undefined
  /** Proposals at once (default 2). More wait. */
  readonly concurrentMax?: number | undefined
}

export const make = Effect.fnUntraced(function* (options: ProposalsOptions) {
  const relay = yield* GitRelay
  const turns = yield* Semaphore.make(options.concurrentMax ?? 2)
  return ConfigurationProposals.of({
    repository: options.repository,
    propose: Effect.fn("ConfigurationProposals.propose")(function* (change: ConfigurationChange) {
      const { name } = change
      const { kind, path, verb } = yield* placeOf(change)
      if (kind === "personality" && options.namesTaken?.includes(name) === true)
        return yield* taken(`${name} is the name of a built-in personality`)
      const title = `${verb} the ${kind} ${name}`
      const proposed = yield* FileProposal.propose({
        url: options.repository,
        baseBranch: options.baseBranch,
        title: `${kind}-${name}`,
        message: title,
        pullRequest: {
          title,
          body: `Changes \`${path}\`. It takes effect when the configuration is deployed.`
        },
        edit: (base) => Effect.map(contentOf(base, change, path), (content) => [{ path, content }]),
        verify: (files) => Effect.asVoid(PersonalityCatalog.read(files, options))
      }).pipe(Effect.provideService(GitRelay, relay), turns.withPermit, Effect.catch(refusedBy))
      const { baseBranch } = proposed
      return proposed._tag === "Unchanged"
        ? { status: "unchanged", path, baseBranch }
        : {
            status: "proposed",
            path,
            baseBranch,
            branch: proposed.branch,
            pullRequestUrl: proposed.pullRequest.url,
            existing: proposed.pullRequest.existing
          }
    })
  })
})

export const layer = (options: ProposalsOptions): Layer.Layer<ConfigurationProposals, never, GitRelay> =>
  Layer.effect(ConfigurationProposals, make(options))

/** Finds the file of a change. Its name must be plain: it becomes a part of a path. */
const placeOf = Effect.fnUntraced(function* ({ _tag, name }: ConfigurationChange) {
  const isSkill = _tag === "CreateSkill" || _tag === "EditSkill"
  const schema: Schema.ConstraintDecoder<unknown> = isSkill
    ? Personality.SkillName
    : Personality.PersonalityName
  if (!Schema.is(schema)(name)) {
    const rule = isSkill
      ? "at most 64 lower-case letters and digits, in words separated by single hyphens"
      : "at most 64 lower-case letters, digits, underscores and hyphens, starting with a letter"
    return yield* refuse("invalid", "NameInvalid", "the name is invalid", `Use ${rule}`)
  }
  return {
    kind: isSkill ? "skill" : "personality",
    verb: _tag === "CreateSkill" || _tag === "CreatePersonality" ? "Add" : "Change",
    path: isSkill ? PersonalityCatalog.skillPath(name) : PersonalityCatalog.personalityPath(name)
  } as const
})

/** Returns the new content of the file. A file with the same content is not a conflict: the request was repeated. */
const contentOf = Effect.fnUntraced(function* (
  base: FileProposal.BaseFiles,
  change: ConfigurationChange,
  path: string
) {
  const { name } = change
  const before = yield* base.read(path)
  switch (change._tag) {
    case "CreatePersonality":
    case "CreateSkill": {
      const content = yield* Effect.fromResult(created(change))
      if (before !== undefined && before !== content)
        return yield* taken(`the configuration already has ${path}, with other content`)
      return content
    }
    case "EditPersonality": {
      if (before === undefined) return yield* absent(path)
      const found = yield* Effect.mapError(Effect.fromResult(Personality.parse(before)), brokenAt(path))
      return yield* Effect.fromResult(writtenPersonality(Personality.edited(found, change.edit)))
    }
    case "EditSkill": {
      if (before === undefined) return yield* absent(path)
      const found = yield* Effect.mapError(
        Effect.fromResult(Personality.parseSkill(name, before)),
        brokenAt(path)
      )
      return yield* Effect.fromResult(writtenSkill(name, { ...found, ...change.edit }))
    }
  }
})

const created = (change: Extract<ConfigurationChange, { readonly content: unknown }>) =>
  change._tag === "CreatePersonality"
    ? writtenPersonality(change.content)
    : writtenSkill(change.name, change.content)

/** Writes a file, and reads it back: an untyped caller can send anything. */
const writtenPersonality = (content: Personality.Personality) =>
  reread(Personality.format(content), Personality.parse)

const writtenSkill = (name: string, content: Personality.Skill) =>
  reread(Personality.formatSkill(name, content), (text) => Personality.parseSkill(name, text))

const reread = <A>(
  text: string,
  parse: (text: string) => Result.Result<A, Parameters<typeof problemsIn>[0]>
) =>
  Result.mapBoth(parse(text), {
    onSuccess: () => text,
    onFailure: (problems) => invalid(problemsIn(problems))
  })

const problemsIn = (problems: ReadonlyArray<Parameters<typeof describe>[0]>): string =>
  problems
    .slice(0, 5)
    .map(({ key, message }) => describe({ key, message }))
    .join("; ")

const refuse = (
  code: ChangeRefused["code"],
  reason: string,
  detail: string,
  remedy: string,
  isRetryable = false
) => new ChangeRefused({ code, reason, detail, remedy, isRetryable })

const invalid = (problems: string) =>
  refuse("invalid", "ContentInvalid", `the content is invalid: ${problems}`, "Correct it")

const taken = (detail: string) =>
  refuse("conflict", "NameTaken", detail, "Choose another name, or change the existing one")

const absent = (path: string) =>
  refuse("not_found", "NotConfigured", `the configuration has no ${path}`, "Create it first")

const brokenAt = (path: string) => (problems: Parameters<typeof problemsIn>[0]) =>
  refuse(
    "conflict",
    "ConfigurationInvalid",
    `${path} is invalid: ${problemsIn(problems)}`,
    "Correct it by hand"
  )

type ProposalFailure =
  | ChangeRefused
  | FileProposal.ProposalRefused
  | FileRefused
  | GitRelayError
  | PersonalityCatalog.CatalogInvalid

const refusedBy = (error: ProposalFailure): Effect.Effect<never, ChangeRefused> => {
  switch (error._tag) {
    case "ChangeRefused":
      return Effect.fail(error)
    case "CatalogInvalid": {
      const remedy = "Correct the change, or what the repository already has"
      return Effect.fail(
        refuse("conflict", "ConfigurationInvalid", `with this change, ${error.message}`, remedy)
      )
    }
    case "ProposalRefused":
      return Effect.fail(refuse("conflict", problemNames[error.problem], error.detail, error.remedy))
    case "FileRefused":
      // Its message names a directory of this host.
      return Effect.fail(
        refuse(
          "conflict",
          error._tag,
          `a file of the repository is refused: ${error.problem}`,
          "Correct it by hand"
        )
      )
    case "GitRelayError":
      return Effect.fail(ofRelay(error))
  }
}

const problemNames = {
  branch_taken: "BranchTaken",
  ignored: "ChangeIgnored",
  link: "LinkRefused",
  path: "PathRefused"
} as const

const ofRelay = ({ isRetryable, message, reason }: GitRelayError): ChangeRefused => {
  switch (reason._tag) {
    case "PolicyRefused":
      // Its message says where the commits are kept, and these are not.
      return refuse(
        "conflict",
        reason._tag,
        `the policy of the relay refuses the change: ${reason.violations.map(describeViolation).join(" ")}`,
        ""
      )
    case "CredentialsDenied":
      return refuse("denied", reason._tag, reason.detail, reason.remedy)
    case "PushRefused":
      return refuse("unavailable", reason._tag, reason.detail, reason.remedy, isRetryable)
    default:
      return refuse("unavailable", reason._tag, message, "", isRetryable)
  }
}
