/**
 * The page of an account with thousands of runs. Only what does not depend on the machine: what is in the document, in
 * memory, and how often it is asked and rendered. `./dev bench page` measures times.
 */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { does, sound } from "../harness/PageWorld.ts"
import * as LongList from "../harness/LongList.ts"

/** Rows of a page of the list, with its header. */
const rows = LongList.pageRuns + 1

/** Time between two renderings of new events, and between two renewals of what shows the time, in milliseconds. */
const feedMillis = 60
const tickMillis = 1000

layer(LongList.opened, { excludeTestServices: true })("the list of ten thousand runs", (it) => {
  it.effect(
    "has one page in the document, asks once for each, and keeps no more memory after fifteen of them",
    () =>
      Effect.gen(function* () {
        const { tab } = yield* LongList.Opened
        const { page } = tab
        const asked: Array<string> = []
        page.on("request", (request) => {
          const { pathname, searchParams } = new URL(request.url())
          if (pathname === "/api/v1/runs") asked.push(searchParams.get("after") ?? "")
        })
        const older = page.getByRole("button", { name: "Older runs" })
        const go = (from: number, to: number) =>
          does(async () => {
            for (let place = from; place < to; place++) {
              await older.click()
              await page
                .getByText(`Runs ${(place * LongList.pageRuns + 1).toLocaleString("en-US")} to`)
                .waitFor()
              assert.strictEqual(await page.getByRole("row").count(), rows, `page ${place}`)
            }
          })
        yield* go(1, 5)
        const before = yield* LongList.held(page)
        yield* go(5, 20)
        const after = yield* LongList.held(page)
        // The list is also read again by itself. No page was left out, and none is asked for in a loop.
        assert.isAtLeast(new Set(asked).size, 19)
        assert.isBelow(asked.length, 19 * 3)
        assert.isBelow(after.nodes - before.nodes, 5000, "elements that are kept")
        assert.isBelow(after.heapBytes - before.heapBytes, 16 * 1024 * 1024, "bytes that are kept")
        yield* sound(tab, "page 20")
      })
  )

  it.effect("begins at its newest runs after a filter is cleared, wherever it was before", () =>
    Effect.gen(function* () {
      const { server, tab } = yield* LongList.Opened
      const { page } = tab
      const runId = yield* does(() => LongList.startPaced(server, 1))
      yield* does(async () => {
        await page.goto(`${server.url}/sandbox/`)
        await page.getByRole("button", { name: "Older runs" }).click()
        await page.getByText("Runs 51 to").waitFor()
        await page.getByLabel("Reason").fill("OomKilled")
        await page.keyboard.press("Enter")
        await page.getByRole("row", { name: "OomKilled" }).first().waitFor()
        await page.getByRole("button", { name: "Clear" }).click()
        await page.getByText("Runs 1 to").waitFor()
        await page.getByRole("link", { name: runId }).waitFor()
      })
      assert.deepStrictEqual(tab.watch.offences, [])
    })
  )

  it.effect("shows a run that is written live in few renderings, and its list keeps one page", () =>
    Effect.gen(function* () {
      const { server, tab } = yield* LongList.Opened
      const { page } = tab
      const lines = 300
      const runId = yield* does(() => LongList.startPaced(server, lines))
      yield* does(async () => {
        await page.goto(`${server.url}/sandbox/`)
        await page.getByRole("link", { name: runId }).waitFor()
      })
      assert.strictEqual(yield* does(() => page.getByRole("row").count()), rows)
      const { millis, rendered } = yield* does(async () => {
        const [commits, start] = [
          await LongList.commits(page),
          await page.evaluate<number>("performance.now()")
        ]
        await page.getByRole("link", { name: runId }).click()
        await page.locator(".cs-head").getByText("Succeeded").waitFor()
        const end = await page.evaluate<number>("performance.now()")
        return { rendered: (await LongList.commits(page)) - commits, millis: end - start }
      })
      assert.isAbove(rendered, 0, "React tells its commits")
      // The events of the run, however many, and the clocks of the page. A page that is opened renders some times more.
      const most = 60 + (millis / feedMillis) * 1.5 + (millis / tickMillis) * 10
      assert.isBelow(rendered, most, `commits in ${Math.round(millis)} ms, for ${lines} lines`)
      assert.deepStrictEqual(tab.watch.offences, [])
    })
  )
})
