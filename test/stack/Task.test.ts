/**
 * `sandbox:task` on a real task: a test of a small project fails, and the task makes it pass.
 *
 * The loop, the AI SDK, the gateway and the container are real. The model is a script, so its tool calls are known in
 * advance. The resulting patch is applied to another clone and tested there.
 */
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import type { LlmTraffic } from "@cogni/sandbox-core/RunFigures"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { execFileSync, spawnSync } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import { killed } from "../harness/CliWorld.ts"
import * as Engine from "../harness/Engine.ts"
import * as GraphHarness from "../harness/GraphHarness.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"
import * as TaskHarness from "../harness/TaskHarness.ts"

const project = {
  "package.json": '{ "name": "sums", "type": "module", "scripts": { "test": "node --test" } }\n',
  "src/sum.js": "export const sum = (numbers) => numbers.reduce((all, one) => all - one, 0)\n",
  "test/sum.test.js": [
    'import assert from "node:assert/strict"',
    'import { test } from "node:test"',
    'import { sum } from "../src/sum.js"',
    "",
    'test("adds up", () => assert.equal(sum([1, 2, 3]), 6))',
    ""
  ].join("\n")
}

/** Runs the project's tests on this machine, and reports whether they pass. */
const passes = (directory: string): boolean =>
  spawnSync(process.execPath, ["--test"], { cwd: directory, env: { PATH: "/usr/local/bin:/usr/bin:/bin" } })
    .status === 0

const exec = (command: string) => ({ name: "shell__exec", args: { command } })

/** Shell line that searches the usual places of a key, and tries to reach the model. */
const look = [
  "env",
  "tr '\\0' '\\n' </proc/1/environ",
  "cat /proc/mounts",
  "find / -xdev -type s 2>/dev/null",
  "ls -lA /llm-sock /cogni",
  "grep -rl 'sk-planted' / --exclude-dir=proc --exclude-dir=sys 2>/dev/null",
  "node -e 'fetch(`http://localhost:8080/v1/models`).then(() => console.log(`reached`), () => console.log(`sealed`))'"
].join("; ")

/** Extracts the text from a result of `file__read`. */
const textOf = (result: string) => (JSON.parse(result) as { readonly text: string }).text

/** Model that runs the test, reads the source, fixes one sign, runs the test again, and reports the outcome. */
const mends: ScriptedModel.Script = ({ index, results }) => {
  const last = results.at(-1) ?? ""
  switch (index) {
    case 0:
      return { call: [exec("npm test --silent 2>&1 || node --test")] }
    case 1:
      return { call: [{ name: "file__read", args: { path: "src/sum.js" } }, exec(look)] }
    case 2:
      return {
        call: [
          {
            name: "file__write",
            args: { path: "src/sum.js", content: textOf(results[1]!).replace("all - one", "all + one") }
          }
        ]
      }
    case 3:
      return { call: [{ name: "shell__exec", args: { command: "node --test" } }] }
    default:
      return { say: last.startsWith('{"exit_code":0,') ? "It adds up now." : `It does not: ${last}` }
  }
}

/** Model that never finishes. */
const wanders: ScriptedModel.Script = ({ index }) => ({
  call: [exec(`echo step ${index} | tee -a notes.txt`)]
})

const resultsOf = ({ events }: TaskHarness.Told): ReadonlyArray<string> =>
  events.flatMap((event) => (event.type === "tool_call_result" ? [String(event.result)] : []))

/** Checks that the calls have the host's key and the grant's account, and that the run's record lists each. */
const judgeCalls = Effect.fnUntraced(function* (
  upstream: ScriptedModel.ScriptedModel,
  runId: string,
  llm: LlmTraffic | undefined
) {
  assert.deepStrictEqual(yield* upstream.problems, [])
  const received = yield* upstream.received
  for (const { body, headers } of received) {
    const given = new Map(headers)
    assert.strictEqual(given.get("authorization"), `Bearer ${TaskHarness.key}`)
    assert.strictEqual(given.get("x-litellm-customer-id"), GraphHarness.account)
    assert.include(given.get("x-litellm-spend-logs-metadata"), runId)
    assert.strictEqual(body["model"], "scripted")
  }
  assert.strictEqual(llm?.callsTotal, received.length)
  assert.isTrue(llm?.calls.every(({ outcome, status }) => outcome === "completed" && status === 200))
  const figures = received.flatMap(({ usage }) => usage ?? [])
  assert.strictEqual(
    llm?.usage?.outputTokens,
    figures.reduce((sum, { outputTokens }) => sum + outputTokens, 0)
  )
})

const docker = (...args: ReadonlyArray<string>): string =>
  execFileSync("docker", args, { encoding: "utf8" }).trim()

/** Lists the IDs of a run's current containers. */
const containersOf = (runId: string): ReadonlyArray<string> =>
  docker("ps", "-aq", "--filter", `label=${ResourceLabels.label.run}=${runId}`).split("\n").filter(Boolean)

const workspaceOf = (path: string) => ({ workspaceOf: () => ({ type: "directory", path }) as const })

const messages = [{ role: "user", content: "The test fails. Make it pass." }] as const

layer(Layer.merge(Engine.api(), RunHarness.Directory.layer), {
  excludeTestServices: true
})("sandbox:task", (it) => {
  it.effect("makes a failing test pass without model access in the sandbox, and returns a patch", () =>
    Effect.gen(function* () {
      const { fresh, git, workspace } = yield* TaskHarness.project(project)
      const upstream = yield* ScriptedModel.acquire(mends)
      const runId = TaskHarness.nextRunId()
      yield* Effect.gen(function* () {
        const inspected: Array<string> = []
        const told = yield* TaskHarness.told({ graphId: "sandbox:task", messages }, runId, {}, (_, event) =>
          Effect.sync(() => {
            if (event.type === "tool_call_start") inspected.push(docker("inspect", ...containersOf(runId)))
          })
        )
        GraphHarness.isWhole(told.events)
        assert.isTrue(told.final.ok, JSON.stringify(told.final))
        assert.strictEqual(told.final.content, "It adds up now.")
        const [failing, source, seen, written, passing] = resultsOf(told)
        assert.match(failing ?? "", /^\{"exit_code":1[^]*fail 1/u)
        assert.strictEqual(textOf(source ?? ""), project["src/sum.js"])
        assert.match(written ?? "", /"bytes":\d+/u)
        assert.match(passing ?? "", /^\{"exit_code":0[^]*pass 1/u)

        // The sandbox had neither the key nor access to the model.
        assert.match(seen ?? "", /sealed/u)
        assert.notMatch(seen ?? "", /sk-planted|llm\.sock|COGNI_SOCKET|OPENAI|ANTHROPIC|reached/u)
        assert.notMatch(seen ?? "", / \/llm-sock /u)
        assert.isAbove(inspected.length, 4)
        for (const told of inspected) {
          assert.include(told, workspace)
          assert.notMatch(told, /sk-planted|llm-sock|llm\.sock|COGNI_SOCKET|OPENAI|ANTHROPIC/u)
        }

        const { patch } = told.final
        assert.containSubset(patch, { files: 1 })
        assert.isFalse(passes(fresh))
        const file = join(fresh, "..", "task.patch")
        writeFileSync(file, patch?.text ?? "")
        git(fresh, ["apply", "--check", file])
        git(fresh, ["apply", file])
        assert.strictEqual(git(fresh, ["status", "--porcelain"]).trim(), "M src/sum.js")
        assert.isTrue(passes(fresh))
        // The creation of the patch did not change the workspace's own repository.
        assert.strictEqual(git(workspace, ["status", "--porcelain"]).trim(), "M src/sum.js")

        const record = yield* RunStore.use((store) => store.get(runId))
        assert.strictEqual(record?.spec.llm?.identity.billingAccountId, GraphHarness.account)
        yield* judgeCalls(upstream, runId, record?.llm)
        assert.notInclude(JSON.stringify([record, told]), TaskHarness.key)
        const facts = told.events.flatMap((event) => (event.type === "usage_report" ? [event.fact] : []))
        assert.lengthOf(facts, (yield* upstream.received).length)
        assert.isTrue(facts.every(({ billingAccountId }) => billingAccountId === GraphHarness.account))
      }).pipe(Effect.provide(TaskHarness.layer(upstream.url, workspaceOf(workspace))))
    }).pipe(Effect.scoped)
  )

  it.effect("works in a clone of a repository, and pushes its changes as a branch", () =>
    Effect.gen(function* () {
      const { fresh, git, origin } = yield* TaskHarness.project(project)
      const upstream = yield* ScriptedModel.acquire(mends)
      const runId = TaskHarness.nextRunId()
      yield* Effect.gen(function* () {
        const asked = { graphId: "sandbox:task", messages, repository: { url: origin } }
        const told = yield* TaskHarness.told(asked, runId)
        GraphHarness.isWhole(told.events)
        const branch = `sandbox/${runId}`
        assert.containSubset(told.final, {
          ok: true,
          branch,
          content: `It adds up now.\n\nBranch: ${branch}`,
          patch: { files: 1 }
        })
        git(fresh, ["fetch", "-q", origin, branch])
        assert.isFalse(passes(fresh))
        git(fresh, ["checkout", "-q", "FETCH_HEAD"])
        assert.isTrue(passes(fresh))
        assert.strictEqual(git(fresh, ["diff", "--stat", "HEAD^"]).trim().split("\n").length, 2)
        const record = yield* RunStore.use((store) => store.get(runId))
        assert.containSubset(record?.annotations, {
          relay: { status: "pushed", branch },
          graph: { graphId: "sandbox:task", ok: true, patch: { files: 1 } }
        })
        // The commits name the audit of the calls that made them.
        assert.containSubset(record?.annotations, {
          relay: { statement: { predicate: { auditHead: record?.llm?.auditHead } } }
        })
        yield* judgeCalls(upstream, runId, record?.llm)
      }).pipe(Effect.provide(TaskHarness.layer(upstream.url, {}, TaskHarness.repositories)))
    }).pipe(Effect.scoped)
  )

  it.effect("ends when its steps or its budget are exhausted, and returns its patch", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModel.acquire(wanders)
      const run = (
        limits: Parameters<typeof TaskHarness.layer>[1],
        over: Partial<Parameters<typeof TaskHarness.told>[0]>
      ) =>
        TaskHarness.told({ graphId: "sandbox:task", messages, ...over }, TaskHarness.nextRunId()).pipe(
          Effect.provide(TaskHarness.layer(upstream.url, limits))
        )
      const steps = yield* run({ limits: { stepsMax: 3 } }, {})
      GraphHarness.isWhole(steps.events)
      assert.containSubset(steps.final, { ok: false, error: "internal", reason: "StepsExhausted" })
      assert.include(steps.final.patch?.text, "+step 1")
      assert.lengthOf(yield* upstream.received, 3)

      const refused = yield* run({}, { budget: { callsMax: 2, onExhausted: "refuse" } })
      GraphHarness.isWhole(refused.events)
      assert.containSubset(refused.final, {
        ok: false,
        error: "insufficient_credits",
        reason: "BudgetExceeded",
        patch: { files: 1 }
      })
      assert.lengthOf(yield* upstream.received, 5)

      const stopped = yield* run({}, { budget: { callsMax: 2, onExhausted: "stop" } })
      GraphHarness.isWhole(stopped.events)
      assert.containSubset(stopped.final, {
        ok: false,
        error: "insufficient_credits",
        reason: "BudgetExceeded"
      })
      assert.lengthOf(yield* upstream.received, 7)
    }).pipe(Effect.scoped)
  )

  it.effect("a model gets an error for a tool or file that does not exist, and continues", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModel.acquire(({ index, results }) =>
        index === 0
          ? {
              call: [
                { name: "host_shell", args: { command: "touch /tmp/escaped" } },
                { name: "shell__exec", args: { command: "true", on_host: true } },
                { name: "file__read", args: { path: "../../etc/passwd" } },
                { name: "file__read", args: { path: "/etc/passwd" } },
                { name: "file__write", args: { path: "/etc/passwd", content: "x" } },
                { name: "shell__exec", args: { command: "sleep 60", timeout_seconds: 1 } },
                { name: "shell__exec", args: { command: "seq 1 100000" } }
              ]
            }
          : { say: `${results.length} answers` }
      )
      const told = yield* TaskHarness.told(
        { graphId: "sandbox:task", messages },
        TaskHarness.nextRunId()
      ).pipe(Effect.provide(TaskHarness.layer(upstream.url)))
      GraphHarness.isWhole(told.events)
      assert.strictEqual(told.final.content, "7 answers")
      const [unknown, excess, ...rest] = resultsOf(told)
      assert.match(
        unknown ?? "",
        /the tool "host_shell" may not be called\. Allowed tools: shell__exec, file__read, file__write, file__list/u
      )
      assert.match(excess ?? "", /^validation: on_host/u)
      const [above, outside, written, slow, long] = rest
      for (const refused of [above, outside, written]) assert.match(refused ?? "", /outside|leads out/u)
      assert.match(slow ?? "", /"timed_out":true/u)
      assert.match(long ?? "", /"stdout":"1\\n2\\n3\\n[^]*left out[^]*\\n100000\\n"/u)
      assert.isAtMost(long?.length ?? 0, 32 * 1024)
    }).pipe(Effect.scoped)
  )

  it.effect("fails with ContainerFailed if its sandbox is killed", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModel.acquire(({ index }) =>
        index === 0 ? { call: [exec("echo half >half.txt; sleep 60")] } : { say: "Never." }
      )
      const runId = TaskHarness.nextRunId()
      const kill = Effect.sync(() => {
        const ids = containersOf(runId)
        assert.lengthOf(ids, 1)
        docker("kill", ids[0]!)
      })
      const told = yield* TaskHarness.told({ graphId: "sandbox:task", messages }, runId, {}, (_, event) =>
        event.type === "tool_call_start" ? Effect.delay(kill, "1 second") : Effect.void
      ).pipe(Effect.provide(TaskHarness.layer(upstream.url)))
      GraphHarness.isWhole(told.events)
      assert.containSubset(told.final, { ok: false, error: "internal", reason: "ContainerFailed" })
      assert.lengthOf(yield* upstream.received, 1)
      assert.containSubset(
        told.events.findLast(({ type }) => type.startsWith("tool_call")),
        { type: "tool_call_result", isError: true }
      )
    }).pipe(Effect.scoped)
  )

  it.effect("creates no container and calls no model without a grant for sandboxes", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModel.acquire(wanders)
      const runId = TaskHarness.nextRunId()
      yield* Effect.gen(function* () {
        const told = yield* TaskHarness.told({ graphId: "sandbox:task", messages }, runId, {
          allowSandbox: false
        })
        GraphHarness.isWhole(told.events)
        assert.containSubset(told.final, { ok: false, error: "authz_denied", reason: "SandboxNotAllowed" })
        assert.isUndefined(yield* RunStore.use((store) => store.get(runId)))
      }).pipe(Effect.provide(TaskHarness.layer(upstream.url)))
      assert.lengthOf(yield* upstream.received, 0)
      assert.deepStrictEqual(containersOf(runId), [])
    }).pipe(Effect.scoped)
  )
})

layer(CliProcess.layer, { excludeTestServices: true })("task on the command line", (it) => {
  const environment = (url: string) => ({
    COGNI_LLM_URL: url,
    COGNI_LLM_KEY: TaskHarness.key,
    COGNI_LLM_MODEL: "scripted"
  })

  it.effect("works in an existing directory, shows its tool calls, and writes a patch file", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { fresh, git, workspace } = yield* TaskHarness.project(project)
      const time = { name: "core__get_current_time", args: { timezone: "Europe/Rome" } }
      let told: string | undefined
      const { problems, received, url } = yield* ScriptedModel.acquire((asked) => {
        if (asked.index === 3) return { call: [time, exec("node --test")] }
        told = asked.results.at(-2)
        return mends(asked)
      })
      const file = join(fresh, "..", "fix.patch")
      const argv = ["task", "Make the test pass", "-w", workspace, "--patch", file, "--tool", time.name]
      const ended = yield* cli.run(argv, { env: environment(url) })
      assert.strictEqual(ended.code, 0, ended.stderr)
      assert.deepStrictEqual(yield* problems, [])
      assert.strictEqual(ended.stdout.toString(), "It adds up now.\n")
      for (const line of [
        /^· shell__exec npm test/mu,
        /^· exit code 1/mu,
        /^· file__write src\/sum\.js$/mu,
        /6 tool calls/u
      ]) {
        assert.match(ended.stderr, line)
      }
      // The host's tool was called through the gateway of the run, and not closed there.
      assert.include((yield* received).at(-1)?.tools ?? [], time.name)
      assert.include(told ?? "", time.args.timezone)
      assert.notInclude(told ?? "", "error")
      assert.match(ended.stderr, /1 file changed; the patch is in .*fix\.patch$/mu)
      assert.include(readFileSync(join(workspace, "src/sum.js"), "utf8"), "all + one")
      git(fresh, ["apply", file])
      assert.isTrue(passes(fresh))
      assert.notInclude(`${ended.stdout.toString()}${ended.stderr}`, TaskHarness.key)
    }).pipe(Effect.scoped)
  )

  it.effect("removes the leftovers of a killed command", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      yield* killed(cli)
      assert.strictEqual((yield* cli.run(["task", "--demo", "-q", "Look"])).code, 0)
      assert.deepStrictEqual(yield* cli.leftovers, [])
    }).pipe(Effect.scoped)
  )

  it.effect("a task that reaches a limit exits with 120, and prints its patch to stdout", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { workspace } = yield* TaskHarness.project(project)
      const { url } = yield* ScriptedModel.acquire(wanders)
      const argv = ["task", "Go on", "-w", workspace]
      const steps = yield* cli.run([...argv, "--steps-max", "2"], { env: environment(url) })
      assert.strictEqual(steps.code, 120, steps.stderr)
      assert.match(steps.stdout.toString(), /^\ndiff --git a\/notes\.txt b\/notes\.txt\n[^]*\+step 0\n/u)
      assert.match(steps.stderr, /not done after 2 steps\. Raise --steps-max, or give it less to do$/mu)
      const budget = yield* cli.run([...argv, "--max-calls", "1", "--output", "json"], {
        env: environment(url)
      })
      assert.strictEqual(budget.code, 120, budget.stderr)
      assert.containSubset(JSON.parse(budget.stdout.toString()), {
        ok: false,
        exitCode: 120,
        outcome: "model_failed",
        toolCalls: 1,
        patch: { files: 1 },
        error: { code: "budget", reason: "insufficient_quota", isRetryable: false }
      })
      const nobody = yield* cli.run(argv, { env: environment("http://127.0.0.1:1") })
      assert.strictEqual(nobody.code, 70, nobody.stderr)
      assert.match(nobody.stderr, /\(unreachable\)/u)
    }).pipe(Effect.scoped)
  )
})
