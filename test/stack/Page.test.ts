/**
 * A walk through the page in a browser, by mouse and by keyboard. `HostilePage.test.ts` has hostile texts.
 *
 * Set `COGNI_SCREENSHOTS` to a directory to keep pictures of what it shows.
 */
import * as Approvals from "@cogni/sandbox-core/Approvals"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { RunId } from "@cogni/sandbox-core/RunId"
import { assert, layer } from "@effect/vitest"
import { Context, Deferred, Effect, Layer } from "effect"
import { AgentId } from "@cogni/sandbox-graph-provider/agents/Agent"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import { Repositories } from "@cogni/sandbox-graph-provider/Repositories"
import * as RelayRepositories from "@cogni/sandbox-server/RelayRepositories"
import * as MemoryGitRelay from "../../packages/git-relay/src/MemoryGitRelay.ts"
import { envelope, question, serve } from "../../packages/server/test/ServerWorld.ts"
import * as Browser from "../harness/Browser.ts"
import { attended, Built, does, fixture, sound, world } from "../harness/PageWorld.ts"

const { picture } = Browser

const outOfMemory: Program = ({ stderr }) =>
  Effect.as(stderr("allocating\n"), {
    exitCode: 137,
    oomKilled: true,
    processesRefused: false,
    peak: { memoryBytes: 1024 ** 3, processes: 12 }
  })

/** Writes lines with color, until it is terminated. */
const talking: Program = ({ stdout, terminated }) =>
  Effect.gen(function* () {
    yield* stdout("\u001b[32mready\u001b[0m\n")
    // Colors that are no class of the terminal, so that it needs styles.
    for (let line = 1; line <= 40; line++)
      yield* stdout(`\u001b[38;2;120;200;${line}mline ${line}\u001b[0m of the agent\n`)
    yield* terminated
    return 143
  })

/** A server with a relay in memory, and an agent that commits these files. */
const relayed = Effect.fnUntraced(function* (files: MemoryGitRelay.Files) {
  const context = yield* Layer.build(
    RelayRepositories.layer({ forges: [{ host: "memory.example" }] }).pipe(
      Layer.provideMerge(MemoryGitRelay.layer())
    )
  )
  const git = Context.get(context, MemoryGitRelay.MemoryGit)
  const made = yield* world({
    agents: [
      { ...minimal, id: AgentId.make("worker"), capabilities: { ...minimal.capabilities, tools: true } }
    ],
    repositories: Layer.succeed(Repositories, Context.get(context, Repositories))
  })
  made.agent.act = ({ spec, stdout }) =>
    git
      .commit({ request: { runId: spec.runId } } as never, files)
      .pipe(Effect.andThen(stdout(envelope("done"))), Effect.as(0))
  const url = yield* git.origin("acme/app", { "a.txt": "a\n" })
  const { runId } = yield* made.caller.chat({
    ...question,
    graphId: "sandbox:worker",
    repository: { url, pullRequest: true }
  })
  return { ...made, runId }
})

/** A recording whose agent was quiet for an hour. */
const hourLong = [
  { version: 3, term: { cols: 80, rows: 24 } },
  [0, "m", "run started"],
  [0, "o", "first\r\n"],
  [3600, "o", "\u001b[38;2;120;200;90msecond\u001b[0m\r\n"],
  [0.2, "o", "the end\r\n"],
  [0, "m", "run ended: exit code 0"],
  [0, "x", "0"]
]
  .map((line) => `${JSON.stringify(line)}\n`)
  .join("")

/** The commits of a run as git writes them, which the relay in memory does not have. */
const patch = `From ${"a".repeat(40)} Mon Sep 17 00:00:00 2001
From: agent <agent@sandbox>
Subject: [PATCH] Round invoices

---
diff --git a/src/Invoice.ts b/src/Invoice.ts
index 1111111..2222222 100644
--- a/src/Invoice.ts
+++ b/src/Invoice.ts
@@ -12,3 +12,4 @@ export const total = (lines) => {
   let sum = 0
-  for (const line of lines) sum += line.price
+  // Each line is rounded.
+  for (const line of lines) sum += round(line.price)
   return sum
--${" "}
2.50

`

layer(fixture, { excludeTestServices: true })("the page", (it) => {
  it.effect("asks for a token, tells why one is refused, and forgets it at the sign-out", () =>
    Effect.gen(function* () {
      const { browser, page: files } = yield* Built
      const server = yield* serve({ page: files })
      const caller = yield* server.caller()
      const tab = yield* Browser.tab(browser, { url: server.url })
      const { page } = tab
      yield* does(() => page.goto(`${server.url}/sandbox/runs/run-12345678?tab=calls`).then(() => undefined))
      const field = page.getByLabel("Token of a grant")
      yield* does(() => field.waitFor())
      yield* sound(tab, "sign-in")
      yield* picture(page, "sign-in")
      yield* does(async () => {
        await field.fill(`cgs_${"A".repeat(43)}`)
        await page.getByRole("button", { name: "Sign in" }).click()
        await page.getByText("no grant has this token").waitFor()
        await field.fill(caller.token)
        await page.keyboard.press("Enter")
        await page.getByText("RunNotFound").waitFor()
      })
      assert.strictEqual(yield* does(() => page.evaluate("document.cookie")), "")
      const storage = yield* does(() =>
        page.evaluate<string>("JSON.stringify([{ ...localStorage }, { ...sessionStorage }])")
      )
      assert.notInclude(storage, caller.token)
      yield* does(async () => {
        await page.getByRole("button", { name: "Sign out" }).click()
        await field.waitFor()
        await page.reload()
        await field.waitFor()
      })
      assert.deepStrictEqual(tab.watch.offences, [])
    })
  )

  it.effect("signs out by itself when the grant is revoked", () =>
    Effect.gen(function* () {
      const { caller, grants, tab } = yield* world()
      yield* grants.revoke(caller.grantId)
      yield* does(() => tab.page.getByRole("link", { name: "Sessions" }).click())
      yield* does(() => tab.page.getByText(/signed out: .*revoked/u).waitFor())
    })
  )

  it.effect("lists runs as they come, filters them, and works in the dark and on a telephone", () =>
    Effect.gen(function* () {
      const { agent, caller, tab } = yield* world()
      const { page } = tab
      yield* does(() => page.getByText("no runs yet").waitFor())
      yield* sound(tab, "empty list")
      const good = yield* caller.chat({ ...question, threadId: "thread-1" })
      agent.act = outOfMemory
      const bad = yield* caller.chat()
      // Nothing is reloaded: the list finds them.
      yield* does(async () => {
        await page.getByRole("link", { name: bad.runId }).waitFor()
        await page.getByRole("link", { name: good.runId }).waitFor()
        await page.getByText("OomKilled").waitFor()
      })
      yield* sound(tab, "list")
      yield* picture(page, "list")
      yield* does(async () => {
        await page.getByRole("button", { name: /^.*Status/u }).click()
        await page.getByRole("option", { name: "Failed" }).click()
        await page.getByRole("link", { name: good.runId }).waitFor({ state: "detached" })
      })
      assert.include(page.url(), "status=failed")
      yield* does(async () => {
        await page.reload()
        await page.getByRole("link", { name: bad.runId }).waitFor()
        await page.getByLabel("Reason").fill("DiskFull")
        await page.keyboard.press("Enter")
        await page.getByText("No run fits this filter.").waitFor()
        await page.getByRole("button", { name: "Clear" }).click()
        await page.getByRole("link", { name: good.runId }).waitFor()
        await page.getByRole("radio", { name: "Dark" }).click()
      })
      yield* sound(tab, "dark list")
      yield* picture(page, "list-dark")
      yield* does(() => page.setViewportSize({ width: 390, height: 800 }))
      yield* does(() => page.getByRole("columnheader", { name: "Cost" }).waitFor({ state: "detached" }))
      const overflow = yield* does(() =>
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
      )
      assert.strictEqual(overflow, 0, "the page is wider than the screen")
      yield* sound(tab, "narrow list")
      yield* picture(page, "list-narrow")
      yield* does(async () => {
        await page.getByRole("link", { name: "Sessions" }).click()
        await page.getByRole("link", { name: "thread-1" }).click()
        await page.getByRole("link", { name: good.runId }).waitFor()
      })
      assert.include(page.url(), "session=thread-1")
    })
  )

  it.effect("starts a run, follows it live, and cancels it, with the keyboard alone", () =>
    Effect.gen(function* () {
      const { agent, left, roster, tab } = yield* world()
      const { page } = tab
      agent.act = talking
      yield* does(async () => {
        await page.getByRole("link", { name: "Agents" }).focus()
        await page.keyboard.press("Enter")
        await page.getByRole("button", { name: "Start Minimal agent" }).waitFor()
      })
      yield* sound(tab, "agents")
      yield* picture(page, "agents")
      yield* does(async () => {
        await page.getByRole("button", { name: "Start Minimal agent" }).focus()
        await page.keyboard.press("Enter")
        await page.getByRole("dialog").waitFor()
      })
      yield* sound(tab, "start")
      yield* picture(page, "start")
      yield* does(async () => {
        await page.keyboard.type("Count to forty")
        await page.getByRole("button", { name: "Start", exact: true }).focus()
        await page.keyboard.press("Enter")
        await page.locator(".cs-head .cs-info").waitFor()
        await page.getByRole("status").filter({ hasText: "Live" }).waitFor()
        // The terminal's own text for screen readers.
        await page.locator(".xterm-rows").getByText("line 40 of the agent").waitFor()
      })
      yield* sound(tab, "live run")
      yield* picture(page, "live")
      const [run] = yield* roster.list
      yield* does(async () => {
        await page.getByRole("button", { name: "Cancel run" }).focus()
        await page.keyboard.press("Enter")
        await page.getByRole("alertdialog").waitFor()
      })
      yield* sound(tab, "question before a cancellation")
      yield* picture(page, "cancel")
      yield* does(async () => {
        // The safe answer has the focus.
        await page.keyboard.press("Enter")
        await page.getByRole("alertdialog").waitFor({ state: "detached" })
      })
      assert.lengthOf(yield* roster.list, 1)
      yield* does(async () => {
        await page.getByRole("button", { name: "Cancel run" }).click()
        await page.getByRole("alertdialog").getByRole("button", { name: "Cancel run" }).click()
        await page.locator(".cs-head .cs-info").waitFor({ state: "detached" })
        await page.getByRole("tab", { name: "Timeline" }).click()
        await page.getByText("Phase").first().waitFor()
      })
      yield* left(run!.runId)
      yield* sound(tab, "timeline")
      yield* picture(page, "timeline")
      yield* does(async () => {
        await page.getByRole("button", { name: "The same as a table" }).click()
        await page.getByRole("rowheader", { name: "agent" }).waitFor()
      })
      yield* sound(tab, "timeline as a table")
    })
  )

  it.effect("shows a call that waits for an approval, live, and takes the decision from the keyboard", () =>
    Effect.gen(function* () {
      const { agent, approvals, caller, grant, pageOf, tab, url } = yield* world({
        approvals: Approvals.layerMemory
      })
      const { page } = tab
      agent.act = talking
      const runId = yield* attended(caller)
      yield* does(() => page.getByRole("link", { name: runId }).waitFor())
      const request = (text: string) =>
        approvals.request({
          runId: RunId.make(runId),
          billingAccountId: "acct",
          requestId: text,
          tool: "acme__pay",
          effect: "external_side_effect",
          arguments: JSON.stringify({ text, amount: 3 }),
          argumentsDigest: "d".repeat(64),
          askedBy: { userId: "ana" },
          waitSecondsMax: 3600
        })
      /** Presses count only some time after the list has changed. */
      const settled = () => page.locator('ul[data-settled="true"]').waitFor()
      const first = yield* Effect.orDie(request("<b>Invoice 7</b>\u202e"))
      yield* does(async () => {
        await page.getByText("1 tool call waits for approval").waitFor()
        await page.locator(".cs-why").getByRole("link", { name: runId }).waitFor()
      })
      yield* sound(tab, "list with a call that waits")
      yield* picture(page, "list-approval")
      yield* does(async () => {
        await page.goto(pageOf(runId))
        await page.getByText("<b>Invoice 7</b>⟨U+202E⟩").waitFor()
        await page.getByText("acts outside of this host").waitFor()
      })
      yield* sound(tab, "call that waits")
      yield* picture(page, "approval")
      const second = yield* Effect.orDie(request("again"))
      const approve = page.getByRole("button", { name: "Approve call of acme__pay" })
      const deny = page.getByRole("button", { name: "Deny call of acme__pay" })
      /** Place of the last button in its document. */
      const place = async () => {
        const box = await deny.last().boundingBox()
        return [box?.x, (box?.y ?? 0) + (await page.evaluate<number>("scrollY"))]
      }
      const before = yield* does(async () => {
        await deny.nth(1).waitFor()
        await settled()
        const found = await place()
        await approve.first().focus()
        await page.keyboard.press("Enter")
        // This grant may not decide.
        await page.getByText("ApprovalNotGranted").waitFor()
        assert.deepStrictEqual(await place(), found, "an error moves no button")
        return found
      })
      assert.strictEqual((yield* Effect.orDie(approvals.list({ status: "pending" }))).length, 2)
      const approver = yield* Effect.orDie(grant({ permissions: { approve: true } }))
      yield* does(async () => {
        await page.getByRole("button", { name: "Sign out" }).click()
        await page.getByLabel("Token of a grant").fill(approver.token)
        await page.keyboard.press("Enter")
        await settled()
        await approve.first().focus()
        await page.keyboard.press("Enter")
        await page.getByRole("button", { name: "Approve call of acme__pay", disabled: true }).waitFor()
        assert.deepStrictEqual(await place(), before, "a call that has ended moves no button")
        await settled()
        await page
          .getByLabel(/^Reason/u)
          .last()
          .fill("too expensive")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.getByText("No tool call waits for approval").waitFor()
        await page.getByRole("tab", { name: "Tools" }).click()
        await page.getByText("too expensive").waitFor()
      })
      yield* sound(tab, "decisions")
      yield* picture(page, "approvals-decided")
      const ends = yield* Effect.orDie(approvals.list({ runId }))
      assert.deepStrictEqual(
        ends.map(({ decidedBy, id, status }) => [id, status, decidedBy?.id]),
        [
          [second.id, "denied", approver.id],
          [first.id, "approved", approver.id]
        ]
      )
      assert.include(page.url(), url)
    })
  )

  it.effect("explains a run that was out of memory", () =>
    Effect.gen(function* () {
      const { agent, caller, pageOf, tab } = yield* world({ llm: { calls: [{ model: "called-model" }] } })
      const { page } = tab
      const full = yield* Deferred.make<void>()
      agent.act = (io) => Effect.andThen(Deferred.await(full), outOfMemory(io))
      const runId = yield* attended(caller)
      yield* does(async () => {
        await page.goto(pageOf(runId))
        await page.getByRole("status").filter({ hasText: "Live" }).waitFor()
        await page.getByRole("tab", { name: "Model calls" }).click()
        await page.getByText("The run has not called a model.").waitFor()
      })
      yield* Deferred.succeed(full, undefined)
      yield* does(async () => {
        await page.getByText("because memory ran out").waitFor()
        // The record of a run that has ended has its calls.
        await page.getByText("called-model").waitFor()
        await page.getByRole("tab", { name: "Output" }).click()
        await page.getByRole("meter", { name: "Memory" }).waitFor()
        await page.getByRole("radio", { name: "stderr" }).click()
        await page.locator(".xterm-rows").getByText("allocating").waitFor()
        await page.getByRole("button", { name: "Plain text" }).click()
        await page.locator(".cs-output").getByText("allocating").waitFor()
      })
      yield* sound(tab, "out of memory")
      yield* picture(page, "out-of-memory")
      yield* does(async () => {
        await page.getByRole("tab", { name: "Replay" }).click()
        await page.getByRole("button", { name: "run ended: OomKilled" }).click()
        await page.locator(".xterm-rows").getByText("allocating").waitFor()
      })
      yield* sound(tab, "replay")
      yield* picture(page, "out-of-memory-replay")
      for (const name of ["Model calls", "Tools", "Changes", "Safety"]) {
        yield* does(() => page.getByRole("tab", { name }).click())
        yield* does(() => page.getByRole("progressbar").waitFor({ state: "detached" }))
        yield* sound(tab, name)
        yield* picture(page, `out-of-memory-${name.toLowerCase().replace(" ", "-")}`)
      }
    })
  )

  it.effect("shows what the push policy refused, and whose grant it is", () =>
    Effect.gen(function* () {
      const { pageOf, runId, tab } = yield* relayed({ ".github/workflows/ci.yml": "on: push\n" })
      const { page } = tab
      yield* does(async () => {
        await page.goto(`${pageOf(runId)}?tab=changes`)
        await page.getByText("PolicyRefused").waitFor()
        await page.getByText("Not delivered, kept on the host").waitFor()
        await page.getByRole("link", { name: "https://memory.example/acme/app" }).waitFor()
        await page.getByRole("button", { name: "Deliver again" }).click()
        // This server delivers nothing again.
        await page.getByRole("alert").waitFor()
      })
      yield* sound(tab, "refused by policy")
      yield* picture(page, "refused")
      yield* does(async () => {
        await page.getByRole("link", { name: "Access" }).click()
        await page.getByText("Account that pays").waitFor()
      })
      yield* sound(tab, "access")
      yield* picture(page, "access")
    })
  )

  it.effect("shows a run's pull request, and its patch line by line", () =>
    Effect.gen(function* () {
      const { pageOf, runId, store, tab } = yield* relayed({ "src/Invoice.ts": "rounded\n" })
      const { page } = tab
      const files = [{ path: "src/Invoice.ts", added: 2, removed: 1 }]
      const changes = { commits: 1, files, filesTotal: 1, patchBytes: patch.length, patchTruncated: false }
      yield* Effect.orDie(store.annotate(RunId.make(runId), { changes, patch }))
      yield* does(async () => {
        await page.goto(`${pageOf(runId)}?tab=changes`)
        await page.getByRole("link", { name: /^https:\/\/memory\.example\/acme\/app\/pull/u }).waitFor()
        await page.getByText("// Each line is rounded.").waitFor()
        await page.getByText("@@ -12,3 +12,4 @@").waitFor()
      })
      yield* sound(tab, "pull request")
      yield* picture(page, "pull-request")
    })
  )
})

/** An answer of the API in which every text is hostile. */
type Hostile = (next: () => string) => object

const cost = { currency: "USD", costUsd: 1.5, calls: 3, callsWithoutCost: 1, isSettled: true }

const hostileRun =
  (runId: string, isWhole: boolean): Hostile =>
  (next) => ({
    runId,
    status: next(),
    graphId: next(),
    agentId: next(),
    model: next(),
    repository: next(),
    startedAt: "2026-11-26T04:00:00.000Z",
    endedAt: "2026-11-26T04:01:00.000Z",
    grantId: next(),
    requestId: next(),
    sessionId: next(),
    userId: next(),
    traceId: next(),
    exitCode: 0,
    error: { code: next(), reason: next() },
    timings: [{ phase: next(), durationMs: 5 }],
    output: { stdoutBytes: 10, stderrBytes: 10, stdoutTruncated: false, stderrTruncated: true },
    cost: { ...cost, states: { pending: 1, matched: 0, drifted: 0, missing: 0, estimated: 2 } },
    ...(isWhole
      ? {
          limits: { memoryBytesMax: 1000, [next()]: next() },
          peak: { memoryBytes: 900 },
          budget: { costUsdMax: 1, [next()]: next() },
          suspicions: [
            { at: next(), canary: next(), encoding: next(), channel: "stdout", requestId: next() }
          ],
          posture: {
            userIds: [1000],
            capabilities: { effective: next(), bounding: next() },
            noNewPrivileges: true,
            seccompMode: 2,
            interfaces: [next()],
            routes: [next()],
            mounts: [{ target: next(), fileSystem: next(), readOnly: false }],
            confirmedBy: [next()]
          },
          relay: {
            status: next(),
            origin: next(),
            branch: next(),
            baseBranch: next(),
            tip: next(),
            pullRequestUrl: next()
          },
          changes: {
            commits: 1,
            files: HostileTexts.texts.map((path) => ({ path, added: 1, removed: 2 })),
            filesTotal: 900,
            patchBytes: 100,
            patchTruncated: true
          }
        }
      : {})
  })

/** A patch whose names and lines are hostile. */
const hostilePatch = (next: () => string): string => {
  const oneLine = (text: string) => text.replaceAll(/[\r\n]/gu, " ")
  return [1, 2, 3]
    .map(
      (n) =>
        `From ${"a".repeat(40)} Mon Sep 17 00:00:00 2001\nFrom: ${oneLine(next())}\nSubject: ${oneLine(next())}\n\n` +
        `${oneLine(next())}\n---\n` +
        `diff --git a/${n}${oneLine(next())} b/${n}x\nindex 1111111..2222222 100644\n--- a/${n}x\n+++ b/${n}x\n` +
        `@@ -1,20 +1,40 @@ ${oneLine(next())}\n` +
        `${Array.from({ length: 20 }, () => `-${oneLine(next())}\n`).join("")}` +
        `${Array.from({ length: 40 }, () => `+${oneLine(next())}\n`).join("")}-- \n2.50\n\n`
    )
    .join("")
}

const eventsOf = (next: () => string): string =>
  [
    { type: "run.started" },
    { type: "phase.ended", phase: "create", durationMs: 5 },
    ...HostileTexts.texts.map((text, from) => ({ type: "output.written", channel: "stdout", from, text })),
    ...Array.from({ length: 200 }, (_, n) => ({
      type: "tool.started",
      toolCallId: `${n}${next()}`,
      tool: next(),
      arguments: next()
    })),
    ...Array.from({ length: 50 }, (_, n) => ({
      type: "tool.approval_requested",
      approvalId: `${n}${next()}`,
      toolCallId: next(),
      tool: next(),
      effect: "state_change",
      argumentsDigest: next(),
      expiresAt: next()
    })),
    { type: "message.written", text: next() }
  ]
    .map((event, index) => ({ ...event, seq: index + 1, at: "2026-11-26T04:00:01.000Z" }))
    .map((event) => `id: ${event.seq}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
    .join("")

/** Answers of the API by the end of their path. */
const answers: ReadonlyArray<
  readonly [path: RegExp, body: (next: () => string, url: URL) => string | object]
> = [
  [
    /\/ai\/agents$/u,
    (next) => ({
      agents: Array.from({ length: 20 }, (_, n) => ({
        agentId: `sandbox:agent-${n}`,
        graphId: `sandbox:agent-${n}`,
        name: next(),
        description: next()
      }))
    })
  ],
  [
    /\/runs$/u,
    (next, url) => {
      const page = Number(url.searchParams.get("after") ?? 0)
      const runs = Array.from({ length: 50 }, (_, n) =>
        hostileRun(`run-hostile-${page}-${String(n).padStart(3, "0")}`, false)(next)
      )
      return { runs, ...(page < 9 ? { next: String(page + 1) } : {}) }
    }
  ],
  [/\/(?:stdout|stderr)$/u, () => HostileTexts.texts.join("\n")],
  [/\/(?:request|answer)$/u, () => HostileTexts.texts.join("\n")],
  [/\/patch$/u, hostilePatch],
  [/\/events$/u, eventsOf],
  [
    /\/calls$/u,
    (next) => ({
      calls: HostileTexts.texts.map((_, n) => ({
        at: next(),
        requestId: `${n}${next()}`,
        callId: next(),
        method: next(),
        path: next(),
        status: 500,
        outcome: next(),
        model: next(),
        requestBytes: 1,
        cost: { costUsd: 1, state: next(), reason: next() }
      })),
      callsTotal: 900
    })
  ],
  [
    /\/tools$/u,
    (next) => ({
      tools: HostileTexts.texts.map((_, n) => ({
        source: next(),
        at: next(),
        tool: next(),
        outcome: next(),
        toolCallId: `${n}${next()}`,
        arguments: next(),
        result: next()
      })),
      truncated: true
    })
  ],
  [
    /\/approvals$/u,
    (next) => ({
      approvals: HostileTexts.texts.slice(0, 200).map((_, n) => ({
        id: `apr-${n}`,
        runId: `run-waiting-${n}`,
        tool: next(),
        effect: next(),
        arguments: n % 2 === 0 ? next() : JSON.stringify({ [next()]: next() }),
        askedBy: { userId: next() },
        requestedAt: next(),
        expiresAt: next(),
        status: n < 50 ? "pending" : next(),
        decidedAt: next(),
        decidedBy: { type: next(), id: next() },
        reason: next()
      }))
    })
  ],
  [
    /\/audit$/u,
    (next) => ({
      ok: false,
      head: { entries: 3, hash: "a".repeat(64) },
      closed: true,
      headKnown: true,
      problem: { kind: next(), line: 3, detail: next() }
    })
  ]
]

/** Returns the beginning of each element that a page of ours never makes. */
const plantedElements = `{
  const all = [...document.querySelectorAll("*")]
  const made = "IMG IFRAME OBJECT EMBED VIDEO AUDIO BASE MARQUEE MATH DETAILS".split(" ")
  const planted = all.filter((element) =>
    made.includes(element.tagName) ||
    (element.tagName === "SCRIPT" && element.src === "") ||
    (element.tagName === "STYLE") ||
    (element.tagName === "A" && !["https:", "http:"].includes(element.protocol)) ||
    element.hasAttribute("action") ||
    [...element.attributes].some(({ name }) => name.startsWith("on")))
  planted.map((element) => element.outerHTML.slice(0, 300))
}`

const isText = /\/(?:stdout|stderr|request|answer|patch)$/u

layer(fixture, { excludeTestServices: true })("hostile text", (it) => {
  /** Answers every request with hostile text, except for the sign-in. Each text is used again and again. */
  const hostile = Effect.fnUntraced(function* () {
    const made = yield* world()
    let used = 0
    const next = () => HostileTexts.texts[used++ % HostileTexts.texts.length]!
    const answer = async (route: Route) => {
      const url = new URL(route.request().url())
      if (url.pathname.endsWith("/sign-in")) return route.continue()
      const [, body = undefined] = answers.find(([path]) => path.test(url.pathname)) ?? []
      const content = body?.(next, url) ?? hostileRun(url.pathname.split("/").at(-1)!, true)(next)
      const isStream = url.pathname.endsWith("/events")
      return route.fulfill({
        status: 200,
        contentType: isStream
          ? "text/event-stream"
          : isText.test(url.pathname)
            ? "text/plain; charset=utf-8"
            : "application/json",
        body: typeof content === "string" ? content : JSON.stringify(content)
      })
    }
    yield* does(() => made.tab.page.route("**/api/v1/**", answer))
    return { ...made, used: () => used }
  })

  /** Returns elements and addresses that only hostile text can have made. */
  const planted = (page: Page) => does(() => page.evaluate<ReadonlyArray<string>>(plantedElements))

  const harmless = Effect.fnUntraced(function* ({ page, watch }: Browser.Tab, what: string) {
    assert.deepStrictEqual(yield* planted(page), [], what)
    assert.deepStrictEqual(watch.offences, [], what)
  })

  it.effect("is only text in the list: 500 runs, in every field", () =>
    Effect.gen(function* () {
      const { tab, url, used } = yield* hostile()
      const { page } = tab
      yield* does(async () => {
        await page.goto(`${url}/sandbox/`)
        await page.getByRole("link", { name: "run-hostile-0-049" }).waitFor()
        // However long the list is, one page of it is in the document.
        for (let older = 1; older <= 9; older++) {
          await page.getByRole("button", { name: "Older runs" }).click()
          await page.getByRole("link", { name: `run-hostile-${older}-049` }).waitFor()
        }
      })
      assert.isAtLeast(used(), 500 * 10)
      assert.strictEqual(yield* does(() => page.getByRole("row").count()), 51)
      yield* does(async () => {
        await page.getByRole("button", { name: "Newer runs" }).click()
        await page.getByRole("link", { name: "run-hostile-8-049" }).waitFor()
        await page.getByRole("button", { name: "Newest runs" }).click()
        await page.getByRole("link", { name: "run-hostile-0-049" }).waitFor()
      })
      yield* harmless(tab, "list")
      yield* picture(page, "hostile-list")
      for (const name of ["Sessions", "Agents"]) {
        yield* does(() => page.getByRole("link", { name, exact: true }).click())
        yield* does(() => page.getByRole("heading", { name, level: 1 }).waitFor())
        yield* does(() => page.getByRole("progressbar").waitFor({ state: "detached" }))
        yield* harmless(tab, name)
      }
    })
  )

  it.effect("is only text in every part of a run", () =>
    Effect.gen(function* () {
      const { pageOf, tab } = yield* hostile()
      const { page } = tab
      yield* does(() => page.goto(pageOf("run-hostile-0-000")).then(() => undefined))
      for (const name of ["Output", "Timeline", "Model calls", "Tools", "Changes", "Safety"]) {
        yield* does(() => page.getByRole("tab", { name }).click())
        yield* does(() => page.getByRole("progressbar").waitFor({ state: "detached" }))
        if (name === "Output") {
          yield* does(() => page.locator(".xterm-rows").first().waitFor())
          yield* harmless(tab, "terminal")
          yield* does(() => page.getByRole("button", { name: "Plain text" }).click())
          yield* does(() => page.locator(".cs-output").waitFor())
        }
        yield* harmless(tab, name)
        yield* picture(page, `hostile-${name.toLowerCase().replace(" ", "-")}`)
      }
      yield* does(async () => {
        await page.getByRole("tab", { name: "Model calls" }).click()
        await page
          .getByRole("button", { name: /^Show request and answer/u })
          .first()
          .click()
        await page.getByRole("dialog").locator("pre").waitFor()
      })
      yield* harmless(tab, "bodies")
      assert.strictEqual(yield* does(() => page.title()), "run-hostile-0-000 · Cogni Sandbox")
    })
  )

  it.effect("is only text while a run writes it", () =>
    Effect.gen(function* () {
      const { agent, caller, pageOf, tab } = yield* world()
      const { page } = tab
      agent.act = ({ stderr, stdout, terminated }) =>
        Effect.gen(function* () {
          for (const text of HostileTexts.texts) {
            yield* stdout(`${text}\n`)
            yield* stderr(`${text}\n`)
          }
          yield* stdout("\u001b[?1049l\u001b[0m\nthe last line\n")
          yield* terminated
          return 143
        })
      const runId = yield* attended(caller)
      yield* does(async () => {
        await page.goto(pageOf(runId))
        await page.locator(".xterm-rows").getByText("the last line").waitFor()
      })
      yield* harmless(tab, "live output")
      yield* picture(page, "hostile-live")
    })
  )
})

describe("the corpus", () => {
  it("has 500 different texts", () => {
    assert.strictEqual(new Set(HostileTexts.texts).size, 500)
  })
})
