import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as NginxRun from "../harness/NginxRun.ts"

layer(NginxRun.layer(), { excludeTestServices: true })("NginxLlmProxy, on Docker", (it) => {
  it.effect("smoke", () =>
    Effect.gen(function* () {
      const run = yield* NginxRun.NginxRun
      console.log((yield* run.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")).text)
      console.log((yield* run.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-Evil: 1\r\n\r\n{}")).text)
      console.log((yield* run.send("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-Evil: 1\r\n\r\n{}")).text)
      console.log(yield* run.upstream.received)
      console.log(yield* run.endpoint.traffic)
      assert.isTrue(true)
    }))
})
