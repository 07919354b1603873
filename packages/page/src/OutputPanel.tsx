/** The output of a run: live from its events, and from its record when it has ended. As a terminal, or as text. */
"use client"

import { useQuery } from "@tanstack/react-query"
import { type ReactElement, useMemo, useState } from "react"
import { ToggleButton, ToggleButtonGroup } from "react-aria-components"
import * as Format from "./Format.ts"
import { Empty, Loading, Problem } from "./Parts.tsx"
import type { Channel, Feed, Piece } from "./RunFeed.ts"
import { isActive, type Run } from "./RunModel.ts"
import { outputBytesMax } from "./RunsClient.ts"
import { useSandbox } from "./SandboxProvider.tsx"
import { Terminal } from "./Terminal.tsx"
import * as VisibleText from "./VisibleText.ts"

const Body = ({
  channel,
  isPlain,
  pieces
}: {
  readonly channel: Channel
  readonly isPlain: boolean
  readonly pieces: ReadonlyArray<Piece>
}) => {
  if (!isPlain) return <Terminal key={channel} label={`${channel} of the run`} pieces={pieces} />
  const text = pieces.map(({ text }) => text).join("")
  // The end of an output matters most.
  const { blockCharsMax } = VisibleText
  return (
    <pre className="cs-block cs-output" tabIndex={0} role="group" aria-label={`${channel} of the run`}>
      {text.length > blockCharsMax ? "…\n" : ""}
      {VisibleText.block(text.slice(-blockCharsMax))}
    </pre>
  )
}

const Recorded = ({
  channel,
  isPlain,
  runId
}: {
  readonly runId: string
  readonly channel: Channel
  readonly isPlain: boolean
}) => {
  const { client, scope } = useSandbox()
  const { data, error, refetch } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "output", runId, channel],
    queryFn: ({ signal }) => client.output(runId, channel, signal),
    staleTime: Infinity
  })
  const pieces = useMemo(() => (data === undefined ? [] : [{ seq: 1, text: data.text }]), [data])
  if (error !== null) return <Problem error={error} onRetry={refetch} />
  if (data === undefined) return <Loading what="output" />
  if (data.text === "") return <Empty>The run wrote nothing to {channel}.</Empty>
  return (
    <>
      {data.isCut ? <p className="cs-note">Only the last {Format.bytes(outputBytesMax)} are shown.</p> : null}
      <Body channel={channel} isPlain={isPlain} pieces={pieces} />
    </>
  )
}

const connections: Readonly<Record<Feed["connection"], string>> = {
  connecting: "Connecting…",
  live: "Live",
  waiting: "Reconnecting…",
  ended: "Ended",
  failed: "Not connected"
}

const sizeOf = (run: Run, channel: Channel) =>
  channel === "stdout" ? run.output?.stdoutBytes : run.output?.stderrBytes

export const OutputPanel = ({ feed, run }: { readonly run: Run; readonly feed: Feed }): ReactElement => {
  const [channel, setChannel] = useState<Channel>("stdout")
  const [isPlain, setPlain] = useState(false)
  const isLive = isActive(run)
  const { connection, isTruncated, problem } = feed
  const kept = channel === "stdout" ? run.output?.stdoutTruncated : run.output?.stderrTruncated
  const isCut = isLive ? feed.isCut[channel] : kept === true
  return (
    <div className="cs-panel">
      <div className="cs-bar">
        <ToggleButtonGroup
          aria-label="Channel"
          className="cs-toggle"
          selectionMode="single"
          disallowEmptySelection
          selectedKeys={[channel]}
          onSelectionChange={(keys) => setChannel(keys.has("stderr") ? "stderr" : "stdout")}
        >
          <ToggleButton id="stdout">stdout</ToggleButton>
          <ToggleButton id="stderr">stderr</ToggleButton>
        </ToggleButtonGroup>
        <ToggleButton className="cs-button cs-quiet" isSelected={isPlain} onChange={setPlain}>
          Plain text
        </ToggleButton>
        <span className="cs-note">
          {isLive ? null : `${Format.bytes(sizeOf(run, channel))}${isCut ? ", " : ""}`}
          {isCut ? "only the beginning is kept" : ""}
        </span>
        {isLive ? (
          <span className={`cs-live cs-live-${connection}`} role="status">
            {connections[connection]}
          </span>
        ) : null}
      </div>
      {problem === undefined || !isLive ? null : <p className="cs-note">{VisibleText.line(problem)}</p>}
      {isTruncated && isLive ? (
        <p className="cs-note">
          The journal of this run is full. Later output is in its record when it ends.
        </p>
      ) : null}
      {isPlain ? null : (
        <p className="cs-note">
          The agent controls this terminal, and can hide lines in it. Plain text shows all of them.
        </p>
      )}
      {isLive ? (
        <Body channel={channel} isPlain={isPlain} pieces={feed.output[channel].pieces} />
      ) : (
        <Recorded channel={channel} isPlain={isPlain} runId={run.runId} />
      )}
    </div>
  )
}
