/** Sandboxes of Mastra's editor: a stored configuration can only lower the application's limits. */
import { assert, describe, it } from "@effect/vitest"
import { createHost, type SandboxOptions } from "@cogni/sandbox-promise"
import { SandboxError, type WorkspaceSandbox } from "@mastra/core/workspace"
import { mastraSandboxProvider } from "../src/index.ts"
import { lines, program } from "./MemoryShell.ts"
import { codeOf } from "./SandboxSuite.ts"

const made = () => {
  const host = createHost({ inMemory: program })
  const specs: Array<SandboxOptions> = []
  const provider = mastraSandboxProvider({
    host: {
      createSandbox: async (spec = {}) => {
        specs.push(spec)
        return await host.createSandbox(spec)
      }
    },
    spec: { limits: { memoryBytesMax: 256 * 1024 ** 2, processesMax: 64 } },
    env: { WORD: "application" },
    timeoutSecondsMax: 60
  })
  return { host, specs, provider }
}

describe("mastraSandboxProvider", () => {
  it("opens sandboxes with the lower of two limits", async () => {
    const { host, provider, specs } = made()
    await using _host = host
    const sandbox: WorkspaceSandbox = await provider.createSandbox({
      env: { OTHER: "x" },
      timeoutSecondsMax: 3600,
      limits: { memoryBytesMax: 1024 ** 4, processesMax: 16, cpusMax: 1, runtimeSecondsMax: 86_400 }
    })
    assert.strictEqual(specs.length, 0)
    assert.strictEqual((await sandbox.executeCommand?.(lines.variable))?.stdout, "application")
    assert.deepInclude(specs[0]?.limits, {
      memoryBytesMax: 256 * 1024 ** 2,
      processesMax: 16,
      cpusMax: 1,
      runtimeSecondsMax: 600
    })
    assert.include(sandbox.getInstructions?.(), "after 60 seconds")
    await sandbox.destroy?.()
  })

  it("refuses a configuration with anything else", async () => {
    const { host, provider } = made()
    await using _host = host
    for (const config of [
      { workspace: { type: "directory", path: "/" } },
      { image: "other" },
      { limits: { memory: 1 } },
      { timeoutSecondsMax: -1 },
      { env: { A: 1 } },
      "text"
    ]) {
      assert.strictEqual(
        await codeOf(async () => await provider.createSandbox(config as never)),
        "INVALID_CONFIG"
      )
    }
    assert.isFunction(SandboxError)
  })

  it("describes its configuration as JSON Schema, for forms", () => {
    const { provider } = made()
    assert.deepInclude(provider.configSchema, { type: "object", additionalProperties: false })
    assert.sameMembers(Object.keys(provider.configSchema?.["properties"] as object), [
      "env",
      "workingDirectory",
      "timeoutSecondsMax",
      "limits"
    ])
  })
})
