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
          content: [{ type: "content", content: { type: "text", text } }]
        },
        options
      },
      signal
    )
  ).pipe(
    Effect.map(({ outcome }) => outcome.outcome === "selected" && outcome.optionId === allow),
    Effect.orElseSucceed(() => false)
  )
