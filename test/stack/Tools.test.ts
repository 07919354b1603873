/** Host tools, called from the sandbox with the image's own program. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import { respond, serve } from "../harness/LocalServer.ts"

/** Fake Prometheus with one answer for every query. */
const prometheus = serve((request, response) => {
  request.resume()
  request.on("end", () =>
    respond(response, 200, { status: "success", data: { resultType: "scalar", result: [1, "42"] } })
  )
})

const time = "core__get_current_time"
const metrics = "core__metrics_query"

layer(CliProcess.layer, { excludeTestServices: true })("cogni-tool in a sandbox", (it) => {
  it.effect("lists, describes and calls the tools of the run, with an exit code for each outcome", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const script = [
        "cogni-tool list",
        `cogni-tool schema ${time} | jq -c '.properties | keys'`,
        `cogni-tool exec ${time} '{"timezone":"Asia/Tokyo"}' | jq -r .timezone`,
        `echo '{"query":"up"}' | cogni-tool exec ${metrics} - | jq -c .result`,
        `cogni-tool exec ${time} '{"timezone":"Nowhere/Else"}'; echo "failed $?"`,
        `cogni-tool exec ${time} nonsense; echo "usage $?"`,
        `cogni-tool; echo "usage $?"`,
        `cogni-tool exec core__other '{}'; echo "denied $?"`
      ].join("\n")
      const ended = yield* cli.run(
        ["run", "--demo", "--tool", time, "--tool", metrics, "--", "sh", "-c", script],
        { env: { COGNI_PROMETHEUS_URL: yield* prometheus } }
      )
      assert.strictEqual(ended.code, 0, ended.stderr)
      const said = ended.stdout.toString().split("\n")
      assert.match(said[0]!, /^core__get_current_time\tread_only\t/u)
      assert.match(said[1]!, /^core__metrics_query\tread_only\t/u)
      assert.deepStrictEqual(said.slice(2, -1), [
        '["timezone"]',
        "Asia/Tokyo",
        '[1,"42"]',
        "failed 1",
        "usage 2",
        "usage 2",
        "denied 3"
      ])
      assert.match(ended.stderr, /validation: .*Nowhere/u)
      assert.match(ended.stderr, /policy_denied: /u)
      const runId = /run-[0-9a-z]{12}/u.exec(ended.stderr)![0]
      const log = readFileSync(join(cli.stateDirectory, "runs", runId, "audit", "audit.jsonl"), "utf8")
      const called = log
        .trimEnd()
        .split("\n")
        .map((line): Record<string, unknown> => JSON.parse(line))
        .filter(({ type }) => type === "tool.called")
      assert.deepStrictEqual(
        called.map(({ outcome, tool }) => `${String(tool)} ${String(outcome)}`),
        [`${time} ok`, `${metrics} ok`, `${time} validation`, "core__other policy_denied"]
      )
    })
  )

  it.effect("fails with 4 and a reason if the run has no model", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const ended = yield* cli.run(["run", "--no-model", "--", "sh", "-c", "cogni-tool list; echo $?"])
      assert.strictEqual(ended.stdout.toString(), "4\n")
      assert.match(ended.stderr, /no host answers/u)
    })
  )
})
