// An agent that asks its model once: the task comes on standard input, and the answer goes to standard output.
import { text } from "node:stream/consumers"

const { COGNI_MODEL: model, OPENAI_BASE_URL: url } = process.env

const response = await fetch(`${url}/chat/completions`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({
    model,
    messages: [
      { role: "system", content: "You review changes. Answer in one sentence." },
      { role: "user", content: await text(process.stdin) }
    ]
  })
})

if (response.ok) {
  const { choices } = await response.json()
  console.log(choices[0].message.content)
} else {
  // A nonzero exit code means that there is no answer.
  console.error(`the model answered ${response.status}`)
  process.exitCode = 1
}
