/** Writes what happens in one run to its journal, from the moment at which the run owns its ID. */
import { Effect } from "effect"
import * as Canary from "../Canary.ts"
import type { RunEvent } from "../RunEvent.ts"
import type { RunId } from "../RunId.ts"
import { endOf, type JournalEvent, type RunJournals } from "../RunJournal.ts"
import type { OutputChunk } from "../RunResult.ts"
import type { Outcome } from "../RunRecord.ts"
import * as SecretMask from "./SecretMask.ts"

/**
 * Decodes a channel as `OutputCollector` does, up to the same number of bytes, and says when there were more. Canaries
 * are masked: only the run knows them, and its journal outlives it.
 */
const makeChannel = (
  channel: OutputChunk["channel"],
  retainedBytesMax: number,
  secrets: ReadonlyArray<string>
) => {
  const mask = SecretMask.ofValues(secrets)
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true })
  const encoder = new TextEncoder()
  let room = retainedBytesMax
  let isCut = false
  let from = 0
  const event = (text: string): ReadonlyArray<JournalEvent> => {
    if (text === "") return []
    const written = { type: "output.written", channel, from, text } as const
    from += encoder.encode(text).byteLength
    return [written]
  }
  return {
    hear: (bytes: Uint8Array): ReadonlyArray<JournalEvent> => {
      if (isCut) return []
      isCut = bytes.byteLength > room
      const kept = isCut ? bytes.subarray(0, room) : bytes
      room -= kept.byteLength
      const text = mask.push(decoder.decode(kept, { stream: !isCut }))
      return isCut ? [...event(text + mask.rest()), { type: "output.truncated", channel }] : event(text)
    },
    /** The rest of a character that the output ends in, and what may have been the beginning of a secret. */
    end: () => event(mask.push(decoder.decode()) + mask.rest())
  }
}

export const make = (
  journal: RunJournals,
  runId: RunId,
  outputRetainedBytesMax: number,
  canaries: ReadonlyArray<Canary.Canary>
) => {
  const secrets = Canary.spellings(canaries)
  const channels = {
    stdout: makeChannel("stdout", outputRetainedBytesMax, secrets),
    stderr: makeChannel("stderr", outputRetainedBytesMax, secrets)
  }
  let isOpen = false

  const eventsOf = (event: RunEvent): ReadonlyArray<JournalEvent> => {
    switch (event._tag) {
      case "PhaseEnded":
        return [{ type: "phase.ended", phase: event.phase, durationMs: event.durationMs }]
      case "PostureVerified":
        return [{ type: "posture.verified" }]
      case "OutputReceived":
        return channels[event.channel].hear(event.bytes)
      case "ExfiltrationSuspected":
        return [{ type: "exfiltration.suspected", evidence: event.evidence }]
      case "BudgetExhausted":
        return [{ type: "budget.exhausted", exhaustion: event.exhaustion }]
      case "SubagentShareSpent":
        return [{ type: "subagents.exhausted", exhaustion: event.exhaustion }]
      case "ApprovalRequested": {
        const { argumentsDigest, effect, expiresAt, id, requestId, tool } = event.approval
        return [
          {
            type: "tool.approval_requested",
            approvalId: id,
            toolCallId: requestId,
            tool,
            effect,
            argumentsDigest,
            expiresAt
          }
        ]
      }
      case "ApprovalDecided": {
        const { decidedBy, id, requestId, status } = event.approval
        return status === "pending"
          ? []
          : [
              {
                type: "tool.approval_decided",
                approvalId: id,
                toolCallId: requestId,
                decision: status,
                ...(decidedBy === undefined ? {} : { decidedBy })
              }
            ]
      }
      case "RunStarted":
      case "RunEnded":
        return []
    }
  }

  const write = (events: ReadonlyArray<JournalEvent>) =>
    Effect.forEach(events, (event) => journal.write(runId, event), { discard: true })

  return {
    /** The run owns its ID. Before, the journal may be another run's. */
    opened: Effect.suspend(() => {
      isOpen = true
      return write([{ type: "run.started" }])
    }),
    hear: (event: RunEvent) => Effect.suspend(() => (isOpen ? write(eventsOf(event)) : Effect.void)),
    ended: (outcome: Outcome) =>
      Effect.suspend(() => {
        const end = endOf(outcome)
        return isOpen && end !== undefined
          ? Effect.andThen(
              write([...channels.stdout.end(), ...channels.stderr.end(), end]),
              journal.close(runId)
            )
          : Effect.void
      })
  }
}
