/**
 * `./dev bench page`: how smooth the page is, over 10,000 runs in a database.
 *
 *     --pages N       pages of the list that are opened (default 40)
 *     --output DIR    directory for page.json and page.md (default test/bench/results)
 *
 * A headless Chromium, without a graphics processor, shows the built page of a server in another process with SQLite.
 * It goes through the list while a run is under way, types into a filter, scrolls, and then watches a run that writes a
 * line every 10 ms. The browser's own observers take the times: tasks longer than 50 ms, the time from an input to the
 * frame after it, and the times between frames.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Clock, Effect } from "effect"
import { availableParallelism, loadavg, release } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import type { Page } from "playwright-core"
import * as LongList from "../harness/LongList.ts"
import { does, fixture } from "../harness/PageWorld.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: { pages: { type: "string", default: "40" }, output: { type: "string" } }
})
const pages = Number(options.pages)
const load = Math.round((loadavg()[0] ?? 0) * 10) / 10

/** Lines of a run that is watched. */
const lines = 500

/** Observes the page until it is asked for what it saw. Scripts for the browser are texts. */
const observing = `{
  window.seen = { tasks: [], inputs: [], frames: [] }
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) window.seen.tasks.push(duration)
  }).observe({ type: "longtask" })
  new PerformanceObserver((list) => {
    for (const { duration, interactionId } of list.getEntries())
      if (interactionId > 0) window.seen.inputs.push(duration)
  }).observe({ type: "event", durationThreshold: 16 })
  let last = performance.now()
  const frame = (now) => {
    window.seen.frames.push(now - last)
    last = now
    requestAnimationFrame(frame)
  }
  requestAnimationFrame(frame)
}`

interface Seen {
  readonly tasks: ReadonlyArray<number>
  readonly inputs: ReadonlyArray<number>
  readonly frames: ReadonlyArray<number>
}

/** Runs a part of the walk, and returns what the browser saw of it. */
const part = async (page: Page, act: () => Promise<unknown>): Promise<Seen> => {
  await page.evaluate("window.seen.tasks = [], window.seen.inputs = [], window.seen.frames = []")
  await act()
  return await page.evaluate<Seen>("window.seen")
}

const walked = async (page: Page, start: (lines: number) => Promise<string>) => {
  // Long enough to be under way meanwhile.
  await start(lines * 20)
  await page.evaluate(observing)
  const list = await part(page, async () => {
    const older = page.getByRole("button", { name: "Older runs" })
    for (let place = 1; place <= pages; place++) {
      await older.click()
      await page.getByText(`Runs ${(place * 50 + 1).toLocaleString("en-US")} to`).waitFor()
      await page.mouse.wheel(0, place % 2 === 0 ? -2000 : 2000)
    }
  })
  const filter = await part(page, async () => {
    await page.getByLabel("Reason").pressSequentially("OomKilled", { delay: 30 })
    await page.keyboard.press("Enter")
    await page.getByText("OomKilled").first().waitFor()
    await page.getByRole("button", { name: "Clear" }).click()
    await page.getByText("OomKilled").first().waitFor({ state: "detached" })
  })
  const runId = await start(lines)
  await page.getByRole("link", { name: runId }).waitFor()
  const live = await part(page, async () => {
    await page.getByRole("link", { name: runId }).click()
    await page.locator(".cs-head").getByText("Succeeded").waitFor()
  })
  return { [`${pages} pages of the list`]: list, "a filter": filter, "a run that is written": live }
}

const rounded = (millis: number): number => Math.round(millis * 10) / 10

const p95 = (all: ReadonlyArray<number>): number =>
  rounded(
    Samples.percentile(
      [...all].toSorted((a, b) => a - b),
      0.95
    ) || 0
  )

const report = Effect.fnUntraced(function* (parts: Readonly<Record<string, Seen>>) {
  const rows = Object.entries(parts).map(([name, { frames, inputs, tasks }]) => ({
    name,
    frames: frames.length,
    framesP95: p95(frames),
    inputs: inputs.length,
    inputsP95: p95(inputs),
    tasks: tasks.length,
    longest: rounded(Math.max(0, ...tasks))
  }))
  const bars: ReadonlyArray<Report.Bar> = [
    { name: "longest task, ms", value: Math.max(...rows.map(({ longest }) => longest)), atMost: 200 },
    {
      name: "input to frame, p95 in ms",
      value: p95(Object.values(parts).flatMap(({ inputs }) => inputs)),
      atMost: 200
    }
  ]
  const machine = {
    cores: availableParallelism(),
    kernel: release(),
    node: process.version,
    "load before": load
  }
  const takenAt = new Date(yield* Clock.currentTimeMillis).toISOString()
  const text = [
    `The page over ${LongList.recorded.toLocaleString("en-US")} runs in SQLite, in a headless Chromium without a graphics processor. Times in milliseconds. Browser, server and this process share the machine.`,
    Report.table(
      [
        "part",
        "frames",
        "between frames, p95",
        "slow inputs",
        "input to frame, p95",
        "tasks over 50 ms",
        "longest"
      ],
      rows.map((row) => [
        row.name,
        row.frames,
        row.framesP95,
        row.inputs,
        row.inputsP95,
        row.tasks,
        row.longest
      ])
    ),
    "An input of less than 16 ms is not counted as slow, so p95 is that of the slow ones.",
    Report.barTable(bars),
    Report.taken({ takenAt, machine })
  ].join("\n\n")
  Report.publish({
    name: "page",
    title: "The page, measured",
    text,
    data: { takenAt, machine, rows, bars },
    bars,
    directory: options.output ?? join(import.meta.dirname, "results")
  })
})

const main = Effect.gen(function* () {
  const { server, tab } = yield* LongList.acquire
  const start = (lines: number) => LongList.startPaced(server, lines)
  yield* report(yield* does(() => walked(tab.page, start)))
})

NodeRuntime.runMain(Effect.scoped(Effect.provide(main, fixture)))
