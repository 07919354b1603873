/** Grants on the command line: created, listed without their tokens, revoked. No test reaches an engine. */
import { assert, describe, it } from "@effect/vitest"
import * as Cli from "../src/Cli.ts"
import * as GrantsCommand from "../src/GrantsCommand.ts"
import * as Output from "../src/Output.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const place = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-grants-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  ),
  (directory) => ({
    directory,
    grants: (...argv: ReadonlyArray<string>) =>
      Effect.gen(function* () {
        const memory = Output.makeMemory()
        const code = yield* Cli.main({
          argv: ["grants", ...argv],
          environment: { COGNI_STATE_DIR: directory }
        }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
        return { code, stdout: memory.said.stdout, stderr: memory.said.stderr }
      })
  })
)

const ana = ["--user", "ana", "--account", "acme"]

describe("grants create", () => {
  it.effect("prints only the token on standard output, once, and does not store it", () =>
    Effect.gen(function* () {
      const { directory, grants } = yield* place
      const { code, stderr, stdout } = yield* grants("create", ...ana, "--allow-sandbox")
      assert.strictEqual(code, 0)
      assert.match(stdout, /^cgs_[\w-]{43}\n$/u)
      assert.match(stderr, /^· grant-[\w-]+: the token is shown only once\n$/u)
      const listed = yield* grants("list", "--output", "json")
      const kept = readdirSync(directory).map((name) => readFileSync(join(directory, name), "latin1"))
      for (const text of [listed.stdout, ...kept]) assert.notInclude(text, stdout.trim())
    })
  )

  it.effect("creates a read-only grant without graphs, and refuses flags that allow more", () =>
    Effect.gen(function* () {
      const { grants } = yield* place
      const { stderr, stdout } = yield* grants("create", ...ana, "--read-only", "-o", "json")
      const { grant } = JSON.parse(stdout)
      assert.containSubset(grant, { scopes: [], allowSandbox: false, permissions: { readOnly: true } })
      assert.strictEqual(stderr, "")
      assert.match((yield* grants("show", grant.id)).stdout, /^state +read-only$/mu)
      assert.match((yield* grants("list")).stdout, / none +none +none +none +none +never/u)
      for (const more of [["--allow-sandbox"], ["--approve"], ["--tool", "a__*"], ["--max-calls", "3"]]) {
        const refused = yield* grants("create", ...ana, "--read-only", ...more)
        assert.strictEqual(refused.code, 65, more.join(" "))
        assert.include(refused.stderr, "--read-only")
      }
    })
  )

  it.effect("allows only the named graphs, and no sandboxes without --allow-sandbox", () =>
    Effect.gen(function* () {
      const { grants } = yield* place
      const narrow = yield* grants("create", ...ana, "--graph", "sandbox:agent", "-o", "json")
      assert.containSubset(JSON.parse(narrow.stdout), {
        grant: {
          userId: "ana",
          billingAccountId: "acme",
          scopes: ["graph:execute:sandbox:agent"],
          allowSandbox: false,
          expiresAt: null
        }
      })
      const wide = yield* grants("create", ...ana)
      assert.include(wide.stderr, "the grant cannot open sandboxes")
    })
  )

  it.effect("allows what its flags name, as list and show report", () =>
    Effect.gen(function* () {
      const { grants } = yield* place
      const flags = [
        ["--tool", "core__*"],
        ["--ask-tool", "**:external_side_effect"],
        ["--ask-tool", "acme__*"],
        ["--close-tool", "acme__drop"],
        ["--approve"],
        ["--see-grants"],
        ["--model", "gpt-5"],
        ["--model", "openai/**"],
        ["--packages", "npm:@types/*"],
        ["--repository", "https://github.com/acme/*"],
        ["--connection", "github=fetch"],
        ["--max-calls", "9"],
        ["--max-cost", "0.5"],
        ["--max-runs", "2"],
        ["--stop-when-spent"],
        ["-o", "json"]
      ].flat()
      const { grant } = JSON.parse((yield* grants("create", ...ana, ...flags)).stdout)
      assert.deepStrictEqual(grant.permissions, {
        tools: ["core__*"],
        toolRules: [
          { tool: "**", effect: "external_side_effect", access: "ask" },
          { tool: "acme__*", access: "ask" },
          { tool: "acme__drop", access: "closed" }
        ],
        approve: true,
        seeGrants: true,
        packages: ["npm:@types/*"],
        models: ["gpt-5", "openai/**"],
        repositories: ["https://github.com/acme/*"],
        connections: [{ connection: "github", purposes: ["fetch"] }],
        budget: { callsMax: 9, costUsdMax: 0.5, onExhausted: "stop" },
        concurrentRunsMax: 2
      })
      const shown = yield* grants("show", grant.id)
      assert.match(shown.stdout, /^budget per run +callsMax 9, costUsdMax 0.5$/mu)
      assert.match(shown.stdout, /^packages +npm:@types\/\*$/mu)
      assert.match(shown.stdout, /^repositories +https:\/\/github.com\/acme\/\*$/mu)
      assert.match(shown.stdout, /^concurrent runs +2$/mu)
      const listed = yield* grants("list")
      const tools = "core__* ask **:external_side_effect ask acme__* closed acme__drop"
      assert.match(shown.stdout, /^approves tool calls +yes$/mu)
      assert.match(shown.stdout, /^sees grants and connections +yes$/mu)
      assert.include(listed.stdout, `gpt-5 openai/**  ${tools}  npm:@types/*  https://github.com/acme/*`)
      yield* grants("create", ...ana)
      assert.match((yield* grants("list")).stdout, /the server's +none +none +none +the server's +never/u)
      assert.strictEqual((yield* grants("show", "grant-none")).code, 66)
      const wide = yield* grants("create", ...ana, "--repository", "https://*/acme/app")
      assert.deepStrictEqual([wide.code, wide.stdout], [65, ""])
    })
  )

  it.effect("reports each invalid value with its flag and its rule", () =>
    Effect.gen(function* () {
      const { grants } = yield* place
      for (const [flags, said] of [
        [["--tool", ""], '--tool "": expected a value with a length of at least 1'],
        [["--max-calls", "0"], "--max-calls 0: expected a value from 1 to 1000000"],
        [["--max-cost", "-1"], "--max-cost -1: expected a value from 0.000001 to 1000000"],
        [["--max-runs", "0"], "--max-runs 0: expected a value between 1 and 10000"],
        [
          ["--repository", "github.com/acme/*"],
          '--repository "github.com/acme/*": expected https://HOST/PATH'
        ],
        [
          ["--repository", "/srv/git/**", "--repository", "*"],
          '--repository "*": expected https://HOST/PATH'
        ],
        [
          ["--tool", "acme__*", "--ask-tool", "acme__pay:external"],
          '--ask-tool "acme__pay:external": there is no such effect class after the colon. Write acme__pay:read_only'
        ],
        [["--close-tool", "acme__*:write"], '--close-tool "acme__*:write": there is no such effect class'],
        [
          ["--ask-tool", "a__*", "--ask-tool", "Acme.pay:state_change"],
          "_ and *. Write acme__pay:state_change"
        ],
        [["--graph", "nosuch"], '--graph "nosuch": expected provider:graph, such as sandbox:agent, or *'],
        [
          ["--graph", "sandbox:*"],
          '--graph "sandbox:*": expected provider:graph, such as sandbox:agent, or *'
        ],
        [["--graph", "Agent!"], '--graph "Agent!": expected provider:graph, such as sandbox:agent, or *']
      ] as const) {
        const { code, stderr, stdout } = yield* grants("create", ...ana, ...flags)
        assert.deepStrictEqual([code, stdout], [65, ""], said)
        assert.include(stderr, said)
      }
      const both = yield* grants("create", ...ana, "--max-calls", "0", "--model", "a b")
      assert.match(both.stderr, /--model "a b": expected a name without spaces.*--max-calls 0: /u)
      const nobody = yield* grants("create", "--user", "", "--account", "acme")
      assert.include(nobody.stderr, '--user "": expected a value with a length of at least 1')
    })
  )

  it.effect("refuses an invalid graph, and an invalid time", () =>
    Effect.gen(function* () {
      const { grants } = yield* place
      const odd = yield* grants("create", ...ana, "--graph", "Sandbox:Agent!")
      assert.strictEqual(odd.code, 65)
      assert.strictEqual(odd.stdout, "")
      assert.strictEqual((yield* grants("create", ...ana, "--expires-in", "soon")).code, 64)
      assert.strictEqual((yield* grants("create", "--user", "ana")).code, 64)
    })
  )
})

describe("grants revoke", () => {
  it.effect("revokes a grant, and exits with 66 for an unknown one", () =>
    Effect.gen(function* () {
      const { grants } = yield* place
      const { grant } = JSON.parse((yield* grants("create", ...ana, "-o", "json")).stdout)
      const revoked = yield* grants("revoke", grant.id)
      assert.deepStrictEqual([revoked.code, revoked.stderr], [0, `· ${grant.id} is revoked\n`])
      assert.include((yield* grants("list")).stdout, "revoked")
      const none = yield* grants("revoke", "grant-none")
      assert.strictEqual(none.code, 66)
      assert.include(none.stderr, "there is no grant grant-none")
    })
  )
})

describe("grants list", () => {
  it.effect("reports that there are no grants", () =>
    Effect.gen(function* () {
      const { grants } = yield* place
      const { code, stderr, stdout } = yield* grants("list")
      assert.deepStrictEqual(
        [code, stdout, stderr],
        [0, "", "· there are no grants; create one with: cogni-sandbox grants create\n"]
      )
    })
  )

  it("shows the state of each grant", () => {
    const grant = {
      id: "grant-1",
      userId: "ana",
      billingAccountId: "acme",
      scopes: ["graph:execute:sandbox:agent", "graph:execute:sandbox:codex"],
      allowSandbox: true,
      permissions: {},
      expiresAt: new Date(1000),
      revokedAt: null,
      createdAt: new Date(0)
    }
    const states = GrantsCommand.render(
      [grant, { ...grant, revokedAt: new Date(1) }, { ...grant, expiresAt: null }],
      new Date(1000)
    ).map((line) => line.split(/ {2,}/u).slice(1, 3).join(" "))
    assert.deepStrictEqual(states, ["STATE SANDBOX", "expired yes", "revoked yes", "active yes"])
  })
})
