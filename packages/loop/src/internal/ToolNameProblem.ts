/** Checks names of tools: `namespace__name`, as model APIs accept them. Pure. */
import { ToolName } from "@cogni/sandbox-core/SpecFields"
import { Schema } from "effect"

/** Longest name that model APIs accept. */
const nameCharactersMax = 64

const isToolName = Schema.is(ToolName)

/** Returns the problem of a name, or `undefined`. Converting it to its dotted form and back must not change it. */
export const find = (name: string): { readonly detail: string; readonly remedy: string } | undefined =>
  isToolName(name) &&
  name.length <= nameCharactersMax &&
  name.replaceAll("__", ".").replaceAll(".", "__") === name
    ? undefined
    : {
        detail: "has a name that model APIs do not accept",
        remedy: `Name it namespace__name, with at most ${nameCharactersMax} lower-case letters, digits and underscores`
      }
