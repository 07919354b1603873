/** Recorded output of real agents, and variants of it: split anywhere, in another order, with noise around it. */
import { assert } from "@effect/vitest"
import { Result, Schema } from "effect"
import { readdirSync, readFileSync } from "node:fs"
import type {
  AgentAnswer,
  AgentEvent,
  AgentFailed,
  AgentReader
} from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"

const folder = new URL("recorded/", import.meta.url)

/** One recording: `recorded/<agent>.<scene>.jsonl`. */
export const recorded = (agent: string, scene: string): string =>
  readFileSync(new URL(`${agent}.${scene}.jsonl`, folder), "utf8")

/** Every recording of an agent. */
export const recordings = (agent: string): ReadonlyArray<string> =>
  readdirSync(folder)
    .filter((file) => file.startsWith(`${agent}.`))
    .toSorted()
    .map((file) => readFileSync(new URL(file, folder), "utf8"))

export interface Heard {
  readonly events: ReadonlyArray<AgentEvent>
  readonly end: Result.Result<AgentAnswer, AgentFailed>
}

export const hear = (reader: AgentReader, pieces: Iterable<string>): Heard => {
  const events: Array<AgentEvent> = []
  let now = reader
  for (const piece of pieces) {
    const [heard, next] = now.feed(piece)
    for (const event of heard) events.push(event)
    now = next
  }
  return { events, end: now.end() }
}

export const answerOf = ({ end }: Heard): AgentAnswer =>
  Result.isSuccess(end) ? end.success : assert.fail(end.failure.message)

export const failureOf = ({ end }: Heard): AgentFailed =>
  Result.isFailure(end) ? end.failure : assert.fail(`it answered ${end.success.text}`)

export const textOf = ({ events }: Heard): string =>
  events.map((event) => (event.type === "text_delta" ? event.delta : "")).join("")

/** Tools in order, as `start NAME` and `result` or `error`. */
export const toolsOf = ({ events }: Heard): ReadonlyArray<string> => {
  const names = new Map<string, string>()
  return events.flatMap((event) => {
    if (event.type === "tool_call_start") {
      names.set(event.toolCallId, event.toolName)
      return [`start ${event.toolName}`]
    }
    return event.type === "tool_call_result"
      ? [`${event.isError === true ? "error" : "result"} ${names.get(event.toolCallId) ?? "of nothing"}`]
      : []
  })
}

const isEvent = Schema.is(AiEvent)

/** Positions of cuts, or of lines and their order: fractions, so that they fit any text. */
export const Places = Schema.Array(Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1 }))).check(
  Schema.isMaxLength(40)
)

/** Asserts that the reader reads the same, however the text is split. */
export const sameHoweverCut = (reader: AgentReader, text: string, places: typeof Places.Type): void => {
  const cuts = [0, ...places.map((place) => Math.floor(place * text.length)), text.length].toSorted(
    (a, b) => a - b
  )
  const pieces = cuts.slice(1).map((end, index) => text.slice(cuts[index], end))
  assert.deepStrictEqual(hear(reader, pieces), hear(reader, [text]))
}

/** Asserts that the reader returns valid events and an end, without throwing. */
export const neverThrows = (reader: AgentReader, pieces: Iterable<string>): Heard => {
  const heard = hear(reader, pieces)
  for (const event of heard.events) assert.isTrue(isEvent(event), JSON.stringify(event))
  return heard
}

/** Lines of a recording, some missing, some repeated, in any order, and some cut. */
export const shuffled = (text: string, places: typeof Places.Type): string => {
  const lines = text.trimEnd().split("\n")
  return places
    .map((place, index) => {
      const line = lines[Math.min(lines.length - 1, Math.floor(place * lines.length))]!
      return index % 5 === 4 ? line.slice(0, Math.floor(place * line.length)) : line
    })
    .join("\n")
}

/** Replaces every value of every line, one at a time, with each of the strange ones. */
export function* mutants(text: string): Generator<string> {
  const strange: ReadonlyArray<unknown> = [null, 0, -1, "", [], {}, true]
  for (const line of text.trimEnd().split("\n")) {
    const whole = JSON.parse(line) as Record<string, unknown>
    for (const [key, value] of Object.entries(whole)) {
      for (const instead of strange) yield JSON.stringify({ ...whole, [key]: instead })
      if (typeof value !== "object" || value === null || Array.isArray(value)) continue
      for (const inner of Object.keys(value))
        for (const instead of strange)
          yield JSON.stringify({ ...whole, [key]: { ...value, [inner]: instead } })
    }
  }
}
