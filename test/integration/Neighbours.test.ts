/**
 * Two sealed runs of one host process on real Docker: one floods its gateway from inside, the other makes normal calls.
 *
 * The tests compare counts and order. They compare times only with an allowance for the speed of the machine.
 */
import { assert, layer } from "@effect/vitest"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import { Context, Duration, Effect, Fiber, Layer, Redacted } from "effect"
import * as Images from "../harness/Images.ts"
import * as ModelApi from "../harness/ModelApi.ts"
import * as Pace from "../harness/Pace.ts"
import * as RunHarness from "../harness/RunHarness.ts"

class Upstream extends Context.Service<Upstream, ModelApi.ModelApi>()("test/NeighboursUpstream") {
  static readonly layer = Layer.effect(Upstream, ModelApi.acquire)
}

const proxy = (carrier: "directory" | "container") =>
  Layer.unwrap(
    Effect.map(Upstream, ({ url }) =>
      GatewayLlmProxy.layer({
        url,
        key: Redacted.make("sk-planted-2c81-beside-a-flood"),
        carrier,
        image: Images.gateway
      }).pipe(Layer.provide(UsageObserver.layerNone))
    )
  )

/** Writes pipelined health checks and malformed requests as fast as one CPU can, until it is killed. */
const flood = `
const net = require("node:net")
const health = Buffer.from("GET /health HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".repeat(500))
const tool = '{"messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":[99999999999999999'
const body = tool + ",1".repeat(90000) + "]}}]}"
const heavy = Buffer.from("POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n" +
  "Content-Length: " + body.length + "\\r\\n\\r\\n" + body)
const open = (bytes) => {
  const socket = net.connect("/llm-sock/llm.sock")
  const more = () => { while (!socket.destroyed && socket.write(bytes)); socket.once("drain", more) }
  socket.on("connect", more).on("data", () => {}).on("error", () => {})
  socket.on("close", () => setTimeout(() => open(bytes), 1))
}
for (let index = 0; index < 32; index++) open(index % 2 === 0 ? health : heavy)
`

const calls = 20

/** Makes `calls` calls in sequence, and prints the status of each. */
const victim = `
const ask = () => fetch("http://localhost:8080/v1/chat/completions", { method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ messages: [{ role: "user", content: "hi" }] }) })
const all = async () => {
  for (let index = 0; index < ${calls}; index++) {
    const answer = await ask()
    await answer.text()
    console.log(answer.status)
  }
}
void all()
`

const floodSecondsMax = 5

const specOf = (model: string, script: string, runtimeSecondsMax: number) => ({
  image: Images.runtime,
  argv: ["node", "-e", script] as const,
  limits: { runtimeSecondsMax, cpusMax: 1 },
  llm: { model, identity: { billingAccountId: `acct-${model}` } }
})

for (const carrier of ["directory", "container"] as const) {
  layer(RunHarness.layer(proxy(carrier)).pipe(Layer.provideMerge(Upstream.layer)), {
    excludeTestServices: true,
    timeout: Pace.hangMillis
  })(`a run beside a flood, sockets in a ${carrier}`, (it) => {
    it.effect("receives every answer, and the flood ends at its own time limit", () =>
      Effect.gen(function* () {
        const { run } = yield* SandboxRunner.SandboxRunner
        const flooding = yield* Effect.forkChild(
          Effect.flip(run(specOf("flood", flood, floodSecondsMax))).pipe(Effect.timed),
          { startImmediately: true }
        )
        const result = yield* run(specOf("victim", victim, 600))
        assert.deepStrictEqual(
          result.output.stdout.text.trim().split("\n"),
          Array.from({ length: calls }, () => "200"),
          result.output.stderr.text
        )
        const [took, error] = yield* Fiber.join(flooding)
        assert.strictEqual(error.reason._tag, "TimedOut", error.message)
        // Allows one second, and the time to start and remove a container.
        assert.isBelow(Duration.toMillis(took) - floodSecondsMax * 1000, Pace.allowed(3000))
      })
    )
  })
}
