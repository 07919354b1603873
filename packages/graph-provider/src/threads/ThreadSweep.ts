/** Decides which threads of one account a sweep removes. Pure. */
import type { Thread, ThreadLimits } from "./Thread.ts"

export interface SweepPlan {
  /** Threads that go with their history, because they were unused for too long. */
  readonly expired: ReadonlyArray<Thread>
  /** Threads that lose their files, because the account has too many bytes. */
  readonly emptied: ReadonlyArray<Thread>
}

const dayMillis = 86_400_000

/** Leaves threads that are busy. Files on another host are not counted: that host removes them. */
export const plan = (
  threads: ReadonlyArray<Thread>,
  { bytesPerAccountMax, idleDaysMax }: ThreadLimits,
  { host, nowMillis }: { readonly host: string; readonly nowMillis: number }
): SweepPlan => {
  const own = threads
    .filter(({ isBusy }) => !isBusy)
    .toSorted((a, b) => (a.usedAt < b.usedAt ? -1 : a.usedAt > b.usedAt ? 1 : 0))
  const isExpired = ({ usedAt }: Thread) => nowMillis - Date.parse(usedAt) > idleDaysMax * dayMillis
  const expired = own.filter(isExpired)
  const gone = new Set(expired.map(({ key }) => key))
  let bytes = threads
    .filter((thread) => thread.host === host && !gone.has(thread.key))
    .reduce((sum, { workspaceBytes }) => sum + workspaceBytes, 0)
  const emptied: Array<Thread> = []
  for (const thread of own) {
    if (bytes <= bytesPerAccountMax) break
    if (gone.has(thread.key) || thread.host !== host) continue
    emptied.push(thread)
    bytes -= thread.workspaceBytes
  }
  return { expired, emptied }
}
