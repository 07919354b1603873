/** Asks the client's user about one call of a tool. Anything but an explicit permission is a denial. */
import type { RequestPermissionRequest, RequestPermissionResponse } from "@agentclientprotocol/sdk"
import { Effect } from "effect"
import type { AcpQuestion } from "../AcpSession.ts"

export type Ask = (
  request: Omit<RequestPermissionRequest, "sessionId">,
  signal: AbortSignal
) => Promise<RequestPermissionResponse>

/** The only option that permits. Neither outlives its call. */
const allow = "allow"

const options: RequestPermissionRequest["options"] = [
  { optionId: allow, name: "Allow this call", kind: "allow_once" },
  { optionId: "deny", name: "Deny", kind: "reject_once" }
]

/** Characters that are not visible, or that change the order of others. */
const unseen = /[\p{C}\p{DI}\u2028\u2029\u2800]/gu

const escaped = (text: string): string =>
  text.replaceAll(unseen, (character) =>
    Array.from(
      { length: character.length },
      (_, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`
    ).join("")
  )

/** Shows text of an agent as it is. A client renders text as Markdown, which could hide a part, or load an image. */
export const fenced = (text: string): string => {
  const shown = escaped(text)
  const longest = Math.max(0, ...(shown.match(/`+/gu) ?? []).map((run) => run.length))
  const fence = "`".repeat(Math.max(3, longest + 1))
  return `${fence}json\n${shown}\n${fence}`
}

/** Returns whether the user allows the call. A client that cannot ask has not allowed it. */
export const ask = ({ arguments: text, id, title }: AcpQuestion, send: Ask): Effect.Effect<boolean> =>
  Effect.tryPromise((signal) =>
    send(
      {
        toolCall: {
          toolCallId: id,
          title,
          kind: "other",
          status: "pending",
          content: [{ type: "content", content: { type: "text", text: fenced(text) } }]
        },
        options
      },
      signal
    )
  ).pipe(
    Effect.map(({ outcome }) => outcome.outcome === "selected" && outcome.optionId === allow),
    Effect.orElseSucceed(() => false)
  )
