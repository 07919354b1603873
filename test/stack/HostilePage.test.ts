/**
 * Hostile texts in every field of the page, in a browser: they are only text.
 *
 * Set `COGNI_SCREENSHOTS` to a directory to keep pictures of what it shows.
 */
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { Page, Route } from "playwright-core"
import * as Browser from "../harness/Browser.ts"
import * as HostileTexts from "../harness/HostileTexts.ts"
import { attended, does, fixture, world } from "../harness/PageWorld.ts"

const { picture } = Browser

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
          answer: { chars: 900_000, truncated: true },
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

/** Leaves the modes that hostile text set in a terminal, so that a person sees the line. */
const lastLine = "\u001b[?1049l\u001b[0m\r\nthe last line\r\n"

const recordingOf = (next: () => string): string =>
  [
    { version: 3, term: { cols: 80, rows: 24 }, title: next() },
    ...Array.from({ length: 50 }, () => [0.01, "m", next()]),
    ...HostileTexts.texts.map((text) => [0.01, "o", `${text}\r\n`]),
    [0.01, "o", lastLine],
    [0, next(), next()],
    [0, "x", next()]
  ]
    .map((line) => `${JSON.stringify(line)}\n`)
    .join("")

/** Rows of an account's lists. Each has many texts, so that all are used. */
const rowsMax = 100

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
  [/\/recording$/u, recordingOf],
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
    /\/grants$/u,
    (next) => ({
      grants: HostileTexts.texts.slice(0, rowsMax).map((_, n) => ({
        id: `grant-${n}`,
        userId: next(),
        scopes: [next(), next()],
        allowSandbox: true,
        permissions: { [next()]: next() },
        state: next(),
        createdAt: next(),
        expiresAt: next(),
        lastRunAt: next()
      }))
    })
  ],
  [
    /\/connections$/u,
    (next) => ({
      connections: HostileTexts.texts.slice(0, rowsMax).map((_, n) => ({
        id: `connection-${n}`,
        name: n === 0 ? "first" : next(),
        kind: next(),
        server: next(),
        state: next(),
        createdAt: next(),
        expiresAt: next(),
        lastUsedAt: next()
      }))
    })
  ],
  [
    /\/uses$/u,
    (next) => ({
      uses: HostileTexts.texts.slice(0, rowsMax).map((_, n) => ({
        leaseId: `lease-${n}`,
        at: next(),
        event: next(),
        grantId: next(),
        runId: next(),
        purpose: next(),
        repository: next(),
        toolId: next(),
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

const isText = /\/(?:stdout|stderr|recording|request|answer|patch)$/u

layer(fixture, { excludeTestServices: true })("hostile text", (it) => {
  /** Answers every request with hostile text, except for the sign-in. Each text is used again and again. */
  const hostile = Effect.fnUntraced(function* () {
    const made = yield* world({}, { permissions: { seeGrants: true } })
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

  /** Shows the whole recording, and goes back to its beginning, which writes it anew. */
  const replayed = (page: Page) =>
    does(async () => {
      const place = page.getByRole("slider", { name: "Time" })
      const end = page.locator(".xterm-rows").getByText("the last line")
      await place.focus()
      await page.keyboard.press("End")
      await end.waitFor()
      await page.keyboard.press("Home")
      await end.waitFor({ state: "detached" })
      await page.keyboard.press("End")
      await end.waitFor()
    })

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
      yield* does(async () => {
        await page.getByRole("link", { name: "Access", exact: true }).click()
        await page.getByRole("row", { name: "grant-99" }).waitFor()
        await page.getByRole("button", { name: "Show uses of first" }).click()
        await page.getByRole("table", { name: "Uses of first" }).waitFor()
      })
      yield* harmless(tab, "Access")
      yield* picture(page, "hostile-access")
    })
  )

  it.effect("is only text in every part of a run", () =>
    Effect.gen(function* () {
      const { pageOf, tab } = yield* hostile()
      const { page } = tab
      yield* does(async () => {
        await page.goto(pageOf("run-hostile-0-000"))
        await page.getByRole("region", { name: "Answer" }).locator("pre").waitFor()
      })
      for (const name of ["Output", "Replay", "Timeline", "Model calls", "Tools", "Changes", "Safety"]) {
        yield* does(() => page.getByRole("tab", { name }).click())
        yield* does(() => page.getByRole("progressbar").waitFor({ state: "detached" }))
        if (name === "Output") {
          yield* does(() => page.locator(".xterm-rows").first().waitFor())
          yield* harmless(tab, "terminal")
          yield* does(() => page.getByRole("button", { name: "Plain text" }).click())
          yield* does(() => page.locator(".cs-output").waitFor())
        }
        if (name === "Replay") yield* replayed(page)
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

  it.effect("is only text while a run writes it, and in its replay", () =>
    Effect.gen(function* () {
      const { agent, caller, pageOf, tab } = yield* world()
      const { page } = tab
      agent.act = ({ stderr, stdout, terminated }) =>
        Effect.gen(function* () {
          for (const text of HostileTexts.texts) {
            yield* stdout(`${text}\n`)
            yield* stderr(`${text}\n`)
          }
          yield* stdout(lastLine)
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
      yield* does(() => page.getByRole("tab", { name: "Replay" }).click())
      yield* replayed(page)
      yield* harmless(tab, "replay of a run under way")
    })
  )
})

describe("the corpus", () => {
  it("has 500 different texts", () => {
    assert.strictEqual(new Set(HostileTexts.texts).size, 500)
  })
})
