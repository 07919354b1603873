/**
 * MCP servers whose tools agents may call, from a JSON file that `COGNI_MCP_SERVERS_FILE` names, with the variables of
 * this host that their programs get.
 */
import * as McpTools from "@cogni/sandbox-proxy/tools/McpTools"
import { Config, Effect, Option } from "effect"
import { type Refusal, refusal } from "./Failure.ts"
import * as JsonFile from "./JsonFile.ts"

const fileBytesMax = 256 * 1024

/** Names of servers that would be taken for other tools. */
const reserved: ReadonlySet<string> = new Set(["core", "file", "github", "http", "process", "shell", "sql"])

/** Reads the servers; none without a file. `secretNames` are variables that no program gets. */
export const make = Effect.fnUntraced(function* (
  file: string | undefined,
  secretNames: ReadonlyArray<string>
): Effect.fn.Return<ReadonlyArray<McpTools.McpServer>, Refusal> {
  if (file === undefined) return []
  const refuse = (problem: string, remedy: string) =>
    refusal("configuration", `COGNI_MCP_SERVERS_FILE ${file}: ${problem}`, remedy)
  const rules = yield* JsonFile.read(
    {
      variable: "COGNI_MCP_SERVERS_FILE",
      file,
      bytesMax: fileBytesMax,
      describes: "MCP servers",
      page: "docs/guides/mcp-servers.md"
    },
    McpTools.McpServers
  )
  return yield* Effect.forEach(
    rules,
    Effect.fnUntraced(function* (rule) {
      if (reserved.has(rule.name))
        return yield* refuse(`the name ${rule.name} belongs to other tools`, "Choose another name")
      const entries = yield* Effect.forEach(
        rule.env ?? [],
        Effect.fnUntraced(function* (name) {
          if (secretNames.includes(name) || name.startsWith("COGNI_"))
            return yield* refuse(
              `${name} of ${rule.name} is for this host alone`,
              "Remove it, or add a connection"
            )
          const value = yield* Config.String(name).pipe(
            Config.option,
            Effect.orElseSucceed(() => Option.none<string>())
          )
          return Option.isSome(value)
            ? ([name, value.value] as const)
            : yield* refuse(`${name} of ${rule.name} is not set`, "Set it, or remove it from env")
        })
      )
      return { rule, environment: Object.fromEntries(entries) }
    })
  )
})
