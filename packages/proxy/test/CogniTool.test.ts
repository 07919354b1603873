/** `cogni-tool` of the runtime image, which runs here against a host of the test. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFile } from "node:child_process"
import type { ServerResponse } from "node:http"
import { fileURLToPath } from "node:url"
import { serve } from "../../../test/harness/LocalServer.ts"

const program = fileURLToPath(new URL("../../../images/runtime/tool/cogni-tool.mjs", import.meta.url))

/** Calls a tool at a host that answers with `handle`. */
const called = Effect.fnUntraced(function* (
  handle: (response: ServerResponse, body: string) => void,
  ...argv: ReadonlyArray<string>
) {
  const url = yield* serve((request, response) => {
    const pieces: Array<Buffer> = []
    request.on("data", (piece: Buffer) => pieces.push(piece))
    request.on("end", () => handle(response, Buffer.concat(pieces).toString()))
  })
  return yield* Effect.callback<{ readonly code: unknown; readonly stdout: string; readonly stderr: string }>(
    (resume) => {
      execFile(
        process.execPath,
        [program, "exec", "acme__pay", '{"sum":3}', ...argv],
        { env: { COGNI_TOOL_URL: url } },
        (error, stdout, stderr) => resume(Effect.succeed({ code: error?.code ?? 0, stdout, stderr }))
      )
    }
  )
})

describe("cogni-tool", () => {
  it.live("prints the result of a call", () =>
    Effect.gen(function* () {
      const { code, stdout } = yield* called((response, body) =>
        response.end(JSON.stringify({ ok: true, result: JSON.parse(body) }))
      )
      assert.strictEqual(code, 0)
      assert.deepStrictEqual(JSON.parse(stdout), { tool: "acme__pay", args: { sum: 3 } })
    })
  )

  it.live("reports a time-out as a time-out, and not as a missing host", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* called(() => undefined, "--timeout", "0.2")
      assert.strictEqual(code, 1)
      assert.include(stderr, "timeout: no answer within 0.2 s")
      assert.notInclude(stderr, "no host answers")
    })
  )

  it.live("says that a call may have had its effect if the host ends the connection", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* called((response) => void response.destroy())
      assert.strictEqual(code, 1)
      assert.include(stderr, "may have had its effect")
    })
  )
})
