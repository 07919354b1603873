/** The sessions of an account: runs that belong to one conversation, by their newest run. */
"use client"

import { useQuery } from "@tanstack/react-query"
import type { ReactElement } from "react"
import { Cell, Column, Link, Row, Table, TableBody, TableHeader } from "react-aria-components"
import * as Format from "./Format.ts"
import { costOf, Empty, Loading, Problem, StatusBadge, Untrusted } from "./Parts.tsx"
import { isActive, type Run } from "./RunModel.ts"
import { useNow, useSandbox } from "./SandboxProvider.tsx"

/** Pages of runs in which sessions are looked for. */
const pagesMax = 10

interface Session {
  readonly sessionId: string
  readonly newest: Run
  readonly runs: number
  readonly costUsd: number | undefined
}

/** Groups runs by session. Pure. The newest session is first. */
export const sessionsOf = (runs: ReadonlyArray<Run>): ReadonlyArray<Session> =>
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
  const now = useNow(true)
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
    <section aria-label="Sessions" className="cs-panel">
      <div className="cs-scroll">
        <Table aria-label="Sessions" className="cs-table">
          <TableHeader>
            <Column isRowHeader>Session</Column>
            <Column>Newest run</Column>
            <Column className="cs-figure">Runs</Column>
            <Column>Last started</Column>
            <Column className="cs-figure">Cost</Column>
          </TableHeader>
          <TableBody dependencies={[now, data]}>
            {data.sessions.map(({ costUsd, newest, runs, sessionId }) => (
              <Row key={sessionId} id={sessionId} href={hrefOfSession(sessionId)}>
                <Cell>
                  <Link className="cs-link" href={hrefOfSession(sessionId)}>
                    <Untrusted text={sessionId} />
                  </Link>
                </Cell>
                <Cell>
                  <StatusBadge status={newest.status} error={isActive(newest) ? undefined : newest.error} />
                </Cell>
                <Cell className="cs-figure">{Format.count(runs)}</Cell>
                <Cell>{Format.ago(newest.startedAt, now)}</Cell>
                <Cell className="cs-figure">{Format.usd(costUsd)}</Cell>
              </Row>
            ))}
          </TableBody>
        </Table>
      </div>
      {data.isCut ? <p className="cs-note">Sessions of the newest {Format.count(data.read)} runs.</p> : null}
    </section>
  )
}
