/**
 * Takes placements from their queue only while the host has room, one after another.
 *
 * A run for which there is no room waits in the queue. It costs nothing there: a host without room does not ask.
 */
import type { ActivitySlotInfo, CustomSlotSupplier, SlotPermit } from "@temporalio/worker"
import type { RunEffect } from "./HostActivities.ts"
import type { HostRuns } from "./HostRuns.ts"

/** A place in the queue: permits of earlier questions are given back after the next question has begun. */
interface Permit {
  readonly question: number
}

export const make = (
  { room, waiting }: Pick<HostRuns, "room" | "waiting">,
  run: RunEffect
): CustomSlotSupplier<ActivitySlotInfo> => {
  let questions = 0
  let open: number | undefined
  const note = (question: number | undefined) => {
    open = question
    void run(waiting(question !== undefined)).catch(() => undefined)
  }
  const answered = ({ permit }: { readonly permit: SlotPermit }) => {
    if ((permit as Permit).question === open) note(undefined)
  }
  return {
    type: "custom",
    reserveSlot: async (_, signal) => {
      await run(room, { signal }).catch(() => {
        throw signal.reason ?? new Error("the worker has ended")
      })
      questions += 1
      note(questions)
      return { question: questions } satisfies Permit
    },
    // Nothing of this queue comes with the completion of a workflow task.
    tryReserveSlot: () => null,
    markSlotUsed: answered,
    releaseSlot: answered
  }
}
