/** Flags that need a proxy which reads bodies, for commands that serve many runs. Pure. */
import { Result } from "effect"
import { type Refusal, refuse } from "./Failure.ts"

/** Flags that only the gateway enforces, by the field that they set. */
const enforcing = {
  callsMax: "--max-calls",
  inputTokensMax: "--max-input-tokens",
  outputTokensMax: "--max-output-tokens",
  costUsdMax: "--max-cost",
  subagentShareMax: "--subagent-share",
  strict: "--strict",
  canaries: "--canaries"
} as const

type Given = Readonly<Partial<Record<keyof typeof enforcing, boolean | number | string | undefined>>> & {
  readonly proxy: string
  /** Tools and packages that every run may use. */
  readonly tools?: ReadonlyArray<string> | undefined
  readonly askTools?: ReadonlyArray<string> | undefined
  readonly packages?: ReadonlyArray<string> | undefined
}

/** Flags of tools and packages, which a run gets only from the gateway. */
const providing = { tools: "--tool", askTools: "--ask-tool", packages: "--packages" } as const

/**
 * Refuses limits that nginx cannot enforce, and tools and packages that it cannot provide. Every run would be refused
 * because of them, so the command refuses them before it serves one.
 */
export const served = (input: Given): Result.Result<void, Refusal> => {
  if (input.proxy !== "nginx" && input.proxy !== "nginx-shared") return Result.void
  const limits = flagsOf(enforcing, (name) => ![undefined, false, "off"].some((no) => input[name] === no))
  const provided = flagsOf(providing, (name) => (input[name]?.length ?? 0) > 0)
  const [verb, flags] = limits.length > 0 ? ["enforce", limits] : ["provide", provided]
  return flags.length === 0
    ? Result.void
    : refuse(
        "input",
        `the proxy ${input.proxy} cannot ${verb} ${flags.join(" or ")}: it does not read bodies`,
        `Use --proxy gateway, or leave out ${flags.join(" and ")}`
      )
}

const flagsOf = <T extends Readonly<Record<string, string>>>(
  flags: T,
  isGiven: (name: keyof T) => boolean
): ReadonlyArray<string> => Object.entries(flags).flatMap(([name, flag]) => (isGiven(name) ? [flag] : []))
