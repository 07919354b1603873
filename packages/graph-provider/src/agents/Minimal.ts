/**
 * The agent of the runtime image: one question, one streamed answer, no tools.
 *
 * It prints one line, the envelope of the source documents: `{"payloads":[{"text"}],"meta":{"durationMs","error",…}}`.
 */
import { Option, Schema } from "effect"
import { type Agent, AgentId } from "./Agent.ts"
import { messagesInput } from "./AgentParts.ts"
import { type AgentOutcome, answered, Count, excerpt, failed, unreadable, whole } from "./AgentOutput.ts"

/** All keys. Any other key means that a different program wrote the output. */
const Envelope = Schema.Struct({
  payloads: Schema.NonEmptyArray(Schema.Struct({ text: Schema.String })),
  meta: Schema.Struct({
    durationMs: Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)),
    error: Schema.NullOr(Schema.Struct({ code: Schema.NonEmptyString, message: Schema.String })),
    model: Schema.optionalKey(Schema.NullOr(Schema.String)),
    usage: Schema.optionalKey(Schema.Record(Schema.String, Schema.Unknown))
  })
})

const decodeEnvelope = Schema.decodeUnknownOption(Schema.fromJsonString(Envelope), {
  onExcessProperty: "error"
})
const decodeCount = Schema.decodeUnknownOption(Count)

const parse = (written: string): AgentOutcome => {
  const text = written.trim()
  if (text === "") return unreadable("it wrote nothing")
  const decoded = decodeEnvelope(text)
  if (Option.isNone(decoded)) return unreadable(`its output is not a single envelope: ${excerpt(text)}`)
  const { meta, payloads } = decoded.value
  const said = payloads.map((payload) => payload.text).join("\n")
  if (meta.error !== null) {
    return failed(meta.error.code, meta.error.message, said)
  }
  const input = Option.getOrUndefined(decodeCount(meta.usage?.["prompt_tokens"]))
  const output = Option.getOrUndefined(decodeCount(meta.usage?.["completion_tokens"]))
  return answered(said, {
    usage:
      input === undefined && output === undefined
        ? undefined
        : {
            ...(input === undefined ? {} : { inputTokens: input }),
            ...(output === undefined ? {} : { outputTokens: output })
          }
  })
}

export const minimal: Agent = {
  id: AgentId.make("agent"),
  name: "Minimal agent",
  description:
    "Asks the model once and prints its answer. No tools, no dependency; part of every runtime image.",
  image: "runtime",
  modelApi: "chat-completions",
  capabilities: {
    tools: false,
    streaming: "final",
    toolEvents: false,
    history: "messages",
    personalities: [],
    subagents: "none"
  },
  argv: () => ["cogni-agent"],
  env: () => ({}),
  limits: { runtimeSecondsMax: 120, memoryBytesMax: 512 * 1024 * 1024 },
  inputs: (task) => [messagesInput(task)],
  reader: whole(parse)
}
