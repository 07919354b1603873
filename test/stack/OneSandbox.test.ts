/** One open sandbox behind the interfaces of three frameworks at the same time. */
import { assert, layer } from "@effect/vitest"
import { sandboxSession } from "@cogni/sandbox-ai-sdk"
import { deepAgentsBackend } from "@cogni/sandbox-deepagents"
import { mastraSandbox } from "@cogni/sandbox-mastra"
import { createSandbox } from "@cogni/sandbox-promise"
import { Effect, Layer } from "effect"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as ModelApi from "../harness/ModelApi.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const layers = Layer.unwrap(
  Effect.map(RunHarness.Directory, (stateDirectory) => LeakCheck.layer({ stateDirectory }))
).pipe(Layer.provideMerge(Layer.merge(Engine.api(), RunHarness.Directory.layer)))

/** A command that asks the model and appends the answer to its own file. */
const ask = (file: string) =>
  `node -e 'fetch("http://localhost:8080/v1/chat/completions", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }] }) }).then((r) => r.json()).then((a) => require("fs").writeFileSync("${file}", a.choices[0].message.content))'`

const answer = "It is sunny in Oslo."

const names = ["ai-sdk", "deepagents", "mastra"]

layer(layers, { excludeTestServices: true })("one sandbox for several frameworks", (it) => {
  it.effect("each sees the files of the others, and one record has the usage of all", () =>
    Effect.gen(function* () {
      const stateDirectory = yield* RunHarness.Directory
      const { received, url } = yield* ModelApi.acquire
      yield* Effect.promise(async () => {
        await using sandbox = await createSandbox({
          stateDirectory,
          image: Images.runtime,
          upstream: { url, key: "sk-planted-shared-key", image: Images.gateway },
          ledger: "none",
          llm: { model: "m", identity: { billingAccountId: "acme" } }
        })
        const session = sandboxSession(sandbox)
        const backend = deepAgentsBackend(sandbox)
        const adapter = mastraSandbox(sandbox)
        const ran = await Promise.all([
          session.run({ command: ask("ai-sdk") }),
          backend.execute(ask("deepagents")),
          adapter.executeCommand(ask("mastra"))
        ])
        assert.deepStrictEqual(
          ran.map(({ exitCode }) => exitCode),
          [0, 0, 0],
          JSON.stringify(ran)
        )
        for (const name of names) {
          const path = `${sandbox.workspace}/${name}`
          assert.strictEqual(await session.readTextFile({ path }), answer)
          const [copied] = await backend.downloadFiles([path])
          assert.strictEqual(new TextDecoder().decode(copied?.content ?? undefined), answer)
          assert.strictEqual(await adapter.filesystem.readFile(path, { encoding: "utf-8" }), answer)
        }
        await adapter._destroy()
        assert.strictEqual((await session.run({ command: "ls /sys/class/net" })).stdout, "lo\n")
      })
      assert.lengthOf(yield* received, 3)
      const runs = join(stateDirectory, "runs")
      const [runId, ...others] = readdirSync(runs)
      assert.isEmpty(others)
      const record = JSON.parse(readFileSync(join(runs, runId!, "record.json"), "utf8"))
      assert.deepInclude(record.llm.usage, { inputTokens: 33, outputTokens: 15 })
      assert.strictEqual(record.spec.llm.identity.billingAccountId, "acme")
    })
  )
})
