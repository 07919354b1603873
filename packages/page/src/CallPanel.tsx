/** The model calls of a run, with tokens and cost, and with their request and answer if the host keeps bodies. */
"use client"

import { useInfiniteQuery, useQuery } from "@tanstack/react-query"
import { memo, type ReactElement } from "react"
import {
  Button,
  Dialog,
  DialogTrigger,
  Heading,
  Modal,
  ModalOverlay,
  Tab,
  TabList,
  TabPanel,
  Tabs
} from "react-aria-components"
import { ApiProblem } from "./ApiProblem.ts"
import { DataTable } from "./DataTable.tsx"
import * as Format from "./Format.ts"
import { Empty, Loading, Problem, Untrusted } from "./Parts.tsx"
import type { Call, CallPage } from "./RunModel.ts"
import { keepOfRun, useSandbox } from "./SandboxProvider.tsx"
import * as VisibleText from "./VisibleText.ts"

/** Reads the calls of a run, again while it is under way, and once more from the record of its end. */
export const useCalls = (runId: string, isLive: boolean, isShown = true) => {
  const { client, scope } = useSandbox()
  return useInfiniteQuery({
    queryKey: ["@cogni/sandbox-page", scope, "calls", runId, isLive],
    placeholderData: keepOfRun(runId),
    queryFn: ({ pageParam, signal }) => client.calls(runId, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next }) => next,
    enabled: isShown,
    refetchInterval: isLive ? 3000 : false
  })
}

const Body = ({
  callId,
  runId,
  which
}: {
  readonly runId: string
  readonly callId: string
  readonly which: "request" | "answer"
}) => {
  const { client, scope } = useSandbox()
  const { data, error } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "body", runId, callId, which],
    queryFn: ({ signal }) => client.body(runId, callId, which, signal),
    staleTime: Infinity
  })
  if (error instanceof ApiProblem && error.status === 404)
    return <Empty>{`This ${which} was not kept. A server keeps bodies only with --audit-bodies.`}</Empty>
  if (error !== null) return <Problem error={error} />
  if (data === undefined) return <Loading what={which} />
  return (
    <>
      <Untrusted isBlock text={data.isCut ? data.text : Format.pretty(data.text)} />
      {data.isCut ? <p className="cs-note">The rest is not shown.</p> : null}
    </>
  )
}

const Bodies = ({ callId, runId }: { readonly runId: string; readonly callId: string }) => (
  <DialogTrigger>
    <Button className="cs-button cs-quiet" aria-label={`Show request and answer of call ${callId}`}>
      Show
    </Button>
    <ModalOverlay className="cs-overlay" isDismissable>
      <Modal className="cs-modal cs-wide">
        <Dialog>
          {({ close }) => (
            <>
              <div className="cs-bar">
                <Heading slot="title">Call {callId.slice(0, 60)}</Heading>
                <Button className="cs-button cs-end" onPress={close}>
                  Close
                </Button>
              </div>
              <Tabs className="cs-tabs">
                <TabList aria-label="Bodies">
                  <Tab id="request">Request</Tab>
                  <Tab id="answer">Answer</Tab>
                </TabList>
                <TabPanel id="request">
                  <Body runId={runId} callId={callId} which="request" />
                </TabPanel>
                <TabPanel id="answer">
                  <Body runId={runId} callId={callId} which="answer" />
                </TabPanel>
              </Tabs>
            </>
          )}
        </Dialog>
      </Modal>
    </ModalOverlay>
  </DialogTrigger>
)

const resultOf = ({ outcome, status }: Call): string =>
  status === undefined
    ? "under way"
    : `${status}${outcome === undefined || outcome === "completed" ? "" : `, ${outcome}`}`

const callColumns = [
  { name: "Time" },
  { name: "Call" },
  { name: "Model" },
  { name: "Result" },
  { name: "Takes", isFigure: true },
  { name: "Tokens in", isFigure: true },
  { name: "Tokens out", isFigure: true },
  { name: "Cost", isFigure: true },
  { name: "Bodies" }
]

const cellsOf = (call: Call, runId: string) => [
  Format.time(call.at),
  <Untrusted text={`${call.method} ${call.path}`} />,
  call.model === undefined ? Format.unknown : <Untrusted text={call.model} />,
  <span className={(call.status ?? 0) >= 400 ? "cs-bad-text" : ""}>
    <Untrusted text={resultOf(call)} />
  </span>,
  Format.duration(call.durationMs),
  Format.count(call.usage?.inputTokens),
  Format.count(call.usage?.outputTokens),
  <>
    {Format.usd(call.cost?.costUsd ?? call.usage?.costUsd)}
    {call.cost === undefined ? null : (
      <span className="cs-note">
        {" "}
        <bdi>{VisibleText.line(call.cost.state, 40)}</bdi>
      </span>
    )}
  </>,
  call.callId === undefined ? Format.unknown : <Bodies runId={runId} callId={call.callId} />
]

/** Memoized: a run under way is rendered again each second. */
const CallTable = memo(
  ({ pages, runId }: { readonly pages: ReadonlyArray<CallPage>; readonly runId: string }) => (
    <DataTable
      label="Model calls"
      columns={callColumns}
      rows={pages.flatMap(({ calls }) =>
        calls.map((call) => ({ id: call.requestId, cells: cellsOf(call, runId) }))
      )}
    />
  )
)

export const CallPanel = ({
  query: { data, error, fetchNextPage, hasNextPage, refetch },
  runId
}: {
  readonly runId: string
  readonly query: ReturnType<typeof useCalls>
}): ReactElement => {
  if (error !== null) return <Problem error={error} onRetry={refetch} />
  if (data === undefined) return <Loading what="calls" />
  const listed = data.pages.reduce((sum, { calls }) => sum + calls.length, 0)
  const total = data.pages.at(-1)?.callsTotal ?? 0
  if (listed === 0)
    return (
      <Empty>
        {data.pages.at(-1)?.isElsewhere === true
          ? "Another host has the calls of this run. They are listed here when it has ended."
          : "The run has not called a model."}
      </Empty>
    )
  return (
    <div className="cs-panel">
      <CallTable pages={data.pages} runId={runId} />
      {hasNextPage ? (
        <Button className="cs-button" onPress={() => void fetchNextPage()}>
          More calls
        </Button>
      ) : total > listed ? (
        <p className="cs-note">
          The first {Format.count(listed)} of {Format.count(total)} calls. The audit of the run has all of
          them.
        </p>
      ) : null}
    </div>
  )
}
