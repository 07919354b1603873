/** The sessions of an account: runs that belong to one conversation, by their newest run. */
"use client"

import { useQuery } from "@tanstack/react-query"
import type { ReactElement } from "react"
import { Link } from "react-aria-components"
import { Ago } from "./Ago.tsx"
import { DataTable } from "./DataTable.tsx"
import * as Format from "./Format.ts"
import { costOf, Empty, Loading, Problem, StatusBadge, Untrusted } from "./Parts.tsx"
import { isActive, type Run } from "./RunModel.ts"
import { useSandbox } from "./SandboxProvider.tsx"

const columns = [
  { name: "Session" },
  { name: "Newest run" },
  { name: "Runs", isFigure: true },
  { name: "Last run" },
  { name: "Cost", isFigure: true }
]

/** Pages of runs in which sessions are looked for. */
const pagesMax = 10

interface Session {
  readonly sessionId: string
  readonly newest: Run
  readonly runs: number
  readonly costUsd: number | undefined
}

/** Groups runs by session. Pure. The newest session is first. */
const sessionsOf = (runs: ReadonlyArray<Run>): ReadonlyArray<Session> =>
  [...Map.groupBy(runs, ({ sessionId }) => sessionId ?? "")].flatMap(([sessionId, own]) => {
    const [newest] = own
    if (sessionId === "" || newest === undefined) return []
    const costs = own.flatMap((run) => costOf(run) ?? [])
    const costUsd = costs.length === 0 ? undefined : costs.reduce((sum, usd) => sum + usd, 0)
    return [{ sessionId, newest, runs: own.length, costUsd }]
  })

export const SessionList = ({
  hrefOfSession
}: {
  /** URL of the runs of a session. */
  readonly hrefOfSession: (sessionId: string) => string
}): ReactElement => {
  const { client, scope } = useSandbox()
  const { data, error, refetch } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "sessions"],
    queryFn: async ({ signal }) => {
      const runs: Array<Run> = []
      let after: string | undefined
      for (let page = 0; page < pagesMax; page++) {
        const found = await client.runs({}, after, signal)
        runs.push(...found.runs)
        after = found.next
        if (after === undefined) break
      }
      return { sessions: sessionsOf(runs), read: runs.length, isCut: after !== undefined }
    },
    refetchInterval: 15_000
  })
  if (error !== null) return <Problem error={error} onRetry={refetch} />
  if (data === undefined) return <Loading what="sessions" />
  if (data.sessions.length === 0)
    return <Empty>No run belongs to a session. A request names one with threadId.</Empty>
  return (
    <section aria-label="Sessions" className="cs-panel cs-sessions">
      <DataTable
        label="Sessions"
        columns={columns}
        rows={data.sessions.map(({ costUsd, newest, runs, sessionId }) => ({
          id: sessionId,
          cells: [
            <Link className="cs-link" href={hrefOfSession(sessionId)}>
              <Untrusted text={sessionId} />
            </Link>,
            <StatusBadge status={newest.status} error={isActive(newest) ? undefined : newest.error} />,
            Format.count(runs),
            <Ago at={newest.startedAt} />,
            Format.usd(costUsd)
          ]
        }))}
      />
      {data.isCut ? <p className="cs-note">Sessions of the newest {Format.count(data.read)} runs.</p> : null}
    </section>
  )
}
