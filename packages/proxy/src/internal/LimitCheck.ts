/** Checks the numbers among the options of a proxy. Apart from the ranges, which the threads of the gateway load too. */
import { Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import { Record, Result } from "effect"
import type { LimitRange } from "./LimitRange.ts"

/** Refuses the first number that is not in its range. The error names the proxy. */
export const check = <Ranges extends Readonly<Record<string, LimitRange>>>(
  proxy: string,
  ranges: Ranges,
  options: { readonly [Name in keyof NoInfer<Ranges>]?: number | undefined }
): Result.Result<void, Misconfigured> => {
  for (const [name, { contains, expected }] of Record.toEntries<string, LimitRange>(ranges)) {
    const value: unknown = options[name]
    if (value === undefined || contains(value)) continue
    const shown = typeof value === "number" ? ` ${value}` : `, a ${typeof value}`
    return Result.fail(
      new Misconfigured({
        option: proxy,
        detail: `has ${name}${shown}, which is not ${expected}`,
        remedy: `Set a ${name} in that range, or leave it out`
      })
    )
  }
  return Result.succeed(undefined)
}
