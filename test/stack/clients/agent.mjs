// A program with the official clients that knows nothing of the sandbox. It is bundled, then run in one.
import Anthropic from "@anthropic-ai/sdk"
import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import OpenAI from "openai"

const openai = new OpenAI()
const anthropic = new Anthropic()
const model = process.env.COGNI_MODEL
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] }
const said = {}
const question = { role: "user", content: "What is the weather in Oslo?" }

const chat = async () => {
  const tools = [{ type: "function", function: { name: "weather", parameters } }]
  const first = await openai.chat.completions.create({ model, messages: [question], tools })
  const message = first.choices[0].message
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sunny" }
  const last = await openai.chat.completions.create({ model, messages: [question, message, result], tools })
  said.chat = last.choices[0].message.content
  said.chatUsage = last.usage.total_tokens

  const stream = openai.chat.completions.stream({
    model,
    messages: [question],
    stream_options: { include_usage: true }
  })
  said.chatStream = await stream.finalContent()
  said.chatStreamUsage = (await stream.totalUsage()).total_tokens
  let plain = ""
  for await (const chunk of await openai.chat.completions.create({
    model,
    messages: [question],
    stream: true
  }))
    plain += chunk.choices[0].delta.content ?? ""
  said.chatStreamPlain = plain
  const asked = openai.chat.completions.stream({ model, messages: [question], tools })
  said.chatStreamTool = (
    await asked.finalChatCompletion()
  ).choices[0].message.tool_calls[0].function.arguments
  said.models = (await openai.models.list()).data.map(({ id }) => id)
}

const responses = async () => {
  const tools = [{ type: "function", name: "weather", parameters, strict: false }]
  const first = await openai.responses.create({ model, input: [question], tools })
  const call = first.output[0]
  const last = await openai.responses.create({
    model,
    input: [
      question,
      ...first.output,
      { type: "function_call_output", call_id: call.call_id, output: "sunny" }
    ],
    tools
  })
  said.responses = last.output_text
  said.responsesStream = (await openai.responses.stream({ model, input: "hi" }).finalResponse()).output_text
}

const messages = async () => {
  const tools = [{ name: "weather", input_schema: parameters, cache_control: { type: "ephemeral" } }]
  const first = await anthropic.messages.create({ model, max_tokens: 100, messages: [question], tools })
  const use = first.content[0]
  const result = { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "sunny" }] }
  const turns = [question, { role: "assistant", content: first.content }, result]
  const last = await anthropic.messages.create({ model, max_tokens: 100, messages: turns, tools })
  said.messages = last.content[0].text
  said.messagesStream = await anthropic.messages
    .stream({ model, max_tokens: 100, messages: [question] })
    .finalText()
  const asked = anthropic.messages.stream({ model, max_tokens: 100, messages: [question], tools })
  said.messagesStreamTool = (await asked.finalMessage()).content[0].input
  said.countTokens = (await anthropic.messages.countTokens({ model, messages: [question] })).input_tokens
}

const errors = async () => {
  said.wrongModel = await openai.chat.completions
    .create({ model: "gpt-9", messages: [question] })
    .catch((error) => [error.constructor.name, error.status, error.code])
  said.wrongModelAnthropic = await anthropic.messages
    .create({ model: "gpt-9", max_tokens: 1, messages: [question] })
    .catch((error) => [error.constructor.name, error.status, error.type])
  said.embeddings = await openai.embeddings
    .create({ model, input: "x" })
    .catch((error) => [error.constructor.name, error.status, error.code])
}

const tools = async () => {
  const client = new Client({ name: "agent", version: "1" })
  await client.connect(new StreamableHTTPClientTransport(new URL("http://localhost:8080/mcp")))
  said.mcpTools = (await client.listTools()).tools.map(({ name }) => name)
  const result = await client.callTool({
    name: "core__get_current_time",
    arguments: { timezone: "Europe/Oslo" }
  })
  said.mcpTime = JSON.parse(result.content[0].text).timezone
  said.mcpDenied = (
    await client.callTool({ name: "core__get_current_time", arguments: { nothing: 1 } })
  ).isError
  await client.close()
}

for (const part of [chat, responses, messages, errors, tools]) {
  await part().catch((error) => {
    said[`failed ${part.name}`] = String(error.stack ?? error)
  })
}
console.log(JSON.stringify(said))
