/** Readers that follow the events of one run to its end, each over a connection of its own. */
import { Agent, request } from "node:http"
import type { Ready } from "./ServerProcess.ts"

/** Follows a run, and returns the number of events that each reader saw. */
export const follow = ({ token, url }: Ready, runId: string, readers: number): Promise<Array<number>> => {
  const agent = new Agent({ keepAlive: false })
  const headers = { authorization: `Bearer ${token}` }
  const one = () =>
    new Promise<number>((resolve, reject) => {
      const asked = request(`${url}/api/v1/runs/${runId}/events`, { agent, headers }, (events) => {
        let seen = 0
        events.on("data", (piece: Buffer) => (seen += piece.toString("latin1").split("\nevent: ").length - 1))
        events.once("end", () => resolve(seen))
        events.once("error", reject)
      })
      asked.once("error", reject)
      asked.end()
    })
  return Promise.all(Array.from({ length: readers }, one))
}

/** Returns what all readers saw, or throws if one saw less. */
export const same = (counts: ReadonlyArray<number>): number => {
  const different = [...new Set(counts)]
  if (different.length > 1) throw new Error(`readers saw ${different.join(", ")} events`)
  return different[0] ?? 0
}
