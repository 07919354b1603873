/** The page in a browser, built as it is released and served by a real server over runs in memory. */
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import type { GrantInput } from "@cogni/sandbox-graph-provider/grants/GrantDraft"
import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import type { Browser as Chromium } from "playwright-core"
import { envelope, question, serve, type WorldOptions } from "../../packages/server/test/ServerWorld.ts"
import * as Browser from "./Browser.ts"
import * as BuiltPage from "./BuiltPage.ts"

interface Fixture {
  readonly browser: Chromium
  /** Directory of the built page. */
  readonly page: string
}

/** A browser, and the built page. */
export class Built extends Context.Service<Built, Fixture>()("@cogni/sandbox-test/Built") {}

export const fixture = Layer.effect(
  Built,
  Effect.all({ browser: Browser.acquire, page: BuiltPage.acquire }, { concurrency: "unbounded" })
)

/** Runs a step of a browser as an effect. */
export const does = <A>(act: () => Promise<A>) => Effect.promise(act)

/** Checks a view with axe, and that the page has done nothing that it must not. */
export const sound = Effect.fnUntraced(function* ({ page, watch }: Browser.Tab, what: string) {
  assert.deepStrictEqual(yield* Browser.violations(page), [], `${what}: axe`)
  assert.deepStrictEqual(watch.offences, [], what)
})

type Serving = ReturnType<typeof serve>
type Caller = Effect.Success<ReturnType<Effect.Success<Serving>["caller"]>>

/** A server with the page, and a browser that is signed in. */
export interface PageWorld extends Omit<Effect.Success<Serving>, "caller"> {
  /** Decides what the next agent does. */
  readonly agent: { act: Program }
  readonly caller: Caller
  readonly tab: Browser.Tab
  readonly pageOf: (runId: string) => string
}

export const world = Effect.fnUntraced(function* (
  served: WorldOptions = {},
  granted: Partial<GrantInput> = {}
): Effect.fn.Return<PageWorld, Effect.Error<Serving>, Effect.Services<Serving> | Built> {
  const { browser, page: files } = yield* Built
  const agent: { act: Program } = { act: ({ stdout }) => Effect.as(stdout(envelope("done")), 0) }
  const server = yield* serve({ ...served, page: files, program: (io) => agent.act(io) })
  const caller = yield* server.caller(granted)
  const tab = yield* Browser.tab(browser, { url: server.url })
  const { page } = tab
  yield* does(async () => {
    await page.goto(`${server.url}/sandbox/`)
    await page.getByLabel("Token of a grant").fill(caller.token)
    await page.getByRole("button", { name: "Sign in" }).click()
    await page.getByRole("heading", { name: "Runs", level: 1 }).waitFor()
  })
  return { ...server, agent, caller, tab, pageOf: (runId: string) => `${server.url}/sandbox/runs/${runId}` }
})

/** Starts a run, and reads its events until the test ends. Node closes an answer that is not read, and so ends its run. */
export const attended = Effect.fnUntraced(function* (caller: Caller) {
  const { response, runId } = yield* caller.open(question)
  void response.text().catch(() => undefined)
  return runId
})
