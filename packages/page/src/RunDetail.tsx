/** One run: its state, answer, output, replay, timeline, calls, changes and safety. Live while it is under way. */
"use client"

import { useQuery } from "@tanstack/react-query"
import { type ReactElement, useEffect } from "react"
import { Tab, TabList, TabPanel, Tabs } from "react-aria-components"
import { AnswerPanel } from "./AnswerPanel.tsx"
import { ApprovalTable, PendingApprovals, useApprovals } from "./ApprovalPanel.tsx"
import { CallPanel, useCalls } from "./CallPanel.tsx"
import { CancelRun } from "./CancelRun.tsx"
import { ChangesPanel } from "./ChangesPanel.tsx"
import { CostPanel, limitUses, Uses } from "./CostPanel.tsx"
import * as Format from "./Format.ts"
import { OutputPanel } from "./OutputPanel.tsx"
import { Facts, Loading, OuterLink, Problem, StatusBadge, Untrusted } from "./Parts.tsx"
import { ReplayPanel } from "./ReplayPanel.tsx"
import * as Reasons from "./Reasons.ts"
import { useRunFeed } from "./RunFeedHook.ts"
import { type Approval, isActive, type Run } from "./RunModel.ts"
import { SafetyPanel } from "./SafetyPanel.tsx"
import { keepOfRun, useNow, useSandbox } from "./SandboxProvider.tsx"
import { TimelinePanel } from "./TimelinePanel.tsx"
import { ToolPanel } from "./ToolPanel.tsx"

/** Time between two readings of a run under way, in milliseconds. Its events arrive at once. */
const liveMillis = 2000

/** The tabs of a run, in order. */
export const tabs = ["output", "replay", "timeline", "calls", "tools", "changes", "safety"] as const

export type RunTab = (typeof tabs)[number]

const labels: Readonly<Record<RunTab, string>> = {
  output: "Output",
  replay: "Replay",
  timeline: "Timeline",
  calls: "Model calls",
  tools: "Tools",
  changes: "Changes",
  safety: "Safety"
}

interface RunDetailProps {
  readonly runId: string
  /** The selected tab, if its owner keeps it, such as in a URL. */
  readonly tab?: RunTab
  readonly onTabChange?: (tab: RunTab) => void
}

const Why = ({ run }: { readonly run: Run }) => {
  const words = run.error === undefined ? undefined : Reasons.explain(run.error.reason)
  return words === undefined ? null : (
    <p className={run.status === "failed" ? "cs-why" : "cs-why cs-why-calm"} role="note">
      {words}
    </p>
  )
}

const Head = ({ now, run }: { readonly run: Run; readonly now: number }) => {
  const { mayWrite } = useSandbox()
  const durationMs = Format.between(run.startedAt, run.endedAt, now)
  return (
    <header className="cs-head">
      <div className="cs-bar">
        <h1 className="cs-mono">{run.runId}</h1>
        <StatusBadge status={run.status} error={run.error} />
        {isActive(run) && mayWrite ? <CancelRun runId={run.runId} /> : null}
      </div>
      <Why run={run} />
      <Facts
        facts={[
          ["Agent", (run.agentId ?? run.graphId) && <Untrusted text={run.agentId ?? run.graphId ?? ""} />],
          ["Model", run.model && <Untrusted text={run.model} />],
          ["Repository", run.repository && <Untrusted text={run.repository} />],
          ["Started", Format.time(run.startedAt)],
          ["Duration", isActive(run) || run.endedAt !== undefined ? Format.duration(durationMs) : undefined],
          ["Exit code", run.exitCode === undefined ? undefined : String(run.exitCode)],
          ["Attempt", run.attempt === undefined || run.attempt === 0 ? undefined : String(run.attempt)],
          ["User", run.userId && <Untrusted text={run.userId} />],
          ["Grant", run.grantId && <Untrusted text={run.grantId} />],
          ["Session", run.sessionId && <Untrusted text={run.sessionId} />],
          [
            "Trace",
            run.traceUrl === undefined ? (
              run.traceId && <span className="cs-mono">{run.traceId}</span>
            ) : (
              <OuterLink url={run.traceUrl} />
            )
          ]
        ]}
      />
    </header>
  )
}

const useTools = (run: Run | undefined, isShown: boolean) => {
  const { client, scope } = useSandbox()
  const isLive = run !== undefined && isActive(run)
  return useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "tools", run?.runId, isLive],
    placeholderData: keepOfRun(run?.runId),
    queryFn: ({ signal }) => client.tools(run?.runId ?? "", signal),
    enabled: run !== undefined && isShown,
    refetchInterval: isLive ? 3000 : false
  })
}

const Panels = ({
  onTabChange,
  panels,
  tab
}: {
  readonly panels: Readonly<Record<RunTab, ReactElement>>
  readonly tab: RunTab | undefined
  readonly onTabChange: ((tab: RunTab) => void) | undefined
}) => (
  <Tabs
    className="cs-tabs"
    {...(tab === undefined ? {} : { selectedKey: tab })}
    onSelectionChange={(key) => {
      const chosen = tabs.find((one) => one === key)
      if (chosen !== undefined) onTabChange?.(chosen)
    }}
  >
    <TabList aria-label="Parts of the run">
      {tabs.map((one) => (
        <Tab key={one} id={one}>
          {labels[one]}
        </Tab>
      ))}
    </TabList>
    {tabs.map((one) => (
      <TabPanel key={one} id={one}>
        {panels[one]}
      </TabPanel>
    ))}
  </Tabs>
)

const Tools = ({
  approvals,
  query: { data, error, refetch }
}: {
  readonly approvals: ReadonlyArray<Approval>
  readonly query: Pick<ReturnType<typeof useTools>, "data" | "error" | "refetch">
}) => {
  if (error !== null) return <Problem error={error} onRetry={refetch} />
  if (data === undefined) return <Loading what="tools" />
  return (
    <>
      <ToolPanel tools={data.tools} isTruncated={data.truncated} isElsewhere={data.isElsewhere === true} />
      <ApprovalTable approvals={approvals} />
    </>
  )
}

export const RunDetail = ({ onTabChange, runId, tab }: RunDetailProps): ReactElement => {
  const { client, scope } = useSandbox()
  const {
    data: run,
    error,
    refetch
  } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "run", runId],
    queryFn: ({ signal }) => client.run(runId, signal),
    refetchInterval: ({ state }) => (state.data !== undefined && isActive(state.data) ? liveMillis : false)
  })
  const feed = useRunFeed(runId)
  const isLive = run !== undefined && isActive(run)
  const now = useNow(isLive)
  // Only what is open is asked for: the server reads the audit and the journal of the run for it.
  const isShown = (...shown: ReadonlyArray<RunTab>) => tab === undefined || shown.includes(tab)
  const calls = useCalls(runId, isLive, isShown("calls", "timeline"))
  const tools = useTools(run, isShown("tools", "timeline"))
  const asked = useApprovals(runId, isLive, feed.approvals)
  // The last event arrives before the next reading of the record.
  useEffect(() => {
    if (feed.connection === "ended") void refetch()
  }, [feed.connection, refetch])
  if (run === undefined)
    return error === null ? <Loading what="run" /> : <Problem error={error} onRetry={refetch} />
  const durationMs = Format.between(run.startedAt, run.endedAt, now)
  const panels: Readonly<Record<RunTab, ReactElement>> = {
    output: <OutputPanel run={run} feed={feed} />,
    replay: <ReplayPanel run={run} />,
    timeline: (
      <TimelinePanel
        now={now}
        source={{
          run,
          feed,
          calls: calls.data?.pages.flatMap((page) => page.calls) ?? [],
          tools: isLive ? [] : (tools.data?.tools ?? [])
        }}
      />
    ),
    calls: <CallPanel runId={runId} query={calls} />,
    tools: <Tools query={tools} approvals={asked.approvals} />,
    changes: <ChangesPanel run={run} />,
    safety: <SafetyPanel run={run} />
  }
  return (
    <article className="cs-detail" aria-label={`Run ${runId}`}>
      <Head run={run} now={now} />
      <PendingApprovals approvals={asked.approvals} />
      {/* Below the calls that wait, so that it moves none of their buttons. */}
      {asked.error === null ? null : <Problem error={asked.error} onRetry={asked.refetch} />}
      {error === null ? null : <Problem error={error} onRetry={refetch} />}
      <AnswerPanel run={run} />
      <div className="cs-cards">
        <CostPanel run={run} />
        <section className="cs-card" aria-label="Limits">
          <h2>Limits and peaks</h2>
          <Uses uses={limitUses(run, durationMs)} />
        </section>
      </div>
      <Panels panels={panels} tab={tab} onTabChange={onTabChange} />
    </article>
  )
}
