/**
 * Converts what an agent reports to updates of a session. Pure.
 *
 * An agent's output is untrusted. IDs of its tool calls are unique in one run only, so they get the number of the turn.
 * Texts that are longer than a client could show are cut, and say so.
 */
import type { SessionUpdate, ToolCallLocation, ToolKind } from "@agentclientprotocol/sdk"
import type { AgentEvent } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import { posix } from "node:path"

/** Longest result of a tool call in an update; a longer one is cut. */
export const resultCharsMax = 64 * 1024

/** Longest piece of text in one update; a longer one becomes several. */
export const chunkCharsMax = 64 * 1024

const titleCharsMax = 200
const idCharsMax = 200

/** Facts of a turn that its updates depend on. */
export interface TurnFacts {
  /** Number of the turn in its session. */
  readonly number: number
  /** Directory of the session, if the sandbox changes its files directly, and its path inside the sandbox. */
  readonly shared: { readonly outside: string; readonly inside: string } | undefined
  /** Whether the client shows notices. */
  readonly notices: boolean
}

export const text = (delta: string): ReadonlyArray<SessionUpdate> => {
  const pieces: Array<SessionUpdate> = []
  for (let at = 0; at < delta.length;) {
    const end = endOf(delta, at + chunkCharsMax)
    pieces.push({
      sessionUpdate: "agent_message_chunk",
      content: { type: "text", text: delta.slice(at, end) }
    })
    at = end
  }
  return pieces
}

/** Information of the host for the user: a notice, or a paragraph of the answer for a client that has none. */
export const note = (
  { notices }: Pick<TurnFacts, "notices">,
  severity: "info" | "warning",
  title: string
): ReadonlyArray<SessionUpdate> =>
  notices ? [{ sessionUpdate: "notice", severity, title }] : text(`\n\n> cogni-sandbox: ${title}\n\n`)

export const of = (event: AgentEvent, facts: TurnFacts): ReadonlyArray<SessionUpdate> => {
  switch (event.type) {
    case "text_delta":
      return text(event.delta)
    case "tool_call_start": {
      const { args, toolCallId, toolName } = event
      const path = pathIn(args)
      const locations = path === undefined ? [] : locationsOf(path, facts.shared)
      return [
        {
          sessionUpdate: "tool_call",
          toolCallId: idOf(facts, toolCallId),
          title: titleOf(toolName, args, path),
          name: short(toolName, titleCharsMax),
          kind: kindOf(toolName),
          status: "in_progress",
          ...(locations.length === 0 ? {} : { locations }),
          ...(isShort(args) ? { rawInput: args } : {})
        }
      ]
    }
    case "tool_call_result": {
      const { isError, result, toolCallId } = event
      const shown = shownOf(result)
      return [
        {
          sessionUpdate: "tool_call_update",
          toolCallId: idOf(facts, toolCallId),
          status: isError === true ? "failed" : "completed",
          ...(shown === "" ? {} : { content: [{ type: "content", content: { type: "text", text: shown } }] })
        }
      ]
    }
    case "status":
      // A client without notices would show each as a part of the answer.
      return facts.notices
        ? note(facts, "info", short([event.phase, event.label].filter(Boolean).join(": "), titleCharsMax))
        : []
  }
}

const kinds: Readonly<Record<string, ToolKind>> = {
  bash: "execute",
  command_execution: "execute",
  exec: "execute",
  process: "execute",
  shell: "execute",
  cat: "read",
  notebookread: "read",
  read: "read",
  view: "read",
  apply_patch: "edit",
  edit: "edit",
  file_change: "edit",
  multiedit: "edit",
  notebookedit: "edit",
  patch: "edit",
  write: "edit",
  find: "search",
  glob: "search",
  grep: "search",
  list: "search",
  ls: "search",
  web_search: "fetch",
  webfetch: "fetch",
  websearch: "fetch",
  task: "think",
  todoread: "think",
  todowrite: "think"
}

/** Kind of a tool by its name in the agents that this project knows. */
const kindOf = (toolName: string): ToolKind => {
  const name = toolName.toLowerCase()
  return Object.hasOwn(kinds, name) ? kinds[name]! : "other"
}

const titleOf = (toolName: string, args: unknown, path: string | undefined): string => {
  const command = stringIn(args, ["command", "cmd"])
  return short(command ?? (path === undefined ? toolName : `${toolName} ${path}`), titleCharsMax)
}

const pathIn = (args: unknown) => stringIn(args, ["file_path", "filePath", "path"])

const stringIn = (args: unknown, names: ReadonlyArray<string>): string | undefined => {
  if (typeof args !== "object" || args === null) return undefined
  for (const name of names) {
    const value = (args as Readonly<Record<string, unknown>>)[name]
    if (typeof value === "string" && value !== "") return value
  }
  return undefined
}

/** Place of a file on the client's machine. The path is a claim of the agent, so it must stay in the directory. */
const locationsOf = (path: string, shared: TurnFacts["shared"]): Array<ToolCallLocation> => {
  if (shared === undefined || path.length > 4096 || path.includes("\0")) return []
  const rest = posix.relative(shared.inside, posix.resolve(shared.inside, path))
  return rest === "" || rest === ".." || rest.startsWith("../")
    ? []
    : [{ path: posix.join(shared.outside, rest) }]
}

const idOf = ({ number }: TurnFacts, toolCallId: string) => `${number}:${toolCallId.slice(0, idCharsMax)}`

/** One line of at most `charsMax` characters, never empty. */
const short = (line: string, charsMax: number): string => {
  const flat = line
    .slice(0, charsMax * 4)
    .replace(/\s+/gu, " ")
    .trim()
  if (flat === "") return "tool"
  return flat.length > charsMax ? `${flat.slice(0, endOf(flat, charsMax - 1))}…` : flat
}

const isShort = (value: unknown): boolean => jsonOf(value).length <= resultCharsMax

const shownOf = (result: unknown): string => {
  const whole = typeof result === "string" ? result : jsonOf(result)
  return whole.length > resultCharsMax
    ? `${whole.slice(0, endOf(whole, resultCharsMax))}\n[cut: ${whole.length} characters in all]`
    : whole
}

/** A reader limits the depth of values, so this cannot overflow the stack. */
const jsonOf = (value: unknown): string => JSON.stringify(value) ?? ""

/** Returns the end of a piece that does not separate the halves of a character. */
const endOf = (whole: string, end: number): number => {
  if (end >= whole.length) return whole.length
  const code = whole.charCodeAt(end)
  return code >= 0xdc00 && code <= 0xdfff ? end - 1 : end
}
