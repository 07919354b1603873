/** Names of the source documents: each has a row on its page, and is where the page says. */
import { assert, describe, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { root } from "./SourceTree.ts"

const read = (path: string): string => readFileSync(join(root, path), "utf8")

const places: ReadonlyArray<readonly [file: string, names: ReadonlyArray<string>]> = [
  [
    "packages/promise/src/RunnerPort.ts",
    ["SandboxRunnerPort", "SandboxRunSpec", "SandboxRunResult", "SandboxCommandSpec", "execCommand"]
  ],
  ["packages/core/src/internal/WayOut.ts", ["COGNI_GATEWAY_SOCK", "RUN_ID"]],
  ["packages/proxy/src/internal/GatewayTools.ts", ["/tool/exec", "toolName", "errorCode"]],
  ["packages/server/src/internal/ChatRequest.ts", ["graphName"]],
  ["packages/react/src/AgentsClient.ts", ["GraphOption"]],
  ["packages/core/src/Telemetry.ts", ["agentVariant"]]
]

describe("names of the source documents", () => {
  const page = read("docs/reference/names.md")

  for (const [file, names] of places)
    it(`${names.join(", ")} are in ${file}, and on the page of names`, () => {
      const source = read(file)
      for (const name of names) {
        assert.include(source, name)
        assert.include(page, name)
      }
    })
})
