/** What a model hears of a call, whatever carries it: the same text through every adapter. */
import type { ToolContext, ToolFailed } from "./Tool.ts"
import { Effect } from "effect"
import type { ToolRegistry } from "./ToolRegistry.ts"

export type Answer =
  | { readonly ok: true; readonly result: unknown; readonly text: string }
  /** Text begins with the code. */
  | { readonly ok: false; readonly text: string }

const textOf = ({ code, detail }: Pick<ToolFailed, "code" | "detail">): string => `${code}: ${detail}`

export const answer = (
  registry: ToolRegistry,
  name: string,
  input: unknown,
  context: ToolContext
): Effect.Effect<Answer> =>
  registry.call(name, input, context).pipe(
    Effect.match({
      onSuccess: (result): Answer => ({ ok: true, result, text: JSON.stringify(result ?? null) }),
      onFailure: (error): Answer => ({ ok: false, text: textOf(error) })
    })
  )

/** Arguments as models' APIs carry them; of a tool that takes none, some send nothing at all. */
export const parse = (given: string): { readonly input: unknown } | Answer => {
  if (given.trim() === "") return { input: {} }
  try {
    return { input: JSON.parse(given) }
  } catch (error) {
    return {
      ok: false,
      text: textOf({
        code: "invalid_json",
        detail: `the arguments are no JSON (${error instanceof Error ? error.message.slice(0, 200) : "they cannot be read"}). Send one object, as the tool's parameters say`
      })
    }
  }
}
