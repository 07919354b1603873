/** Approvals of tool calls that the editor's user answers: each question goes to the session whose prompt runs. */
import type { AcpTurn } from "@cogni/sandbox-acp/AcpSession"
import * as Approvals from "@cogni/sandbox-core/Approvals"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Effect, type Layer } from "effect"

/** Turns of the prompts that run. */
export interface AcpApproval {
  readonly layer: Layer.Layer<never>
  /** Lets the calls of a run ask in its turn, while the prompt runs. */
  readonly during: (
    runId: RunId,
    turn: AcpTurn
  ) => <A, E, R>(prompt: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

export const make = (): AcpApproval => {
  const turns = new Map<string, AcpTurn>()
  return {
    during: (runId, turn) => (prompt) =>
      Effect.acquireUseRelease(
        Effect.sync(() => turns.set(runId, turn)),
        () => prompt,
        () => Effect.sync(() => turns.delete(runId))
      ),
    layer: Approvals.layerFunction(
      ({ arguments: text, effect, id, runId, tool }) => {
        const turn = turns.get(runId)
        if (turn === undefined) return Effect.succeed(denied("its prompt has ended"))
        return Effect.map(turn.ask({ id, title: `${tool} (${effect})`, arguments: text }), (isAllowed) =>
          isAllowed ? { decision: "approve" as const } : denied("the user of the editor did not allow it")
        )
      },
      { type: "operator", id: "editor" }
    )
  }
}

const denied = (reason: string) => ({ decision: "deny" as const, reason })
