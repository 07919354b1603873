/**
 * A walk through the page in a browser, by mouse and by keyboard. `HostilePage.test.ts` has hostile texts.
 *
 * Set `COGNI_SCREENSHOTS` to a directory to keep pictures of what it shows.
 */
import * as ConnectionStore from "@cogni/sandbox-connections/ConnectionStore"
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

/** Connections of the account and of another one, with a use of the first. */
const connected = Effect.gen(function* () {
  const context = yield* Layer.build(ConnectionStore.layerMemory)
  const store = Context.get(context, ConnectionStore.ConnectionStore)
  const secret = "sealed-secret-of-the-connection"
  const add = Effect.fnUntraced(function* (billingAccountId: string, name: string) {
    const connection = yield* ConnectionStore.draft({
      billingAccountId,
      name,
      server: "https://github.com",
      means: { kind: "github_app", installationId: 7 },
      expiresAt: null
    })
    yield* store.add(connection, secret)
    return connection
  })
  const { id } = yield* Effect.orDie(add("acct", "github"))
  yield* Effect.orDie(add("other", "theirs"))
  yield* Effect.orDie(
    store.record({
      leaseId: "lease-1",
      at: new Date("2026-11-26T04:00:00.000Z"),
      event: "failed",
      billingAccountId: "acct",
      grantId: "grant-1",
      runId: "run-1",
      connectionId: id,
      purpose: "push",
      repository: "https://github.com/acme/app",
      toolId: null,
      target: null,
      reason: "SourceUnavailable",
      expiresAt: null
    })
  )
  return { secret, layer: Layer.succeed(ConnectionStore.ConnectionStore, store) }
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
      const good = yield* caller.chat({ ...question, threadId: "1732612345.123400" })
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
        await page.getByRole("link", { name: "1732612345.123400" }).waitFor()
      })
      yield* sound(tab, "sessions, dark and narrow")
      yield* picture(page, "sessions-narrow")
      yield* does(async () => {
        await page.getByRole("radio", { name: "Light" }).click()
        await page.setViewportSize({ width: 1360, height: 900 })
      })
      yield* sound(tab, "sessions")
      yield* picture(page, "sessions")
      yield* does(async () => {
        await page.getByRole("link", { name: "1732612345.123400" }).click()
        await page.getByRole("link", { name: good.runId }).waitFor()
      })
      assert.include(page.url(), "session=1732612345.123400")
    })
  )

  it.effect("starts a run, follows it live, and cancels it, with the keyboard alone", () =>
    Effect.gen(function* () {
      const { agent, left, pageOf, roster, tab, url } = yield* world()
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
      // The run does not need the page that started it.
      yield* does(async () => {
        await page.goto(`${url}/sandbox/agents`)
        await page.getByRole("button", { name: "Start Minimal agent" }).waitFor()
        await page.goto(pageOf(run!.runId))
        await page.getByRole("status").filter({ hasText: "Live" }).waitFor()
        await page.locator(".xterm-rows").getByText("line 40 of the agent").waitFor()
      })
      assert.lengthOf(yield* roster.list, 1)
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

  it.effect("replays a run, with the keyboard alone", () =>
    Effect.gen(function* () {
      const { caller, pageOf, tab } = yield* world()
      const { page } = tab
      const { runId } = yield* caller.chat()
      const rows = page.locator(".xterm-rows")
      const play = page.getByRole("button", { name: "Play", exact: true })
      yield* does(async () => {
        await page.route("**/recording", (route) =>
          route.fulfill({ contentType: "application/x-asciicast", body: hourLong })
        )
        await page.goto(`${pageOf(runId)}?tab=replay`)
        await page.getByText("0:00 of 0:02").waitFor()
        await rows.getByText("first").waitFor()
      })
      yield* sound(tab, "replay")
      yield* picture(page, "replay")
      yield* does(async () => {
        await page.getByRole("radio", { name: "10×" }).focus()
        await page.keyboard.press("Space")
        await play.focus()
        await page.keyboard.press("Enter")
        await rows.getByText("the end").waitFor()
        await page.getByText("0:02 of 0:02").waitFor()
        await play.waitFor()
        // The terminal forgets what is later.
        await page.getByRole("slider", { name: "Time" }).focus()
        await page.keyboard.press("Home")
        await rows.getByText("second").waitFor({ state: "detached" })
        await page.keyboard.press("ArrowRight")
        await rows.getByText("first").waitFor()
        await page.getByRole("button", { name: /At most 2 s/u }).focus()
        await page.keyboard.press("Enter")
        await page.getByRole("option", { name: "As recorded" }).waitFor()
        await page.keyboard.press("Home")
        await page.keyboard.press("Enter")
        await page.getByText("0:00 of 1:00:00").waitFor()
        await play.focus()
        await page.keyboard.press("Enter")
        await page.getByRole("button", { name: "Pause", exact: true }).focus()
        await page.keyboard.press("Enter")
        await play.waitFor()
        await page.getByRole("button", { name: "run ended: exit code 0" }).focus()
        await page.keyboard.press("Enter")
        await rows.getByText("the end").waitFor()
      })
      yield* sound(tab, "replay at its end")
      yield* picture(page, "replay-end")
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
        await page.getByText("not shown to this grant").waitFor()
      })
      yield* sound(tab, "access")
      yield* picture(page, "access")
    })
  )

  it.effect("shows an account's grants and connections to a grant that may see them, and their pages", () =>
    Effect.gen(function* () {
      const connections = yield* connected
      const permissions = {
        seeGrants: true,
        toolRules: [{ tool: "acme__*", access: "ask" as const }],
        connections: [{ connection: "github", purposes: ["fetch" as const, "push" as const] }],
        budget: { costUsdMax: 2, callsMax: 50, onExhausted: "stop" as const }
      }
      const { caller, grant, grants, tab } = yield* world({ connections: connections.layer }, { permissions })
      const { page } = tab
      yield* caller.chat()
      const revoked = yield* Effect.orDie(grant({ userId: "bob" }))
      yield* Effect.orDie(grants.revoke(revoked.id))
      const stranger = yield* Effect.orDie(grant({ billingAccountId: "other" }))
      for (let n = 0; n < 50; n++) yield* Effect.orDie(grant({ userId: `user-${n}` }))
      yield* does(async () => {
        await page.getByRole("link", { name: "Access" }).click()
        await page.getByText("ask acme__*").waitFor()
        await page.getByText("github: fetch, push").waitFor()
        await page.getByText("$2.00, 50 calls; then the run ends").waitFor()
        await page.getByRole("row", { name: "user-0" }).waitFor()
        await page.getByRole("row", { name: /github_app/u }).waitFor()
        await page.getByRole("button", { name: "More grants" }).focus()
        await page.keyboard.press("Enter")
        await page.getByRole("row", { name: `${caller.grantId} (yours)` }).waitFor()
        await page
          .getByRole("row", { name: revoked.id })
          .getByRole("cell", { name: "revoked", exact: true })
          .waitFor()
        await page.getByRole("button", { name: "Show uses of github" }).focus()
        await page.keyboard.press("Space")
        await page.getByRole("row", { name: /failed: SourceUnavailable/u }).waitFor()
      })
      const text = yield* does(() => page.locator("main").innerText())
      for (const never of [stranger.id, "theirs", connections.secret]) assert.notInclude(text, never)
      yield* sound(tab, "access of an account")
      yield* picture(page, "access-account")
      yield* does(async () => {
        await page.getByRole("radio", { name: "Dark" }).click()
        await page.setViewportSize({ width: 390, height: 800 })
      })
      const overflow = yield* does(() =>
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
      )
      assert.strictEqual(overflow, 0, "the page is wider than the screen")
      yield* sound(tab, "access, dark and narrow")
      yield* picture(page, "access-account-narrow")
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
        await page.getByRole("region", { name: "Answer" }).getByText("done").waitFor()
      })
      yield* sound(tab, "pull request")
      yield* picture(page, "pull-request")
      yield* does(async () => {
        await page.getByRole("radio", { name: "Dark" }).click()
        await page.setViewportSize({ width: 390, height: 800 })
      })
      yield* sound(tab, "answer, dark and narrow")
      yield* picture(page, "pull-request-narrow")
    })
  )
})
