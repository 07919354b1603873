/** The model calls of a run, with tokens and cost, and with their request and answer if the host keeps bodies. */
"use client"

import { useInfiniteQuery, useQuery } from "@tanstack/react-query"
import { type ReactElement, useState } from "react"
import {
  Button,
  Cell,
  Column,
  Dialog,
  DialogTrigger,
  Heading,
  Modal,
  ModalOverlay,
  Row,
  Tab,
  TabList,
  TabPanel,
  Table,
  TableBody,
  TableHeader,
  Tabs
} from "react-aria-components"
import { ApiProblem } from "./ApiProblem.ts"
import * as Format from "./Format.ts"
import { Empty, Loading, Problem, Untrusted } from "./Parts.tsx"
import type { Call, Tool } from "./RunModel.ts"
import { useSandbox } from "./SandboxProvider.tsx"

/** Reads the calls of a run, again while it is under way. */
export const useCalls = (runId: string, isLive: boolean) => {
  const { client, scope } = useSandbox()
  return useInfiniteQuery({
    queryKey: ["@cogni/sandbox-page", scope, "calls", runId],
    queryFn: ({ pageParam, signal }) => client.calls(runId, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next }) => next,
    refetchInterval: isLive ? 3000 : false
  })
}

/** JSON with line breaks, and any other text as it is. */
const pretty = (text: string): string => {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2)
  } catch {
    return text
  }
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
    return (
      <Empty>{`This ${which} was not kept. A host keeps bodies only if its audit is configured to.`}</Empty>
    )
  if (error !== null) return <Problem error={error} />
  if (data === undefined) return <Loading what={which} />
  return (
    <>
      <Untrusted isBlock text={data.isCut ? data.text : pretty(data.text)} />
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

export const CallPanel = ({
  query: { data, error, fetchNextPage, hasNextPage, refetch },
  runId
}: {
  readonly runId: string
  readonly query: ReturnType<typeof useCalls>
}): ReactElement => {
  const calls = data?.pages.flatMap((page) => page.calls) ?? []
  const total = data?.pages.at(-1)?.callsTotal ?? 0
  if (error !== null) return <Problem error={error} onRetry={refetch} />
  if (data === undefined) return <Loading what="calls" />
  if (calls.length === 0) return <Empty>The run has not called a model.</Empty>
  return (
    <div className="cs-panel">
      <div className="cs-scroll">
        <Table aria-label="Model calls" className="cs-table">
          <TableHeader>
            <Column isRowHeader>Time</Column>
            <Column>Call</Column>
            <Column>Model</Column>
            <Column>Result</Column>
            <Column className="cs-figure">Takes</Column>
            <Column className="cs-figure">Tokens in</Column>
            <Column className="cs-figure">Tokens out</Column>
            <Column className="cs-figure">Cost</Column>
            <Column>Bodies</Column>
          </TableHeader>
          <TableBody>
            {calls.map((call) => (
              <Row key={call.requestId} id={call.requestId}>
                <Cell>{Format.time(call.at)}</Cell>
                <Cell>
                  <Untrusted text={`${call.method} ${call.path}`} />
                </Cell>
                <Cell>{call.model === undefined ? Format.unknown : <Untrusted text={call.model} />}</Cell>
                <Cell>
                  <span className={(call.status ?? 0) >= 400 ? "cs-bad-text" : ""}>{resultOf(call)}</span>
                </Cell>
                <Cell className="cs-figure">{Format.duration(call.durationMs)}</Cell>
                <Cell className="cs-figure">{Format.count(call.usage?.inputTokens)}</Cell>
                <Cell className="cs-figure">{Format.count(call.usage?.outputTokens)}</Cell>
                <Cell className="cs-figure">
                  {Format.usd(call.cost?.costUsd ?? call.usage?.costUsd)}
                  {call.cost === undefined ? null : <span className="cs-note"> {call.cost.state}</span>}
                </Cell>
                <Cell>
                  {call.callId === undefined ? Format.unknown : <Bodies runId={runId} callId={call.callId} />}
                </Cell>
              </Row>
            ))}
          </TableBody>
        </Table>
      </div>
      {hasNextPage ? (
        <Button className="cs-button" onPress={() => void fetchNextPage()}>
          More calls
        </Button>
      ) : total > calls.length ? (
        <p className="cs-note">
          The first {Format.count(calls.length)} of {Format.count(total)} calls. The audit of the run has all
          of them.
        </p>
      ) : null}
    </div>
  )
}

/** Tools of a run that has ended, as the audit or the agent says. */
export const ToolPanel = ({
  isTruncated,
  tools
}: {
  readonly tools: ReadonlyArray<Tool>
  readonly isTruncated: boolean
}): ReactElement => {
  const [open, setOpen] = useState<string>()
  if (tools.length === 0) return <Empty>The run has not called a tool.</Empty>
  return (
    <div className="cs-panel">
      <p className="cs-note">
        Calls of host tools are from the audit. Calls of the agent's own tools are what the agent reported.
      </p>
      <div className="cs-scroll">
        <Table aria-label="Tool calls" className="cs-table">
          <TableHeader>
            <Column isRowHeader>Tool</Column>
            <Column>Source</Column>
            <Column>Time</Column>
            <Column>Result</Column>
            <Column>Content</Column>
          </TableHeader>
          <TableBody dependencies={[open]}>
            {tools.map((tool, index) => {
              const id = tool.toolCallId ?? String(index)
              return (
                <Row key={`${id}/${index}`} id={`${id}/${index}`}>
                  <Cell>
                    <Untrusted text={tool.tool} />
                  </Cell>
                  <Cell>{tool.source}</Cell>
                  <Cell>{Format.time(tool.at)}</Cell>
                  <Cell>
                    {tool.outcome ??
                      (tool.isError === true ? "failed" : tool.endedAt === undefined ? "under way" : "ok")}
                  </Cell>
                  <Cell>
                    {tool.arguments === undefined ? (
                      Format.unknown
                    ) : open === `${id}/${index}` ? (
                      <Untrusted isBlock text={`${pretty(tool.arguments)}\n\n${tool.result ?? ""}`} />
                    ) : (
                      <Button
                        className="cs-button cs-quiet"
                        aria-label={`Show content of call ${index + 1}`}
                        onPress={() => setOpen(`${id}/${index}`)}
                      >
                        Show
                      </Button>
                    )}
                  </Cell>
                </Row>
              )
            })}
          </TableBody>
        </Table>
      </div>
      {isTruncated ? <p className="cs-note">There are more calls than are listed.</p> : null}
    </div>
  )
}
