/**
 * The messages of one session. Pure.
 *
 * Every turn adds two messages, whatever its end, so that an agent learns what was asked before and how far it came.
 * The oldest turns are dropped when the rest exceeds its limit.
 */
import type { Message } from "@cogni/sandbox-graph-provider/agents/AgentFields"

export interface Conversation {
  readonly messages: ReadonlyArray<Message>
  /** Characters of all messages. */
  readonly chars: number
  /** Turns that were dropped. */
  readonly dropped: number
}

export const empty: Conversation = { messages: [], chars: 0, dropped: 0 }

/** Adds a turn, and drops the oldest turns beyond `charsMax`. A turn that exceeds it alone is not kept. */
export const add = (
  { dropped, messages }: Conversation,
  prompt: string,
  answer: string,
  charsMax: number
): Conversation => {
  const all: ReadonlyArray<Message> = [
    ...messages,
    { role: "user", content: prompt },
    { role: "assistant", content: answer }
  ]
  let chars = all.reduce((sum, { content }) => sum + content.length, 0)
  let from = 0
  while (chars > charsMax) {
    chars -= all[from]!.content.length + all[from + 1]!.content.length
    from += 2
  }
  return { messages: all.slice(from), chars, dropped: dropped + from / 2 }
}

/** Answer of a turn that has none. */
export const unanswered = (textSoFar: string, why: string): string =>
  textSoFar.trim() === "" ? `[no answer: ${why}]` : `${textSoFar}\n\n[the answer ends here: ${why}]`
