// @vitest-environment happy-dom
// @vitest-environment-options {"settings": {"fetch": {"disableSameOriginPolicy": true}}}
/** The hook in a document, against a real server. */
import { AgentsProvider, agentsQuery, useAgents } from "@cogni/sandbox-react/Agents"
import { type AgentsOptions, AgentsUnavailable } from "../src/AgentsClient.ts"
import { assert, describe, it } from "@effect/vitest"
import { QueryClient, QueryClientProvider } from "@tanstack/react-query"
import { Effect } from "effect"
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { act, createElement, type FunctionComponent } from "react"
import { createRoot } from "react-dom/client"
import { serve } from "../../server/test/ServerWorld.ts"

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true })

const Menu: FunctionComponent = () => {
  const { data, error, isPending } = useAgents()
  if (isPending) return createElement("p", null, "one moment")
  if (error !== null) return createElement("p", { role: "alert" }, `${error.reason}: ${error.message}`)
  return createElement(
    "ul",
    null,
    ...data.map(({ agentId, name }) => createElement("li", { key: agentId }, name))
  )
}

type Place = Parameters<typeof createRoot>[0] & { readonly innerHTML: string }

/** Typed here, because only this test needs a document. */
const { document } = globalThis as unknown as {
  readonly document: { readonly createElement: (tag: string) => Place }
}

/** Renders the menu twice, and returns the content of the document once it has settled. */
const shown = Effect.fnUntraced(function* (options: AgentsOptions) {
  const client = new QueryClient()
  const element = document.createElement("main")
  const root = createRoot(element)
  yield* Effect.addFinalizer(() =>
    Effect.promise(async () => {
      await act(async () => root.unmount())
      client.clear()
    })
  )
  yield* Effect.promise(() =>
    act(async () =>
      root.render(
        createElement(
          QueryClientProvider,
          { client },
          createElement(AgentsProvider, { options }, createElement(Menu), createElement(Menu))
        )
      )
    )
  )
  const isPending = () => element.innerHTML.includes("one moment")
  const turn = () => act(async () => void (await new Promise((resolve) => setImmediate(resolve))))
  yield* Effect.repeat(Effect.promise(turn), { while: isPending })
  return { html: element.innerHTML, client }
})

/** Counts requests. */
const counting = (fetch: typeof globalThis.fetch) => {
  const counted = { calls: 0 }
  return {
    counted,
    fetch: ((input, init) => {
      counted.calls += 1
      return fetch(input, init)
    }) satisfies typeof globalThis.fetch
  }
}

const answer =
  (body: string, status = 200): typeof globalThis.fetch =>
  () =>
    Promise.resolve(new Response(body, { status }))

describe("useAgents", () => {
  it.effect("shows the catalog of a server, with one request for all components", () =>
    Effect.gen(function* () {
      const { caller, url } = yield* serve()
      const { headers } = yield* caller()
      const { counted, fetch } = counting(globalThis.fetch)
      const { html } = yield* shown({ baseUrl: `${url}/`, headers, fetch })
      const list = "<ul><li>Minimal agent</li><li>Talker</li></ul>"
      assert.strictEqual(html, `${list}${list}`)
      assert.strictEqual(counted.calls, 1)
    })
  )

  it.effect("shows why a server refuses, in the server's words, without a retry", () =>
    Effect.gen(function* () {
      const { url } = yield* serve()
      const { counted, fetch } = counting(globalThis.fetch)
      const { html } = yield* shown({ baseUrl: url, fetch })
      assert.include(html, '<p role="alert">GrantMissing: the request has no token')
      assert.strictEqual(counted.calls, 1)
    })
  )

  it.effect.each<[string, typeof globalThis.fetch, string]>([
    ["another page", answer("<html></html>"), "NoCatalog"],
    ["invalid agents", answer('{"agents":[{"agentId":"x"}]}'), "NoCatalog"],
    ["a list without its object", answer("[]"), "NoCatalog"],
    ["a refusal by an intermediary", answer("nope", 401), "Refused: the agent server answered 401"]
  ])("%s is an error, never data", ([, fetch, what]) =>
    Effect.gen(function* () {
      const { client, html } = yield* shown({ fetch })
      assert.include(html, what)
      const { error } = client.getQueryState<unknown, AgentsUnavailable>(agentsQuery().queryKey)!
      assert.instanceOf(error, AgentsUnavailable)
      assert.isFalse(error!.isRetryable)
    })
  )

  it.live("the README's example renders", () =>
    Effect.gen(function* () {
      const here = dirname(fileURLToPath(import.meta.url))
      const folder = join(here, "../../../.cogni")
      const readme = readFileSync(join(here, "../README.md"), "utf8")
      const [, example = ""] = /^```tsx\n([\s\S]*?)^```/mu.exec(readme) ?? []
      // In the repository, where its imports can be resolved. Ignored by git.
      mkdirSync(folder, { recursive: true })
      const path = join(folder, `readme-of-react-${process.pid}.tsx`)
      yield* Effect.acquireRelease(
        Effect.sync(() => writeFileSync(path, `/** @jsxImportSource react */\n${example}`)),
        () => Effect.sync(() => rmSync(path))
      )
      const { App } = (yield* Effect.promise(() => import(/* @vite-ignore */ path))) as {
        readonly App: FunctionComponent
      }
      const element = document.createElement("main")
      const root = createRoot(element)
      yield* Effect.promise(() => act(async () => root.render(createElement(App))))
      assert.strictEqual(element.innerHTML, "<select></select>")
      yield* Effect.promise(() => act(async () => root.unmount()))
    })
  )

  it("retries a temporary failure twice", () => {
    const { retry } = agentsQuery()
    const again = retry as (failures: number, error: AgentsUnavailable) => boolean
    const busy = new AgentsUnavailable({ status: 503, reason: "ServerStopping", message: "" })
    const gone = new AgentsUnavailable({ status: undefined, reason: "Unreachable", message: "" })
    const denied = new AgentsUnavailable({ status: 403, reason: "GrantExpired", message: "" })
    assert.deepStrictEqual(
      [again(0, busy), again(1, gone), again(2, busy), again(0, denied)],
      [true, true, false, false]
    )
  })
})
