/**
 * The personalities and skills in a directory, such as a clone of the repository that holds the configuration:
 *
 *     personalities/NAME.md      skills/NAME/SKILL.md      subagents/NAME.md      cogni.yaml
 *
 * The directory is accepted or rejected as a whole, with all problems. Links are refused, so that nothing outside of it
 * is ever read. `cogni.yaml`, a configuration of sessions, is checked too if it exists.
 */
import type { Files } from "@cogni/sandbox-core/Executor"
import type { FileRefused } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Result, Schema } from "effect"
import * as Configuration from "./Configuration.ts"
import { describe, Problem, problemsMax } from "./ConfigurationError.ts"
import * as CatalogReferences from "../internal/config/CatalogReferences.ts"
import * as Personality from "./Personality.ts"

export const personalitiesDirectory = "personalities"
export const skillsDirectory = "skills"
export const subagentsDirectory = "subagents"
export const skillFile = "SKILL.md"
export const configurationFile = "cogni.yaml"

/** Maximum number of personalities, of skills, and of subagents. */
export const entriesMax = 64

export interface PersonalityCatalog {
  readonly personalities: Readonly<Record<string, Personality.Personality>>
  readonly skills: Readonly<Record<string, Personality.Skill>>
  readonly subagents: Readonly<Record<string, Personality.Subagent>>
  /** The configuration of sessions, if the directory has one. */
  readonly configuration?: Configuration.Configuration | undefined
}

/** Returns the path of a personality's file in the repository. */
export const personalityPath = (name: string): string => `${personalitiesDirectory}/${name}.md`

/** Returns the path of a skill's file in the repository. */
export const skillPath = (name: string): string => `${skillsDirectory}/${name}/${skillFile}`

/** A problem of one file. */
export const FileProblem = Schema.Struct({ file: Schema.String, ...Problem.fields })

export type FileProblem = typeof FileProblem.Type

/** The directory is not used. */
export class CatalogInvalid extends Schema.TaggedError<CatalogInvalid>()("CatalogInvalid", {
  /** Never empty. */
  problems: Schema.Array(FileProblem),
  /** Number of problems beyond {@link problemsMax}. */
  problemsOmitted: Schema.Int
}) {
  readonly isRetryable = false
  /** One line per problem: `FILE:LINE:COL KEY: message`. */
  get lines(): ReadonlyArray<string> {
    const lines = this.problems.map(({ file, ...problem }) => `${file}:${describe(problem)}`)
    return this.problemsOmitted === 0 ? lines : [...lines, `and ${this.problemsOmitted} more`]
  }
  override get message(): string {
    return `the configuration is refused: ${this.lines.slice(0, 5).join("; ")}`
  }
}

export interface CatalogOptions
  extends CatalogReferences.CatalogRules, Pick<Configuration.ParseOptions, "runtimeImage" | "toolNames"> {
  /** Names of built-in personalities: a file of that name would replace one. */
  readonly namesTaken?: ReadonlyArray<string> | undefined
}

/** Reads a directory, or fails with every problem in it. */
export const read = Effect.fnUntraced(function* (
  files: Pick<Files<FileRefused>, "list" | "read">,
  options: CatalogOptions = {}
): Effect.fn.Return<PersonalityCatalog, CatalogInvalid | FileRefused> {
  const problems: Array<FileProblem> = []
  const report: Report = (file, found) => {
    problems.push(...found.map((problem) => ({ file, ...problem })))
    return undefined
  }
  const root = yield* files.list(".")
  const skills = yield* skillsOf(files, kindIn(root, skillsDirectory), report)
  const personalities = yield* personalitiesOf(
    files,
    kindIn(root, personalitiesDirectory),
    report,
    options.namesTaken
  )
  const subagents = yield* subagentsOf(files, kindIn(root, subagentsDirectory), report, options)
  for (const [name, one] of Object.entries(personalities))
    report(personalityPath(name), CatalogReferences.problemsOf(one, { skills, subagents }, options))
  const configuration = yield* configurationOf(files, kindIn(root, configurationFile), report, options)
  if (problems.length === 0)
    return { personalities, skills, subagents, ...(configuration === undefined ? {} : { configuration }) }
  return yield* new CatalogInvalid({
    problems: problems.slice(0, problemsMax),
    problemsOmitted: Math.max(0, problems.length - problemsMax)
  })
})

type Reader = Pick<Files<FileRefused>, "list" | "read">
type Report = (file: string, problems: ReadonlyArray<Problem>) => undefined
type Kind = "directory" | "file" | "symlink" | "other" | undefined

const isPersonality = Schema.is(Personality.PersonalityName)
const isSkill = Schema.is(Personality.SkillName)

const whole = (message: string): Problem => ({ key: "", message })

const kindIn = (entries: ReadonlyArray<{ readonly name: string; readonly type: Kind }>, name: string): Kind =>
  entries.find((entry) => entry.name === name)?.type

/** Lists a directory. A missing one is empty. */
const entriesOf = Effect.fnUntraced(function* (files: Reader, kind: Kind, name: string, report: Report) {
  if (kind === undefined) return []
  if (kind !== "directory") {
    report(name, [whole("Expected a directory, and no link to one")])
    return []
  }
  // Such as the file that keeps an empty directory in git.
  const found = (yield* files.list(name)).filter((entry) => entry.name !== ".gitkeep")
  if (found.length > entriesMax) report(name, [whole(`Expected at most ${entriesMax} entries`)])
  return found.slice(0, entriesMax)
})

const personalitiesOf = Effect.fnUntraced(function* (
  files: Reader,
  kind: Kind,
  report: Report,
  namesTaken: CatalogOptions["namesTaken"] = []
) {
  const found: Record<string, Personality.Personality> = {}
  for (const entry of yield* entriesOf(files, kind, personalitiesDirectory, report)) {
    const path = `${personalitiesDirectory}/${shown(entry.name)}`
    const name = entry.name.replace(/\.md$/u, "")
    if (entry.type !== "file" || name === entry.name || !isPersonality(name)) {
      report(path, [
        whole("Expected a regular file named NAME.md, in lower-case letters, digits, `_` and `-`")
      ])
      continue
    }
    if (namesTaken.includes(name)) {
      report(path, [whole("Expected another name: this one is built in")])
      continue
    }
    const text = yield* textOf(files, personalityPath(name), Personality.instructionsBytesMax * 2)
    const parsed = Result.flatMap(
      Result.mapError(text, (problem) => [problem]),
      Personality.parse
    )
    if (Result.isFailure(parsed)) report(path, parsed.failure)
    else found[name] = parsed.success
  }
  return found
})

const subagentsOf = Effect.fnUntraced(function* (
  files: Reader,
  kind: Kind,
  report: Report,
  { agents = {} }: CatalogOptions
) {
  const namesTaken = new Set(
    Object.values(agents).flatMap(({ subagentNamesTaken = [] }) => subagentNamesTaken)
  )
  const found: Record<string, Personality.Subagent> = {}
  for (const entry of yield* entriesOf(files, kind, subagentsDirectory, report)) {
    const path = `${subagentsDirectory}/${shown(entry.name)}`
    const name = entry.name.replace(/\.md$/u, "")
    if (entry.type !== "file" || name === entry.name || !isSkill(name)) {
      const words = "Expected a regular file named NAME.md, in lower-case letters, digits and single hyphens"
      report(path, [whole(words)])
      continue
    }
    if (namesTaken.has(name)) {
      report(path, [whole("Expected another name: an agent has a subagent of this name")])
      continue
    }
    const parsed = Result.flatMap(
      Result.mapError(
        yield* textOf(files, `${subagentsDirectory}/${entry.name}`, Personality.instructionsBytesMax * 2),
        (problem) => [problem]
      ),
      Personality.parseSubagent
    )
    if (Result.isFailure(parsed)) report(path, parsed.failure)
    else found[name] = parsed.success
  }
  return found
})

const skillsOf = Effect.fnUntraced(function* (files: Reader, kind: Kind, report: Report) {
  const found: Record<string, Personality.Skill> = {}
  for (const entry of yield* entriesOf(files, kind, skillsDirectory, report)) {
    const { name, type } = entry
    if (type !== "directory" || !isSkill(name)) {
      const words = "Expected a directory NAME, in lower-case letters, digits and single hyphens"
      report(`${skillsDirectory}/${shown(name)}`, [whole(words)])
      continue
    }
    const inside = yield* files.list(`${skillsDirectory}/${name}`)
    if (inside.length !== 1 || kindIn(inside, skillFile) !== "file") {
      report(`${skillsDirectory}/${name}`, [
        whole(`Expected one regular file ${skillFile}, and nothing else`)
      ])
      continue
    }
    const text = yield* textOf(files, skillPath(name), Personality.skillBytesMax * 2)
    const parsed = Result.flatMap(
      Result.mapError(text, (problem) => [problem]),
      (text) => Personality.parseSkill(name, text)
    )
    if (Result.isFailure(parsed)) report(skillPath(name), parsed.failure)
    else found[name] = parsed.success
  }
  return found
})

const configurationOf = Effect.fnUntraced(function* (
  files: Reader,
  kind: Kind,
  report: Report,
  options: CatalogOptions
) {
  if (kind === undefined) return undefined
  if (kind !== "file") return report(configurationFile, [whole("Expected a regular file")])
  const text = yield* textOf(files, configurationFile, Configuration.textBytesMax)
  if (Result.isFailure(text)) return report(configurationFile, [text.failure])
  const parsed = yield* Effect.result(
    Configuration.parse(text.success, { ...options, file: configurationFile })
  )
  if (Result.isSuccess(parsed)) {
    const problems = CatalogReferences.problemsOfModels(parsed.success.models, options)
    return problems.length === 0 ? parsed.success : report(configurationFile, problems)
  }
  const { reason } = parsed.failure
  return reason._tag === "ConfigurationInvalid" ? report(configurationFile, reason.problems) : undefined
})

/** Reads a file as UTF-8. Its size and encoding are its own problems; a failing disk is not. */
const textOf = Effect.fnUntraced(function* (files: Reader, path: string, bytesMax: number) {
  const bytes = yield* Effect.result(files.read(path, { bytesMax }))
  if (Result.isFailure(bytes)) {
    if (bytes.failure.problem === "too_large") return Result.fail(whole(`Expected at most ${bytesMax} bytes`))
    return yield* bytes.failure
  }
  try {
    return Result.succeed(new TextDecoder("utf-8", { fatal: true }).decode(bytes.success))
  } catch {
    return Result.fail(whole("Expected text in UTF-8"))
  }
})

/** Makes a file name safe to show. */
const shown = (name: string): string => JSON.stringify(name.slice(0, 100)).slice(1, -1)
