/** The replay of a run: its recording in a terminal, with a seek bar. A run under way has a recording until now. */
"use client"

import { useQuery } from "@tanstack/react-query"
import { type ReactElement, useEffect, useMemo, useState } from "react"
import { Button, ToggleButton, ToggleButtonGroup } from "react-aria-components"
import { Choice } from "./FilterBar.tsx"
import * as Format from "./Format.ts"
import { Empty, Loading, Problem } from "./Parts.tsx"
import * as Recording from "./Recording.ts"
import * as Replay from "./Replay.ts"
import { isActive, type Run } from "./RunModel.ts"
import { useSandbox } from "./SandboxProvider.tsx"
import { Terminal } from "./Terminal.tsx"
import * as VisibleText from "./VisibleText.ts"

/** Time between two renderings of a replay, in milliseconds. */
const renderMillis = 50

/** Choices of the longest pause, in seconds. */
const pauses = [
  ["1", "At most 1 s"],
  ["2", "At most 2 s"],
  ["10", "At most 10 s"]
] as const

const pauseDefault = "2"

/** Plays a recording as long as it is shown. */
const useReplay = (recording: Recording.Recording) => {
  const [replay, setReplay] = useState(Replay.start)
  const { isPlaying } = replay
  useEffect(() => {
    if (!isPlaying) return
    let before = performance.now()
    const timer = setInterval(() => {
      const now = performance.now()
      const millis = now - before
      before = now
      setReplay((one) => Replay.passed(one, millis, recording))
    }, renderMillis)
    return () => clearInterval(timer)
  }, [isPlaying, recording])
  return [replay, setReplay] as const
}

const Markers = ({
  markers,
  onSeek
}: {
  readonly markers: ReadonlyArray<Recording.Marker>
  readonly onSeek: (at: number) => void
}) => (
  <ol className="cs-markers" aria-label="Stages">
    {markers.map(({ at, label }, index) => (
      <li key={index}>
        <Button className="cs-button cs-quiet" onPress={() => onSeek(at)}>
          <span className="cs-figure">{Format.timecode(at)}</span> {VisibleText.line(label, 80)}
        </Button>
      </li>
    ))}
  </ol>
)

interface ControlsProps {
  readonly recording: Recording.Recording
  readonly replay: Replay.Replay
  readonly onChange: (change: (replay: Replay.Replay) => Replay.Replay) => void
}

const SeekBar = ({ onChange, recording, replay }: ControlsProps) => {
  const time = `${Format.timecode(replay.at)} of ${Format.timecode(recording.durationMs)}`
  return (
    <div className="cs-bar">
      <Button
        className="cs-button cs-primary"
        onPress={() => onChange((one) => Replay.toggled(one, recording))}
      >
        {replay.isPlaying ? "Pause" : "Play"}
      </Button>
      <input
        className="cs-seek"
        type="range"
        aria-label="Time"
        aria-valuetext={time}
        min={0}
        {...Replay.seekBarOf(replay.at, recording)}
        onChange={({ currentTarget }) => {
          const at = Number(currentTarget.value)
          onChange((one) => Replay.sought(one, at, recording))
        }}
      />
      <span className="cs-figure">{time}</span>
    </div>
  )
}

const SpeedButtons = ({ onChange, replay }: Omit<ControlsProps, "recording">) => (
  <ToggleButtonGroup
    aria-label="Speed"
    className="cs-toggle"
    selectionMode="single"
    disallowEmptySelection
    selectedKeys={[replay.speed]}
    onSelectionChange={(keys) => {
      const speed = Replay.speeds.find((one) => keys.has(one)) ?? "1"
      onChange((one) => ({ ...one, speed }))
    }}
  >
    {Replay.speeds.map((speed) => (
      <ToggleButton key={speed} id={speed}>
        {speed}×
      </ToggleButton>
    ))}
  </ToggleButtonGroup>
)

const limitedBy = (recording: Recording.Recording, pause: string | undefined) =>
  pause === undefined ? recording : Recording.limited(recording, Number(pause) * 1000)

const Player = ({ recording: whole }: { readonly recording: Recording.Recording }) => {
  const [pause, setPause] = useState<string | undefined>(pauseDefault)
  const recording = useMemo(() => limitedBy(whole, pause), [whole, pause])
  const [replay, setReplay] = useReplay(recording)
  const count = Recording.countAt(recording, replay.at)
  const pieces = useMemo(() => recording.pieces.slice(0, count), [recording, count])
  return (
    <>
      <SeekBar recording={recording} replay={replay} onChange={setReplay} />
      <div className="cs-bar">
        <SpeedButtons replay={replay} onChange={setReplay} />
        <Choice
          label="Pauses"
          allLabel="As recorded"
          value={pause}
          choices={pauses}
          onChange={(chosen) => {
            setPause(chosen)
            const after = limitedBy(whole, chosen)
            setReplay((one) => ({ ...one, at: Recording.translated(one.at, recording, after) }))
          }}
        />
      </div>
      {/* A new terminal has no mode that later output has set. */}
      <Terminal key={replay.beginnings} label="Replay of the run" pieces={pieces} />
      <Markers
        markers={recording.markers}
        onSeek={(at) => setReplay((one) => Replay.sought(one, at, recording))}
      />
    </>
  )
}

export const ReplayPanel = ({ run }: { readonly run: Run }): ReactElement => {
  const { client, scope } = useSandbox()
  const isLive = isActive(run)
  const { data, error, isFetching, refetch } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "recording", run.runId, isLive],
    queryFn: ({ signal }) => client.recording(run.runId, signal),
    staleTime: Infinity
  })
  const problem = error === null ? null : <Problem error={error} onRetry={refetch} />
  if (data === undefined) return problem ?? <Loading what="recording" />
  return (
    <div className="cs-panel">
      {problem}
      {isLive ? (
        <div className="cs-bar">
          <span className="cs-note">The run is under way. This is its recording until now.</span>
          <Button className="cs-button" isPending={isFetching} onPress={() => void refetch()}>
            Read again
          </Button>
        </div>
      ) : null}
      {data.pieces.length === 0 ? <Empty>The run wrote nothing.</Empty> : <Player recording={data} />}
    </div>
  )
}
