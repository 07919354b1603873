/** Tools of the host that use connections: offered without a database, called with the credential of an account. */
import { assert, describe, it } from "@effect/vitest"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Effect, Layer, Logger } from "effect"
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inspect } from "node:util"
import { serve } from "../../../test/harness/LocalServer.ts"
import * as Cli from "../src/Cli.ts"
import * as Connections from "../src/Connections.ts"
import * as HostTools from "../src/HostTools.ts"
import * as Output from "../src/Output.ts"
import * as Settings from "../src/Settings.ts"

const planted = "planted-token-of-an-account"

const place = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-host-tools-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  ),
  (directory) => {
    const file = (name: string, content: unknown) => {
      const path = join(directory, name)
      const text = typeof content === "string" ? content : JSON.stringify(content)
      writeFileSync(path, text, { mode: 0o600 })
      return path
    }
    const state = join(directory, "state")
    const environment = {
      COGNI_STATE_DIR: state,
      COGNI_CONNECTIONS_KEY_FILE: file("keys", Buffer.alloc(32, 7).toString("base64"))
    }
    const tools = (more: Record<string, string> = {}) =>
      Effect.gen(function* () {
        const settings = yield* Settings.Settings
        return yield* HostTools.make(settings, Connections.operator(settings))
      }).pipe(
        Effect.provide(
          Layer.provide(Settings.layer({ ...environment, ...more }), Layer.fresh(NodeServices.layer))
        )
      )
    const connections = (...argv: ReadonlyArray<string>) =>
      Cli.main({ argv: ["connections", ...argv], environment }).pipe(
        Effect.provide(Layer.merge(NodeServices.layer, Output.makeMemory().layer))
      )
    return { connections, environment, file, state, tools }
  }
)

const context = {
  runId: RunId.RunId.make("run-12345678"),
  identity: { billingAccountId: "local", attempt: 0 },
  requestId: "request-1"
}

describe("HostTools", () => {
  it.effect("offers tools for GitHub without a database, and makes one when a tool is called", () =>
    Effect.gen(function* () {
      const { state, tools } = yield* place
      const made = yield* tools()
      assert.deepStrictEqual(
        made.map(({ name }) => name),
        ["github__list_issues", "github__read_issue", "github__comment"]
      )
      assert.isFalse(existsSync(state))
      const error = yield* Effect.flip(made[0]!.call({ repository: "acme/app" }, context))
      assert.strictEqual(error.code, "policy_denied")
      assert.include(error.detail, "no connection to this server")
      assert.isTrue(existsSync(state))
    })
  )

  it.effect("calls a server with the credential of the account, which no caller sees", () =>
    Effect.gen(function* () {
      const { connections, file, tools } = yield* place
      const asked: Array<string | undefined> = []
      const origin = yield* serve((request, response) => {
        asked.push(request.headers.authorization)
        response.end(JSON.stringify(request.headers))
      })
      const added = yield* connections(
        "add",
        "api",
        "--token-file",
        file("token", planted),
        "--server",
        origin
      )
      assert.strictEqual(added, 0)
      const rules = [{ origin, methods: ["GET"], connection: "api", allowPrivateAddresses: true }]
      const made = yield* tools({ COGNI_HTTP_TOOLS_FILE: file("rules.json", rules) })
      const get = made.find(({ name }) => name === "http__get")!
      const answers = yield* Effect.all(
        [1, 2].map(() => get.call({ url: `${origin}/x` }, context)),
        { concurrency: 2 }
      )
      assert.deepStrictEqual(asked, [`Bearer ${planted}`, `Bearer ${planted}`])
      assert.notInclude(JSON.stringify(answers), planted)
      assert.strictEqual(yield* connections("remove", "api"), 0)
      assert.strictEqual((yield* Effect.flip(get.call({ url: origin }, context))).code, "policy_denied")
      assert.lengthOf(asked, 2)
    })
  )

  it.effect("gives a tool no token of the host, and git none that a connection of the account replaces", () =>
    Effect.gen(function* () {
      const { connections, environment, file } = yield* place
      const tokens = { ...environment, GITHUB_TOKEN: planted }
      const repository = "https://github.com/acme/app"
      const told = (
        ...uses: ReadonlyArray<{ readonly purpose: "fetch" | "tool_read"; readonly toolId?: string }>
      ) =>
        Effect.gen(function* () {
          const settings = yield* Settings.Settings
          const broker = yield* Connections.whenUsed(settings, Connections.operator(settings))
          return yield* Effect.forEach(uses, (use) =>
            Effect.match(Effect.scoped(broker.lease({ ...use, repository })), {
              onSuccess: ({ permit }) => permit.connectionName,
              onFailure: ({ reason }) => (reason._tag === "ConnectionDenied" ? reason.reason : reason._tag)
            })
          )
        }).pipe(
          Effect.scoped,
          Effect.provide(Layer.provide(Settings.layer(tokens), Layer.fresh(NodeServices.layer)))
        )
      const uses = [{ purpose: "fetch" }, { purpose: "tool_read", toolId: "github__read_issue" }] as const
      assert.deepStrictEqual(yield* told(...uses), ["host/github-token", "purpose_not_granted"])
      const token = file("token", planted)
      yield* connections("add", "github", "--token-file", token, "--use", "tool_read")
      assert.deepStrictEqual(yield* told(...uses), ["purpose_not_granted", "github"])
    })
  )

  it.effect("makes no broker for what needs no credential", () =>
    Effect.gen(function* () {
      const { environment, state } = yield* place
      const broken = { ...environment, COGNI_CONNECTIONS_KEY_FILE: join(state, "missing") }
      yield* Effect.gen(function* () {
        const settings = yield* Settings.Settings
        yield* Layer.build(Connections.credentials(settings, undefined))
      }).pipe(Effect.provide(Layer.provide(Settings.layer(broken), Layer.fresh(NodeServices.layer))))
      assert.isFalse(existsSync(state))
    })
  )

  it.effect("tells the log, and not the agent, what is wrong with the configuration of connections", () =>
    Effect.gen(function* () {
      const { state, tools } = yield* place
      const logs: Array<string> = []
      const made = yield* tools({ COGNI_CONNECTIONS_KEY_FILE: join(state, "missing-keys") })
      const error = yield* Effect.flip(made[0]!.call({ repository: "acme/app" }, context)).pipe(
        Effect.provide(Logger.layer([Logger.make(({ message }) => void logs.push(inspect(message)))]))
      )
      assert.strictEqual(error.code, "unavailable")
      assert.notInclude(error.detail, "missing-keys")
      assert.include(logs.join("\n"), "missing-keys")
    })
  )

  it.effect.each([
    "{",
    { origin: "https://api.example.com" },
    [{ origin: "http://api.example.com", methods: ["GET"] }],
    [{ origin: "https://api.example.com", methods: ["GET"], host: "x" }]
  ])("refuses a file that does not describe rules: %j", (content) =>
    Effect.gen(function* () {
      const { file, tools } = yield* place
      const error = yield* Effect.flip(tools({ COGNI_HTTP_TOOLS_FILE: file("rules.json", content) }))
      assert.include(error.message, "COGNI_HTTP_TOOLS_FILE")
      assert.include(error.message, "docs/guides/connections.md")
    })
  )

  it.effect("gives a chat agent only the tools that its overrides name", () =>
    Effect.gen(function* () {
      const { tools } = yield* place
      const made = yield* tools()
      const named = (allow: ReadonlyArray<string>, deny: ReadonlyArray<string> = []) =>
        HostTools.named(made, { allow, deny }).map(({ name }) => name)
      assert.isEmpty(named([]))
      assert.isEmpty(named(["shell.exec", "process.*"]))
      assert.deepStrictEqual(named(["github.comment"]), ["github__comment"])
      assert.lengthOf(named(["github.*"]), 3)
      // Known to the registry, which then denies it.
      assert.deepStrictEqual(named([], ["github.comment"]), ["github__comment"])
    })
  )
})
