/**
 * Sends the updates of one turn, in order, and keeps the text of its answer.
 *
 * Each update waits until the client's stream has taken it. So a client that does not read slows its agent down, and
 * nothing is queued.
 */
import type { SessionUpdate } from "@agentclientprotocol/sdk"
import type { AgentEvent } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import { Effect } from "effect"
import * as TurnUpdates from "./TurnUpdates.ts"

export type Send = (update: SessionUpdate) => Promise<void>

/** Characters of an answer that are kept for the conversation if the turn fails. */
const textCharsMax = 256 * 1024

export const make = (facts: TurnUpdates.TurnFacts, send: Send) => {
  let text = ""
  // A lost connection ends the whole server, so a failure here needs no other answer.
  const all = (updates: ReadonlyArray<SessionUpdate>) =>
    Effect.forEach(updates, (update) => Effect.ignore(Effect.tryPromise(() => send(update))), {
      discard: true
    })
  return {
    say: (event: AgentEvent) =>
      Effect.suspend(() => {
        if (event.type === "text_delta" && text.length < textCharsMax) text += event.delta
        return all(TurnUpdates.of(event, facts))
      }),
    note: (severity: "info" | "warning", title: string) => all(TurnUpdates.note(facts, severity, title)),
    text: () => text.slice(0, textCharsMax)
  }
}
