/** `agents`, and `serve` before it listens. `test/stack/Serve.test.ts` tests the rest. */
import { assert, describe, it } from "@effect/vitest"
import * as AgentsCommand from "../src/AgentsCommand.ts"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import * as Composition from "../src/Composition.ts"
import * as ServeComposition from "../src/ServeComposition.ts"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import * as CurrentTime from "@cogni/sandbox-proxy/tools/CurrentTime"
import { answerUntilServed, isLoopback } from "../src/ServeCommand.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, FileSystem, Layer } from "effect"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"

const cli = (argv: ReadonlyArray<string>, environment: Record<string, string> = {}) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const code = yield* Cli.main({
      argv,
      environment: { COGNI_STATE_DIR: "/proc/nowhere/at/all", ...environment }
    }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
    return { ...memory.said, code }
  })

describe("serve", () => {
  it("recognizes loopback addresses", () => {
    for (const host of ["127.0.0.1", "127.1.2.3", "localhost", "::1"]) assert.isTrue(isLoopback(host), host)
    for (const host of ["0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org", ""]) {
      assert.isFalse(isLoopback(host), host)
    }
  })

  it("warns about rules of valid grants that restrict no tool of the host", () => {
    const grant = {
      id: "grant-1",
      userId: "ana",
      billingAccountId: "acme",
      scopes: [],
      allowSandbox: true,
      permissions: {
        tools: ["none__*"],
        toolRules: [
          { tool: "core__*", effect: "read_only", access: "ask" },
          { tool: "core__*", effect: "state_change", access: "ask" },
          { tool: "acme__pay", access: "closed" }
        ]
      },
      expiresAt: new Date(1000),
      revokedAt: null,
      createdAt: new Date(0)
    } as const
    const lines = (over: Partial<ExecutionGrant>, nowMillis = 0) =>
      ServeComposition.unusedRules([{ ...grant, ...over }], [CurrentTime.tool], nowMillis).map((line) =>
        line.slice(0, line.indexOf(" covers"))
      )
    assert.deepStrictEqual(lines({}), [
      "the rule ask core__*:state_change of grant-1",
      "the rule closed acme__pay of grant-1"
    ])
    assert.deepStrictEqual([lines({ revokedAt: new Date(1) }), lines({}, 1000)], [[], []])
  })

  it.live("answers 503 with retry-after only while there is no handler", () =>
    Effect.gen(function* () {
      const node = yield* Effect.acquireRelease(
        Effect.callback<Server>((resume) => {
          const made = createServer().listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
        }),
        (server) => Effect.sync(() => void server.close())
      )
      answerUntilServed(node)
      const ask = Effect.promise(async () => {
        const answer = await fetch(`http://127.0.0.1:${(node.address() as AddressInfo).port}/health`)
        return [answer.status, answer.headers.get("retry-after"), await answer.text()] as const
      })
      const [status, again, text] = yield* ask
      assert.deepStrictEqual([status, again], [503, "1"])
      assert.include(text, "NotServing")
      const serving = (_: unknown, response: { readonly end: (text: string) => void }) =>
        response.end("served")
      node.on("request", serving)
      assert.strictEqual((yield* ask)[2], "served")
      node.off("request", serving)
      assert.strictEqual((yield* ask)[0], 503)
    }).pipe(Effect.scoped)
  )

  it.effect.each<[ReadonlyArray<string>, number, string, Record<string, string>]>([
    [
      ["--model", "m"],
      78,
      "it is not shown that calls are billed to their account: the upstream cannot be reached",
      {
        SANDBOX_ENABLED: "true",
        COGNI_LLM_URL: "http://127.0.0.1:1",
        COGNI_LLM_KEY: "key",
        COGNI_IDENTITY_CHECK_MODEL: "small"
      }
    ],
    [["--host", "0.0.0.0"], 64, "Put a TLS proxy in front of it, and add --allow-remote", {}],
    [["--port", "65536"], 64, "--port", {}],
    [["--trace-url", "javascript:alert(1)//{traceId}"], 64, "--trace-url is no http or https address", {}],
    [
      ["--trace-url", "https://ana:pw@example.com/{traceId}"],
      64,
      "--trace-url has a user name or a password",
      {}
    ],
    [["--trace-url", "https://example.com/traces"], 64, "--trace-url has no {traceId}", {}],
    [["--body-limit", "12"], 64, "--body-limit", {}],
    [["--drain", "soon"], 64, "--drain", {}],
    [[], 78, "invalid environment variable", { SANDBOX_ENABLED: "yes" }],
    [["--max-runs", "0"], 64, "--max-runs", {}],
    [["--trusted-proxy", "proxy.example.com"], 64, "is not an IP address", {}],
    [["--port", "0"], 78, "no model is configured", { SANDBOX_ENABLED: "true" }]
  ])("%j exits with %i", ([argv, code, says, environment]) =>
    Effect.gen(function* () {
      const { code: ended, stderr } = yield* cli(["serve", ...argv], environment)
      assert.deepStrictEqual([ended, stderr.includes(says)], [code, true], stderr)
      const problems = stderr
        .trim()
        .split("\n")
        .filter((line) => !line.startsWith("· info"))
      assert.lengthOf(problems, 1)
    })
  )

  it.live("names the flag of a port that is in use", () =>
    Effect.gen(function* () {
      const taken = yield* Effect.acquireRelease(
        Effect.callback<Server>((resume) => {
          const made = createServer().listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
        }),
        (server) => Effect.sync(() => void server.close())
      )
      const port = String((taken.address() as AddressInfo).port)
      const state = yield* FileSystem.FileSystem.use((fs) => fs.makeTempDirectoryScoped())
      for (const [flag, ...argv] of [
        ["--port", "--port", port],
        ["--operator-port", "--port", "0", "--operator-port", port]
      ] as const) {
        const said = yield* cli(["serve", "--demo", ...argv], { COGNI_STATE_DIR: state })
        assert.strictEqual(said.code, 69, said.stderr)
        assert.include(said.stderr, `cogni-sandbox: another program listens on 127.0.0.1:${port}. Choose`)
        assert.include(said.stderr, `Choose another: ${flag} 0 takes any free port`)
      }
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})

describe("a workspace of a remote run", () => {
  it("may be the relay's clone of a run, and no other directory of this host", () => {
    const isClone = Composition.isClone({ stateDirectory: "/state" })
    assert.isTrue(isClone("/state/relays/run-000000000001/workspace"))
    for (const path of [
      "/state",
      "/state/relays",
      "/state/relays/run-000000000001",
      "/state/relays/run-000000000001/workspace/repo",
      "/state/relays/run-000000000001/workspace/..",
      "/state/relays/../run-000000000001/workspace",
      "/state/relays/RUN/workspace",
      "/state/runs/run-000000000001/workspace",
      "/elsewhere/relays/run-000000000001/workspace",
      ""
    ]) {
      assert.isFalse(isClone(path), path)
    }
  })
})

describe("agents", () => {
  it.effect("are listed with their capabilities, without an engine", () =>
    Effect.gen(function* () {
      const { code, stdout } = yield* cli(["agents"])
      assert.strictEqual(code, 0)
      assert.match(
        stdout,
        /^agent +Minimal agent +chat-completions +no tools, answers at the end, history as messages$/mu
      )
      const json = JSON.parse((yield* cli(["agents", "-o", "json"])).stdout)
      assert.containSubset(
        json.find(({ agentId }: any) => agentId === "sandbox:agent"),
        { modelApi: "chat-completions", capabilities: { tools: false } }
      )
    })
  )

  it("have empty columns for unknown properties", () => {
    const [, line] = AgentsCommand.render([
      { agentId: "other:a" as never, graphId: "other:a" as never, name: "A", description: null }
    ])
    assert.match(line!, /^a +A *$/u)
  })
})
