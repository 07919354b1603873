/** Flags that nginx cannot serve, refused before a command serves anything. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"

const started = (line: string) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const code = yield* Cli.main({
      argv: line.split(" "),
      environment: {
        COGNI_STATE_DIR: "/proc/nowhere/at/all",
        DOCKER_HOST: "unix:///proc/nowhere/docker.sock",
        COGNI_LLM_URL: "http://127.0.0.1:1",
        COGNI_LLM_KEY: "k",
        COGNI_LLM_MODEL: "m",
        COGNI_BILLING_ACCOUNT: "acct"
      }
    }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
    return { code, stderr: memory.said.stderr }
  })

// Each of these fails at a later check, if not at this one.
const serve = "serve --host 0.0.0.0 --proxy"
const chat = "chat /proc/nowhere/cogni.yaml --proxy"
const acp = "acp --agent none --proxy"
const all = "--max-calls or --max-input-tokens or --max-output-tokens or --max-cost"
const given = "--max-calls 2 --max-input-tokens 3 --max-output-tokens 4 --max-cost 5"

describe("--proxy", () => {
  it.effect.each([
    [`${serve} nginx-shared --max-calls 2`, "nginx-shared cannot enforce --max-calls"],
    [`${serve} nginx ${given}`, `nginx cannot enforce ${all}`],
    [`${serve} nginx-shared --canaries warn`, "nginx-shared cannot enforce --canaries"],
    [`${chat} nginx-shared ${given}`, `nginx-shared cannot enforce ${all}`],
    [`${chat} nginx-shared --canaries stop`, "nginx-shared cannot enforce --canaries"],
    [`${acp} nginx --max-cost 1 --strict`, "nginx cannot enforce --max-cost or --strict"],
    [`${acp} nginx --subagent-share 0.3`, "nginx cannot enforce --subagent-share"],
    [`${acp} nginx-shared --tool core__get_current_time`, "nginx-shared cannot provide --tool"],
    [`${acp} nginx --ask-tool a__b --packages npm:left-pad`, "nginx cannot provide --ask-tool or --packages"]
  ] as const)("refuses %s at its start", ([line, words]) =>
    Effect.gen(function* () {
      const { code, stderr } = yield* started(line)
      assert.include(
        stderr,
        `the proxy ${words}: it does not read bodies. Use --proxy gateway, or leave out --`
      )
      assert.strictEqual(code, 65, stderr)
    })
  )

  it.effect.each([
    `${serve} nginx-shared`,
    `${serve} gateway --max-calls 2`,
    `${chat} nginx-shared`,
    `${chat} gateway --canaries warn`,
    `${chat} nginx-shared --ask-tool github__comment`,
    `${acp} nginx`,
    `${acp} gateway-directory --strict --tool core__get_current_time`
  ])("lets %s go on", (line) =>
    Effect.gen(function* () {
      const { code, stderr } = yield* started(line)
      assert.notInclude(stderr, "it does not read bodies")
      assert.notStrictEqual(code, 0)
    })
  )
})
