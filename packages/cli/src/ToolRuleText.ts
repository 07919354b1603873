/** Parses a rule for tools as a flag has it: `PATTERN`, or `PATTERN:EFFECT`. Pure. */
import { ToolPattern } from "@cogni/sandbox-core/GrantPattern"
import { ToolEffect, type ToolRule } from "@cogni/sandbox-core/ToolAccess"
import { Effect, Result, Schema } from "effect"
import { refusal } from "./Failure.ts"
import { oneLine } from "./TerminalText.ts"

/** Fault of a rule, and a text to write instead. */
interface RuleProblem {
  readonly problem: string
  readonly remedy: string
}

const isPattern: (text: string) => boolean = Schema.is(ToolPattern)
const isEffect = Schema.is(ToolEffect)

/** A rule without its access. A pattern has no colon, so one always begins an effect class. */
export const parse = (text: string): Result.Result<Omit<ToolRule, "access">, RuleProblem> => {
  const colon = text.indexOf(":")
  const [tool, effect] = colon === -1 ? [text] : [text.slice(0, colon), text.slice(colon + 1)]
  if (!isPattern(tool)) {
    const meant = tool.toLowerCase().replaceAll(".", "__")
    return Result.fail({
      problem: "expected a pattern of lower-case letters, digits, _ and *",
      remedy: isPattern(meant)
        ? `Write ${meant}${colon === -1 ? "" : text.slice(colon)}`
        : "Write the name of a tool, such as acme__pay, or a pattern, such as acme__*"
    })
  }
  if (effect === undefined) return Result.succeed({ tool })
  if (isEffect(effect)) return Result.succeed({ tool, effect })
  return Result.fail({
    problem: "there is no such effect class after the colon",
    remedy: `Write ${ToolEffect.literals.map((one) => `${tool}:${one}`).join(", ")}, or ${tool} for all of them`
  })
}

/** Parses the rules of `--ask-tool` and `--close-tool`. */
export const ofFlags = ({
  askTools,
  closedTools
}: {
  readonly askTools: ReadonlyArray<string>
  readonly closedTools: ReadonlyArray<string>
}) =>
  Effect.forEach(
    [
      ...askTools.map((text) => ["--ask-tool", "ask", text] as const),
      ...closedTools.map((text) => ["--close-tool", "closed", text] as const)
    ],
    ([flag, access, text]) => {
      const parsed = parse(text)
      return Result.isSuccess(parsed)
        ? Effect.succeed({ ...parsed.success, access })
        : Effect.fail(
            refusal(
              "input",
              `${flag} ${oneLine(JSON.stringify(text.slice(0, 100)))}: ${parsed.failure.problem}`,
              oneLine(parsed.failure.remedy)
            )
          )
    }
  )
