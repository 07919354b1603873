#!/usr/local/bin/node
// cogni-agent: minimal agent. Calls the model once, reads the stream to its end, and prints one line, the envelope:
// {"payloads":[{"text"}],"meta":{"durationMs","error","model","usage"}}.
//
// Exits with 0 if the answer is complete. Otherwise exits with 1: the envelope then contains the text so far, and the
// reason is in `meta.error` and on stderr.
// Environment: COGNI_MODEL, COGNI_MESSAGES (file), OPENAI_API_BASE, COGNI_TIMEOUT_SECONDS.

import { readFileSync } from "node:fs"
import { request } from "node:http"
import { StringDecoder } from "node:string_decoder"

const began = performance.now()
const answer = {
  text: "",
  model: process.env.COGNI_MODEL || null,
  usage: undefined,
  finishReason: null,
  done: false
}

class AgentError extends Error {
  constructor(code, message) {
    super(message)
    this.code = code
  }
}

// ----------------------------------------------------------------------------- input

function readMessages() {
  const explicit = process.env.COGNI_MESSAGES
  const places = explicit ? [explicit] : ["/workspace/.cogni/messages.json", "/cogni/messages.json"]
  for (const place of places) {
    let source
    try {
      source = readFileSync(place, "utf8")
    } catch (error) {
      if (error.code === "ENOENT" && place !== places.at(-1)) continue
      throw new AgentError(
        "no_messages",
        `Cannot read the messages at ${places.join(" or ")}: ${error.message}`
      )
    }
    let messages
    try {
      messages = JSON.parse(source)
    } catch (error) {
      throw new AgentError("bad_messages", `${place} is not JSON: ${error.message}`)
    }
    const isMessage = (message) => typeof message?.role === "string" && message.content !== undefined
    if (!Array.isArray(messages) || messages.length === 0 || !messages.every(isMessage)) {
      throw new AgentError("bad_messages", `${place} is not a list of {role, content}`)
    }
    return messages
  }
}

function completionsUrl() {
  const base = process.env.OPENAI_API_BASE || "http://localhost:8080"
  let url
  try {
    url = new URL(base.replace(/\/+$/, "").replace(/\/v1$/, "") + "/v1/chat/completions")
  } catch {
    throw new AgentError("bad_base", `OPENAI_API_BASE is not a URL: ${base}`)
  }
  if (url.protocol !== "http:") {
    throw new AgentError(
      "bad_base",
      `OPENAI_API_BASE must be an http URL, because the sandbox reaches its model locally: ${base}`
    )
  }
  return url
}

const seconds = Number(process.env.COGNI_TIMEOUT_SECONDS)
const deadline = seconds > 0 ? AbortSignal.timeout(seconds * 1000) : undefined

// ---------------------------------------------------------------------------- output

/** Extracts the error message of an OpenAI-compatible server, or of a proxy in front of it, in any of their formats. */
function errorText(body) {
  const error = body?.error ?? body
  if (typeof error === "string") return error
  return error?.message ?? error?.detail ?? body?.message ?? body?.detail ?? JSON.stringify(body)
}

const excerpt = (text) => {
  const flat = text.replace(/\s+/g, " ").trim()
  return flat.length > 300 ? `${flat.slice(0, 300)}…` : flat
}

function takeChunk(chunk) {
  if (chunk === null || typeof chunk !== "object") {
    throw new AgentError(
      "bad_answer",
      `The model sent a chunk that is not a completion: ${excerpt(JSON.stringify(chunk))}`
    )
  }
  if (chunk.error)
    throw new AgentError("model_error", `The model failed: ${excerpt(String(errorText(chunk)))}`)
  if (chunk.model) answer.model = chunk.model
  if (chunk.usage) answer.usage = chunk.usage
  const choice = chunk.choices?.[0]
  const content = (choice?.delta ?? choice?.message)?.content
  if (typeof content === "string") answer.text += content
  if (choice?.finish_reason) answer.finishReason = choice.finish_reason
}

function takeEvent(data) {
  if (data.trim() === "[DONE]") {
    answer.done = true
    return
  }
  let chunk
  try {
    chunk = JSON.parse(data)
  } catch {
    throw new AgentError(
      "bad_answer",
      `The model's stream contains an event that is not JSON: ${excerpt(data)}`
    )
  }
  takeChunk(chunk)
}

/** Reads server-sent events: any line ending, `data` over several lines, chunks split anywhere, even in a character. */
async function readEvents(response) {
  const decoder = new StringDecoder("utf8")
  let pending = ""
  let data = []
  const takeLine = (line) => {
    if (line === "") {
      if (data.length > 0) takeEvent(data.join("\n"))
      data = []
    } else if (line.startsWith("data:")) {
      data.push(line.slice(line[5] === " " ? 6 : 5))
    } else if (line.startsWith("{")) {
      // Some servers end the stream with a bare error object.
      takeEvent(line)
    }
  }
  for await (const bytes of response) {
    pending += decoder.write(bytes)
    // A carriage return at the end of a chunk can be the first half of a line ending.
    const lines = pending.split(/\r\n|\n|\r(?!$)/)
    pending = lines.pop()
    for (const line of lines) takeLine(line)
    if (answer.done) return
  }
  for (const line of (pending + decoder.end()).split(/\r\n|\r|\n/)) takeLine(line)
  takeLine("")
}

async function readText(response, limit = 16 * 1024 * 1024) {
  const parts = []
  let size = 0
  for await (const part of response) {
    size += part.length
    if (size > limit) throw new AgentError("bad_answer", `The model answered with more than ${limit} bytes`)
    parts.push(part)
  }
  return Buffer.concat(parts).toString("utf8")
}

// ------------------------------------------------------------------------------ call

// Uses node:http instead of fetch: it is already loaded, and has no built-in time-out that would cut off a slow model.
function post(url, body) {
  return new Promise((resolve, reject) => {
    const call = request(url, {
      method: "POST",
      headers: {
        accept: "text/event-stream, application/json",
        "content-type": "application/json",
        "content-length": Buffer.byteLength(body)
      },
      agent: false,
      signal: deadline
    })
    call.once("response", resolve)
    call.on("error", reject)
    call.end(body)
  })
}

async function ask() {
  const body = { messages: readMessages(), stream: true, stream_options: { include_usage: true } }
  if (answer.model) body.model = answer.model
  const response = await post(completionsUrl(), JSON.stringify(body))
  const type = response.headers["content-type"] ?? ""
  const isSuccess = response.statusCode >= 200 && response.statusCode < 300

  if (isSuccess && type.includes("text/event-stream")) {
    await readEvents(response)
    if (!answer.done && !answer.finishReason) {
      throw new AgentError("incomplete", "The model's stream ended before the answer was complete")
    }
    return
  }

  const text = await readText(response)
  let json
  try {
    json = JSON.parse(text)
  } catch {
    const code = isSuccess ? "bad_answer" : `http_${response.statusCode}`
    throw new AgentError(
      code,
      `The model answered ${response.statusCode} with ${type || "no content type"}, not JSON: ${excerpt(text)}`
    )
  }
  if (!isSuccess) {
    throw new AgentError(
      `http_${response.statusCode}`,
      `The model answered ${response.statusCode}: ${excerpt(String(errorText(json)))}`
    )
  }
  takeChunk(json)
  if (typeof json.choices?.[0]?.message?.content !== "string") {
    throw new AgentError("bad_answer", `The model's answer contains no message: ${excerpt(text)}`)
  }
}

function explain(error) {
  if (error instanceof AgentError) return { code: error.code, message: error.message }
  const soFar = answer.text ? ` after ${answer.text.length} characters of the answer` : ""
  if (deadline?.aborted) {
    return { code: "timeout", message: `The model did not finish within ${seconds} s${soFar}` }
  }
  const cause = error.errors?.[0] ?? error
  if (cause.code === "ECONNREFUSED") {
    return { code: "unreachable", message: "The model is unreachable: the connection was refused" }
  }
  if (["ECONNRESET", "EPIPE", "ERR_STREAM_PREMATURE_CLOSE"].includes(cause.code)) {
    return { code: "connection_lost", message: `The connection to the model was lost${soFar}` }
  }
  return { code: "agent_failed", message: `${cause.message}${soFar}` }
}

let failure = null
try {
  await ask()
} catch (error) {
  failure = explain(error)
  process.stderr.write(`cogni-agent: ${failure.message}\n`)
}
const meta = {
  durationMs: Math.round(performance.now() - began),
  error: failure,
  model: answer.model,
  usage: answer.usage
}
const envelope = JSON.stringify({ payloads: [{ text: answer.text }], meta })
process.stdout.write(`${envelope}\n`, () => process.exit(failure ? 1 : 0))
