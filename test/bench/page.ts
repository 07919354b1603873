/**
 * `./dev bench page`: how smooth the page is, over 10,000 runs in a database.
 *
 *     --pages N       pages of the list that are opened (default: all)
 *     --lines N       lines of the run that is watched, one every 10 ms (default 1000)
 *     --followers N   other readers of that run (default 200)
 *     --output DIR    directory for page.json and page.md (default test/bench/results)
 *
 * A headless Chromium, without a graphics processor, shows the built page of a server in another process with SQLite.
 * It goes through the list while a run is under way, types into a filter and clears it, and then watches a run that
 * others follow, too. The browser's own observers take the times: tasks longer than 50 ms, the time from an input to
 * the frame after it, and the times between frames. A wait that does not end is a failure that names it.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Clock, Data, Effect } from "effect"
import { availableParallelism, loadavg, release } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import type { Page } from "playwright-core"
import * as LongList from "../harness/LongList.ts"
import { hangMillis } from "../harness/Pace.ts"
import { fixture } from "../harness/PageWorld.ts"
import * as Followers from "./Followers.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: {
    pages: { type: "string" },
    lines: { type: "string", default: "1000" },
    followers: { type: "string", default: "200" },
    output: { type: "string" }
  }
})
const pagesMax = Number(options.pages ?? Infinity)
const lines = Number(options.lines)
const followers = Number(options.followers)
const load = Math.round((loadavg()[0] ?? 0) * 10) / 10

/** Longest time between two frames that no one notices, in milliseconds. */
const frameMillisMax = 50

/** Lines of the run that is under way while the list is read: more than the walk takes. */
const underWayLines = 100_000

class BenchStopped extends Data.TaggedError("BenchStopped")<{
  readonly what: string
  readonly detail: string
}> {
  override get message(): string {
    return `${this.what}: ${this.detail}`
  }
}

/** Does a step of the walk. Names the step if it fails, or does not end. */
const step = <A>(what: string, act: () => Promise<A>) =>
  Effect.tryPromise({
    try: act,
    catch: (thrown) =>
      new BenchStopped({ what, detail: thrown instanceof Error ? thrown.message : String(thrown) })
  }).pipe(
    Effect.timeoutOrElse({
      duration: hangMillis,
      orElse: () =>
        Effect.fail(new BenchStopped({ what, detail: `has not ended within ${hangMillis / 60_000} minutes` }))
    })
  )

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

interface Part extends Seen {
  readonly name: string
  readonly heapBytes: number
}

/** Runs a part of the walk, and returns what the browser saw of it. */
const part = Effect.fnUntraced(function* <E>(page: Page, name: string, walk: Effect.Effect<unknown, E>) {
  yield* step(`begin to observe ${name}`, () =>
    page.evaluate("window.seen.tasks = [], window.seen.inputs = [], window.seen.frames = []")
  )
  yield* walk
  const seen = yield* step(`read what was observed of ${name}`, () => page.evaluate<Seen>("window.seen"))
  const { heapBytes } = yield* LongList.held(page)
  return { ...seen, name, heapBytes } satisfies Part
})

/** Goes through the list to its end, and scrolls each page. */
const throughList = Effect.fnUntraced(function* (page: Page) {
  const older = page.getByRole("button", { name: "Older runs" })
  let opened = 1
  while (opened < pagesMax && (yield* step("look for an older page", () => older.isEnabled()))) {
    const first = (opened * LongList.pageRuns + 1).toLocaleString("en-US")
    yield* step(`wait for the page that begins at run ${first}`, async () => {
      await older.click()
      await page.getByText(`Runs ${first} to`).waitFor()
      await page.mouse.wheel(0, opened % 2 === 0 ? -2000 : 2000)
    })
    opened += 1
  }
  return opened
})

const throughFilter = Effect.fnUntraced(function* (page: Page) {
  yield* step("type a filter", () => page.getByLabel("Reason").pressSequentially("OomKilled", { delay: 30 }))
  yield* step("wait for the runs that fit the filter", async () => {
    await page.keyboard.press("Enter")
    await page.getByRole("row", { name: "OomKilled" }).first().waitFor()
  })
  yield* step("wait for the newest runs after the filter is cleared", async () => {
    await page.getByRole("button", { name: "Clear" }).click()
    await page.getByText("Runs 1 to").waitFor()
    await page.getByRole("row", { name: "OomKilled" }).first().waitFor({ state: "detached" })
  })
})

const walked = Effect.fnUntraced(function* ({ server, tab }: Effect.Success<typeof LongList.acquire>) {
  const { page } = tab
  const started = (count: number) => step("start a run", () => LongList.startPaced(server, count))
  const underWay = yield* started(underWayLines)
  yield* step("observe the page", () => page.evaluate(observing))
  let opened = 0
  const list = yield* part(
    page,
    "the list",
    Effect.map(throughList(page), (count) => void (opened = count))
  )
  const filter = yield* part(page, "a filter, and no filter", throughFilter(page))
  const runId = yield* started(lines)
  const following = Followers.follow(server, runId, followers)
  // Its failure is that of the step that waits for it.
  following.catch(() => undefined)
  yield* step(`wait for the run ${runId} in the list`, () =>
    page.getByRole("link", { name: runId }).waitFor()
  )
  const watch = step("wait until the watched run has succeeded", async () => {
    await page.getByRole("link", { name: runId }).click()
    await page.locator(".cs-head").getByText("Succeeded").waitFor()
  })
  const live = yield* part(page, `a live run with ${followers} other readers`, watch)
  yield* step("cancel the run under way", () => LongList.cancel(server, underWay))
  const events = yield* step("wait for the other readers", async () => Followers.same(await following))
  const [offence] = tab.watch.offences
  if (offence !== undefined)
    return yield* new BenchStopped({ what: "the page did what it must not", detail: offence })
  return { parts: [{ ...list, name: `${opened} pages of the list` }, filter, live], events }
})

const rounded = (millis: number): number => Math.round(millis * 10) / 10

const at = (all: ReadonlyArray<number>, share: number): number =>
  rounded(
    Samples.percentile(
      all.toSorted((a, b) => a - b),
      share
    ) || 0
  )

const rowOf = ({ frames, heapBytes, inputs, name, tasks }: Part) => ({
  name,
  frames: frames.length,
  frameP50: at(frames, 0.5),
  frameP95: at(frames, 0.95),
  frameMax: at(frames, 1),
  slowFrames: frames.filter((millis) => millis > frameMillisMax).length,
  tasks: tasks.length,
  taskMax: at(tasks, 1),
  inputs: inputs.length,
  inputP95: at(inputs, 0.95),
  heapMegabytes: rounded(heapBytes / 1e6)
})

const report = Effect.fnUntraced(function* ({ events, parts }: Effect.Success<ReturnType<typeof walked>>) {
  const rows = parts.map(rowOf)
  const bars: ReadonlyArray<Report.Bar> = [
    {
      name: "between frames, p95 of the worst part, ms",
      value: Math.max(...rows.map(({ frameP95 }) => frameP95)),
      atMost: frameMillisMax
    },
    { name: "longest task, ms", value: Math.max(...rows.map(({ taskMax }) => taskMax)), atMost: 200 },
    {
      name: "input to frame, p95, ms",
      value: at(
        parts.flatMap(({ inputs }) => inputs),
        0.95
      ),
      atMost: 200
    },
    { name: "heap, MB", value: Math.max(...rows.map(({ heapMegabytes }) => heapMegabytes)), atMost: 100 }
  ]
  const machine = {
    cores: availableParallelism(),
    kernel: release(),
    node: process.version,
    "load before": load
  }
  const takenAt = new Date(yield* Clock.currentTimeMillis).toISOString()
  const header = [
    "part",
    "frames",
    "between them, p50",
    "p95",
    "max",
    `over ${frameMillisMax} ms`,
    "tasks over 50 ms",
    "longest",
    "slow inputs",
    "input to frame, p95",
    "heap, MB"
  ]
  const text = [
    `The page over ${LongList.recorded.toLocaleString("en-US")} runs in SQLite, in a headless Chromium without a graphics processor. Times in milliseconds. Browser, server and this process share the machine.`,
    Report.table(
      header,
      rows.map((row) => Object.values(row))
    ),
    `The watched run wrote ${lines} lines, one every 10 ms; each of its ${followers} other readers got ${events} events. An input of less than 16 ms is not counted as slow, so p95 is that of the slow ones. The heap is that after a garbage collection.`,
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

NodeRuntime.runMain(
  LongList.acquire.pipe(
    Effect.flatMap(walked),
    Effect.flatMap(report),
    Effect.provide(fixture),
    Effect.scoped
  )
)
