/** Tools of the host that use connections: offered without a database, called with the credential of an account. */
import { assert, describe, it } from "@effect/vitest"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Effect, Layer, Logger } from "effect"
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { DatabaseSync } from "node:sqlite"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { inspect } from "node:util"
import { serve } from "../../../test/harness/LocalServer.ts"
import * as Cli from "../src/Cli.ts"
import * as Connections from "../src/Connections.ts"
import * as HostTools from "../src/HostTools.ts"
import * as Output from "../src/Output.ts"
import * as Settings from "../src/Settings.ts"

const planted = "planted-token-of-an-account"

const mcpServer = fileURLToPath(new URL("../../proxy/test/fixtures/mcp-server.mjs", import.meta.url))

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
    const tools = (more: Record<string, string> = {}, toolNames?: ReadonlyArray<string>) =>
      Effect.gen(function* () {
        const settings = yield* Settings.Settings
        return yield* HostTools.make(settings, Connections.operator(settings), toolNames)
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

  it.live("offers the tools of MCP servers, and starts only those that are named", () =>
    Effect.gen(function* () {
      const { file, tools } = yield* place
      const started = file("started", "")
      const server = {
        command: process.execPath,
        args: [mcpServer, "fair", started],
        tools: { echo: "read_only" }
      }
      const variables = {
        COGNI_MCP_SERVERS_FILE: file("servers.json", [{ ...server, name: "acme" }])
      }
      const made = yield* tools(variables)
      const echo = made.find(({ name }) => name === "acme__echo")!
      assert.include(JSON.stringify(yield* echo.call({ text: "over stdio" }, context)), "over stdio")
      const processes = () => readFileSync(started, "utf8").trim().split("\n").length
      assert.strictEqual(processes(), 1)
      const others = yield* tools(variables, ["github__comment"])
      assert.isUndefined(others.find(({ name }) => name === "acme__echo"))
      assert.strictEqual(processes(), 1)
    })
  )

  it.effect.each([
    [{ name: "github" }, "belongs to other tools"],
    [{ env: ["COGNI_LLM_KEY"] }, "for this host alone"],
    [{ env: ["GITHUB_TOKEN"] }, "for this host alone"],
    [{ env: ["NOT_SET_ANYWHERE"] }, "is not set"],
    [{ command: "relative" }, "does not describe MCP servers"],
    [{ command: "/nonexistent/server" }, "is refused"]
  ] as const)("refuses MCP servers that cannot be offered: %j", ([more, expected]) =>
    Effect.gen(function* () {
      const { file, tools } = yield* place
      const server = { name: "acme", command: "/bin/true", tools: { "*": "read_only" }, ...more }
      const error = yield* Effect.flip(tools({ COGNI_MCP_SERVERS_FILE: file("servers.json", [server]) }))
      assert.include(error.message, "COGNI_MCP_SERVERS_FILE")
      assert.include(error.message, expected)
      if (error._tag === "Refusal") assert.notInclude(error.detail, error.remedy)
    })
  )

  it.live("reads a database that the operator names, by one SELECT", () =>
    Effect.gen(function* () {
      const { file, tools } = yield* place
      const path = file("data.db", "")
      const db = new DatabaseSync(path)
      db.exec("CREATE TABLE notes (text); INSERT INTO notes VALUES ('one')")
      db.close()
      const made = yield* tools({
        COGNI_SQL_TOOL_FILE: file("sql.json", { database: { type: "sqlite", path }, description: "Notes" })
      })
      const query = made.find(({ name }) => name === "sql__query")!
      assert.strictEqual(query.effect, "read_only")
      assert.include(query.description, "Notes")
      assert.deepStrictEqual(yield* query.call({ sql: "SELECT * FROM notes" }, context), {
        rows: [{ text: "one" }],
        isTruncated: false
      })
      const refused = yield* Effect.flip(query.call({ sql: "DELETE FROM notes" }, context))
      assert.strictEqual(refused.code, "execution")
    })
  )

  it.live("answers many queries of a run at once, and those of another run between them", () =>
    Effect.gen(function* () {
      const { file, tools } = yield* place
      const path = file("data.db", "")
      const made = yield* tools({
        COGNI_SQL_TOOL_FILE: file("sql.json", { database: { type: "sqlite", path } })
      })
      const query = made.find(({ name }) => name === "sql__query")!
      const done: Array<string> = []
      const ask = (runId: string) =>
        Effect.tap(query.call({ sql: "SELECT 1 AS a" }, { ...context, runId: RunId.RunId.make(runId) }), () =>
          Effect.sync(() => done.push(runId))
        )
      const many = Array.from({ length: 8 }, () => ask("run-12345678"))
      yield* Effect.all([...many, ask("run-87654321")], { concurrency: "unbounded" })
      assert.lengthOf(done, 9)
      assert.notStrictEqual(done.at(-1), "run-87654321")
    })
  )

  it.effect("uses one broker in a process, and records the run of each use", () =>
    Effect.gen(function* () {
      const { connections, environment, file } = yield* place
      const token = file("token", planted)
      yield* connections("add", "github", "--token-file", token)
      const repository = "https://github.com/acme/app"
      yield* Effect.gen(function* () {
        const settings = yield* Settings.Settings
        const user = Connections.operator(settings, { runId: "run-12345678" })
        const [one, other] = [
          yield* Connections.whenUsed(settings, user),
          yield* Connections.whenUsed(settings, user)
        ]
        const use = (broker: typeof one) =>
          Effect.match(Effect.scoped(broker.lease({ purpose: "fetch", repository })), {
            onSuccess: () => "issued",
            onFailure: ({ reason }) => reason._tag
          })
        const told = yield* Effect.forEach(Array.from({ length: 70 }), (_, at) =>
          use(at % 2 === 0 ? one : other)
        )
        // The limit of one run, whatever part of the process asks.
        assert.strictEqual(told.filter((answer) => answer === "issued").length, 60)
        assert.strictEqual(told.at(-1), "TooManyUses")
      }).pipe(
        Effect.scoped,
        Effect.provide(Layer.provide(Settings.layer(environment), Layer.fresh(NodeServices.layer)))
      )
    })
  )
})
