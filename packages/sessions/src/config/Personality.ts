/**
 * A personality or a skill of agents, as a file of a repository: Markdown, with its settings in YAML at the top.
 *
 * People review these files, and agents read them as instructions. So a text has no character that a reviewer cannot
 * see. {@link format} writes only files that {@link parse} reads back unchanged. Pure.
 */
import { Result, Schema, SchemaIssue, Struct } from "effect"
import { stringify } from "yaml"
import * as YamlDocument from "../internal/config/YamlDocument.ts"
import type { Problem } from "./ConfigurationError.ts"

/** Maximum sizes of the two texts, in bytes of UTF-8. */
export const instructionsBytesMax = 32 * 1024
export const skillBytesMax = 64 * 1024

/** Maximum number of skills of one personality, of its subagents, and of tools that it denies. */
export const skillsMax = 16
export const subagentsMax = 16
export const toolsDeniedMax = 32

export const PersonalityName = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9_-]{0,63}$/u, {
    expected: "a name of 1 to 64 lower-case letters, digits, `_` and `-`, beginning with a letter"
  })
)

export const SkillName = Schema.String.check(
  Schema.isPattern(/^(?=.{1,64}$)[a-z0-9]+(?:-[a-z0-9]+)*$/u, {
    expected: "a name of 1 to 64 lower-case letters and digits, in words separated by single hyphens"
  })
)

/**
 * Controls, format characters, selectors, fillers, and code points that nothing shows; not line feeds and tabs.
 *
 * In an emoji, one selector and the joiners between its parts have an effect that a reviewer sees.
 */
const invisible = new RegExp(
  "(?![\\n\\t])" +
    "(?!(?<=\\p{Extended_Pictographic})\\ufe0f)" +
    "(?!(?<=[\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\ufe0f])\\u200d(?=\\p{Extended_Pictographic}))" +
    "[\\p{C}\\p{DI}\\u2028\\u2029\\u2800]",
  "u"
)

const visible = Schema.makeFilter((text: string) => {
  const at = text.search(invisible)
  if (at === -1) return undefined
  const line = text.slice(0, at).split("\n").length
  const code = text.codePointAt(at)!.toString(16).toUpperCase().padStart(4, "0")
  return `Expected only characters that can be seen, got U+${code} in line ${line} of the text`
})

const oneLine = (charactersMax: number) =>
  Schema.String.check(
    Schema.isMinLength(1),
    Schema.isMaxLength(charactersMax),
    Schema.isPattern(/^\S(?:[^\n\t]*\S)?$/u, { expected: "one line without spaces at its ends" }),
    visible
  )

const body = (bytesMax: number) =>
  Schema.String.check(
    Schema.makeFilter((text: string) =>
      text.trim() === ""
        ? "Expected a text, got an empty one"
        : text !== text.trim()
          ? "Expected a text without empty space at its ends"
          : Buffer.byteLength(text) > bytesMax
            ? `Expected at most ${bytesMax} bytes`
            : undefined
    ),
    visible
  )

const ModelName = Schema.String.check(
  Schema.isMaxLength(200),
  Schema.isPattern(/^[\x21-\x7e]+$/u, { expected: "the name of a model, without spaces" })
)

const ToolName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z][A-Za-z0-9_.-]{0,63}$/u, { expected: "the name of a tool" })
)

const settings = {
  /** The name that it uses for itself. */
  displayName: oneLine(64),
  description: oneLine(500),
  /** Agents that have it. Default: `openclaw`. */
  agents: Schema.Array(PersonalityName).check(Schema.isMinLength(1), Schema.isMaxLength(16)),
  /** Model of runs that name none. */
  model: ModelName,
  skills: Schema.Array(SkillName).check(Schema.isMaxLength(skillsMax)),
  /** Subagents that its agent can give work to. */
  subagents: Schema.Array(SkillName).check(Schema.isMaxLength(subagentsMax)),
  /** How much its model thinks. */
  effort: Schema.String.check(Schema.isPattern(/^[a-z]{1,16}$/u, { expected: "a word such as low or high" })),
  /** Tools of the agent that it cannot use. */
  toolsDenied: Schema.Array(ToolName).check(Schema.isMaxLength(toolsDeniedMax))
}

const instructions = body(instructionsBytesMax)

/** Agents of a personality that names none. */
export const agentsDefault: ReadonlyArray<string> = ["openclaw"]

/** A role that a task can choose. */
export const Personality = Schema.Struct({
  ...Struct.map(settings, Schema.optionalKey),
  instructions
}).annotate({ identifier: "Personality" })

export type Personality = typeof Personality.Type

/** The changes of a personality: fields that are absent stay, and `null` removes a setting. */
export const PersonalityEdit = Schema.Struct({
  ...Struct.map(Struct.map(settings, Schema.NullOr), Schema.optionalKey),
  instructions: Schema.optionalKey(instructions)
}).annotate({ identifier: "PersonalityEdit" })

export type PersonalityEdit = typeof PersonalityEdit.Type

/** Instructions for one kind of task, which an agent reads when it needs them. */
export const Skill = Schema.Struct({
  /** When to use it. The agent always sees this. */
  description: oneLine(1000),
  instructions: body(skillBytesMax)
}).annotate({ identifier: "Skill" })

export type Skill = typeof Skill.Type

/** An agent that another one can give a part of its work to. */
export const Subagent = Schema.Struct({
  /** When to use it. The agent always sees this. */
  description: oneLine(1000),
  /** Tools that it can use. Default: those of the agent. */
  tools: Schema.optionalKey(
    Schema.Array(ToolName).check(Schema.isMinLength(1), Schema.isMaxLength(toolsDeniedMax))
  ),
  instructions
}).annotate({ identifier: "Subagent" })

export type Subagent = typeof Subagent.Type

/** The changes of a skill: fields that are absent stay. */
export const SkillEdit = Skill.mapFields(Struct.map(Schema.optionalKey)).annotate({ identifier: "SkillEdit" })

export type SkillEdit = typeof SkillEdit.Type

/** Applies the changes of a personality. */
export const edited = (before: Personality, edit: PersonalityEdit): Personality =>
  Object.fromEntries(
    Object.entries({ ...before, ...edit }).filter(([, value]) => value !== null && value !== undefined)
  ) as unknown as Personality

/** Names of fields in the YAML of a file. */
const keys = {
  displayName: "display_name",
  description: "description",
  agents: "agents",
  model: "model",
  skills: "skills",
  subagents: "subagents",
  effort: "effort",
  toolsDenied: "tools_denied"
} as const

/** The field of the text below the settings. */
const textKey = "instructions"

const fence = "---\n"

/** Writes a personality as a file. */
export const format = ({ instructions, ...settings }: Personality): string =>
  document(
    Object.fromEntries(
      Object.entries(keys).flatMap(([field, key]) => {
        const value = settings[field as keyof typeof settings]
        return value === undefined || (Array.isArray(value) && value.length === 0) ? [] : [[key, value]]
      })
    ),
    instructions
  )

/** Writes a skill as a file, in the format of `SKILL.md`. */
export const formatSkill = (name: string, { description, instructions }: Skill): string =>
  document({ name, description }, instructions)

const document = (settings: Readonly<Record<string, unknown>>, text: string): string => {
  const yaml = Object.keys(settings).length === 0 ? "" : stringify(settings, { lineWidth: 0 })
  return `${fence}${yaml}${fence}\n${text}\n`
}

/** Reads a personality, or reports all its problems. */
export const parse = (text: string): Result.Result<Personality, ReadonlyArray<Problem>> =>
  read(text, (settings) => {
    const fields: ReadonlyArray<readonly [string, string]> = Object.entries(keys)
    const known = new Map(fields.map(([field, key]) => [key, field]))
    const renamed = Object.entries(settings).map(([key, value]) => [
      key === textKey ? key : (known.get(key) ?? `${key}?`),
      value
    ])
    return decodePersonality(Object.fromEntries(renamed))
  })

/** Reads a skill. The name in it must be that of its directory. */
export const parseSkill = (name: string, text: string): Result.Result<Skill, ReadonlyArray<Problem>> =>
  read(text, ({ name: given, ...settings }) =>
    given === name
      ? decodeSkill(settings)
      : Result.fail([{ path: ["name"], message: `Expected ${name}, the name of its directory` }])
  )

/** Reads a subagent, whose name is that of its file. */
export const parseSubagent = (text: string): Result.Result<Subagent, ReadonlyArray<Problem>> =>
  read(text, (settings) => decodeSubagent(settings))

interface Issue {
  readonly path?: ReadonlyArray<unknown> | undefined
  readonly message: string
}

const read = <A>(
  text: string,
  decode: (settings: Readonly<Record<string, unknown>>) => Result.Result<A, ReadonlyArray<Issue>>
): Result.Result<A, ReadonlyArray<Problem>> => {
  const end = text.indexOf(`\n${fence}`, fence.length - 1)
  if (!text.startsWith(fence) || end === -1) {
    return Result.fail([
      {
        line: 1,
        column: 1,
        key: "",
        message: "Expected a first line `---`, settings, and another line `---`"
      }
    ])
  }
  const yaml = YamlDocument.parse(text.slice(fence.length, end + 1))
  if (Result.isFailure(yaml)) return Result.fail(yaml.failure.map(below))
  const { problem, value } = yaml.success
  if (value !== null && (typeof value !== "object" || Array.isArray(value)))
    return Result.fail([{ line: 2, column: 1, key: "", message: "Expected settings, such as `model: NAME`" }])
  if (value !== null && Object.hasOwn(value, textKey))
    return Result.fail([below(problem([textKey], "Expected the instructions below the settings"))])
  const instructions = text.slice(end + 1 + fence.length).trim()
  const decoded = decode({ ...value, [textKey]: instructions })
  return Result.mapError(decoded, (issues) =>
    issues.map(({ message, path = [] }): Problem => {
      const [field, ...rest] = path
      const line = text.slice(0, end + 1).split("\n").length
      if (field === textKey) return { line, column: 1, key: "", message }
      const key = String(field ?? "")
      const name = key.endsWith("?") ? key.slice(0, -1) : (keys[key as keyof typeof keys] ?? key)
      return below(problem([name, ...(rest as YamlDocument.Path)], message))
    })
  )
}

/** Moves a problem below the first line of the file. */
const below = (problem: Problem): Problem =>
  problem.line === undefined ? problem : { ...problem, line: problem.line + 1 }

const issues = SchemaIssue.makeFormatterStandardSchemaV1()

const strict =
  <S extends Schema.ConstraintDecoder<unknown>>(schema: S) =>
  (value: unknown): Result.Result<S["Type"], ReadonlyArray<Issue>> =>
    Result.mapError(
      Schema.decodeUnknownResult(schema, { errors: "all", onExcessProperty: "error" })(value),
      (error) => issues(error.issue).issues as ReadonlyArray<Issue>
    )

const decodePersonality = strict(Personality)
const decodeSkill = strict(Skill)
const decodeSubagent = strict(Subagent)
