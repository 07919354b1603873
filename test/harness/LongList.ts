/** The page of an account with thousands of runs, in a database behind a server of its own process. */
import { Context, Effect, Layer } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Page } from "playwright-core"
import * as ServerChild from "../bench/ServerChild.ts"
import type { Ready } from "../bench/ServerProcess.ts"
import * as Browser from "./Browser.ts"
import { Built, does, fixture } from "./PageWorld.ts"

/** Runs of two accounts. Two thirds are the page's. */
export const recorded = 10_000

/** Runs of one page of the list. */
export const pageRuns = 50

/** Counts React's commits. React tells the hook of its developer tools about each, also in a release build. */
const counting = `
  window.commits = 0
  window.__REACT_DEVTOOLS_GLOBAL_HOOK__ = {
    renderers: new Map(), supportsFiber: true, isDisabled: false,
    inject: () => 1, onScheduleFiberRoot: () => {}, onCommitFiberUnmount: () => {}, onPostCommitFiberRoot: () => {},
    onCommitFiberRoot: () => { window.commits += 1 }
  }`

/** A server, and a tab that is signed in and shows the list. */
export const acquire = Effect.gen(function* () {
  const { browser, page: files } = yield* Built
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-long-list-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const server = yield* ServerChild.serve({
    database: join(directory, "cogni.db"),
    directory,
    recorded,
    page: files
  })
  const tab = yield* Browser.tab(browser, { url: server.url })
  const { context, page } = tab
  yield* does(async () => {
    await context.addInitScript({ content: counting })
    await page.goto(`${server.url}/sandbox/`)
    await page.getByLabel("Token of a grant").fill(server.token)
    await page.getByRole("button", { name: "Sign in" }).click()
    await page.getByRole("row").nth(pageRuns).waitFor()
  })
  return { server, tab }
})

/** A list that tests share: thousands of runs take seconds to write. */
export class Opened extends Context.Service<Opened, Effect.Success<typeof acquire>>()(
  "@cogni/sandbox-test/LongList"
) {}

export const opened = Layer.effect(Opened, acquire).pipe(Layer.provide(fixture))

/** Starts a run that writes a line every ten milliseconds, and returns its ID. */
export const startPaced = async ({ token, url }: Ready, lines: number): Promise<string> => {
  const response = await fetch(`${url}/api/v1/runs`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({
      graphId: "sandbox:claude-code",
      model: `paced-${lines}`,
      messages: [{ role: "user", content: "say something" }]
    })
  })
  if (response.status !== 202) throw new Error(`${response.status} ${await response.text()}`)
  const { runId } = (await response.json()) as { readonly runId: string }
  return runId
}

/** Cancels a run. */
export const cancel = async ({ token, url }: Ready, runId: string): Promise<void> => {
  const headers = { authorization: `Bearer ${token}` }
  const response = await fetch(`${url}/api/v1/runs/${runId}`, { method: "DELETE", headers })
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
}

/** Returns the size of a page: elements, and bytes of the heap after a garbage collection. */
export const held = (page: Page) =>
  does(async () => {
    const session = await page.context().newCDPSession(page)
    await session.send("HeapProfiler.collectGarbage")
    await session.send("Performance.enable")
    const { metrics } = await session.send("Performance.getMetrics")
    await session.detach()
    const of = (name: string) => metrics.find((metric) => metric.name === name)?.value ?? Number.NaN
    return { nodes: of("Nodes"), heapBytes: of("JSHeapUsedSize") }
  })

export const commits = (page: Page): Promise<number> => page.evaluate<number>("window.commits")
