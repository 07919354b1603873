// @vitest-environment happy-dom
/** The cards of calls that wait, in a document: whole arguments, and buttons that do not move or take a late press. */
import { assert, describe, it } from "@effect/vitest"
import { QueryClient, QueryClientProvider } from "@tanstack/react-query"
import { act, createElement } from "react"
import { createRoot } from "react-dom/client"
import { vi } from "vitest"
import * as ApprovalArguments from "../src/ApprovalArguments.ts"
import { PendingApprovals } from "../src/ApprovalPanel.tsx"
import type { Approval } from "../src/RunModel.ts"
import { SandboxProvider } from "../src/SandboxProvider.tsx"

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true })

const approval = (id: string, changes: Partial<Approval> = {}): Approval => ({
  id,
  runId: "run-4f7k2m9q0x1z",
  tool: "acme__pay",
  effect: "state_change",
  arguments: '{"text":"3 EUR"}',
  askedBy: {},
  requestedAt: "2026-01-01T00:00:00.000Z",
  expiresAt: "2026-01-01T00:04:00.000Z",
  status: "pending",
  ...changes
})

/** Typed here, because only these tests need a document. */
interface Element {
  readonly innerHTML: string
  readonly textContent: string
  readonly disabled: boolean
  readonly children: ArrayLike<Element>
  readonly click: () => void
  readonly querySelectorAll: (selector: string) => Iterable<Element>
}

const { document } = globalThis as unknown as {
  readonly document: {
    readonly createElement: (tag: string) => Element & Parameters<typeof createRoot>[0]
    readonly body: { readonly append: (element: Element) => void }
  }
}

/** Renders lists one after the other. The server refuses every decision. */
const make = () => {
  const asked: Array<string> = []
  const options = {
    fetch: ((input, init) => {
      asked.push(`${String(input)} ${String(init?.body)}`)
      const error = { code: "authz_denied", reason: "ApprovalNotGranted", message: "may not decide" }
      return Promise.resolve(Response.json({ error }, { status: 403 }))
    }) satisfies typeof globalThis.fetch
  }
  const client = new QueryClient()
  const element = document.createElement("main")
  document.body.append(element)
  const root = createRoot(element)
  const settle = () => act(async () => void (await vi.advanceTimersByTimeAsync(700)))
  return {
    asked,
    element,
    settle,
    all: (selector: string) => [...element.querySelectorAll(selector)],
    press: (index: number) => act(async () => [...element.querySelectorAll("button")][index]!.click()),
    show: (approvals: ReadonlyArray<Approval>, mayWrite?: boolean) =>
      act(async () =>
        root.render(
          createElement(
            QueryClientProvider,
            { client },
            createElement(
              SandboxProvider,
              { options, ...(mayWrite === undefined ? {} : { mayWrite }) },
              createElement(PendingApprovals, { approvals })
            )
          )
        )
      ),
    end: async () => {
      await act(async () => root.unmount())
      client.clear()
    }
  }
}

/** Decides with the clock of the test. */
const play = async (scene: (page: ReturnType<typeof make>) => Promise<void>) => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] })
  const page = make()
  try {
    await scene(page)
  } finally {
    await page.end()
    vi.useRealTimers()
  }
}

const [one, two] = [approval("apr-1"), approval("apr-2", { tool: "acme__drop" })]

describe("PendingApprovals", () => {
  it("takes no press within 700 ms after the list has changed", () =>
    play(async ({ asked, press, settle, show }) => {
      await show([one])
      await press(0)
      assert.deepStrictEqual(asked, [])
      await settle()
      await show([two, one])
      await press(0)
      assert.deepStrictEqual(asked, [])
      await settle()
      await press(0)
      assert.deepStrictEqual(asked, ['/api/v1/approvals/apr-1 {"decision":"approve"}'])
    }))

  it("keeps a call that has ended in its place, with the same parts and without its buttons", () =>
    play(async ({ all, asked, press, settle, show }) => {
      await show([two, one])
      await settle()
      const [first, second] = all("li")
      const parts = first!.children.length
      await show([two, { ...one, status: "denied" }])
      await settle()
      assert.isTrue(all("li")[0] === first && all("li")[1] === second)
      assert.strictEqual(first!.children.length, parts)
      assert.deepStrictEqual(
        all("button").map(({ disabled }) => disabled),
        [true, true, false, false]
      )
      await press(0)
      assert.deepStrictEqual(asked, [])
      await press(3)
      assert.deepStrictEqual(asked, ['/api/v1/approvals/apr-2 {"decision":"deny"}'])
    }))

  it("shows a call without buttons to a caller that may only look", () =>
    play(async ({ all, show }) => {
      await show([one], false)
      assert.include(all("li")[0]!.textContent, "acme__pay")
      assert.lengthOf(all("button, input"), 0)
      await show([one], true)
      assert.lengthOf(all("button"), 2)
    }))

  it("shows an error below the buttons, in a place that was kept for it", () =>
    play(async ({ all, press, settle, show }) => {
      await show([one])
      await settle()
      const parts = () => all("li")[0]!.children.length
      const before = parts()
      await press(0)
      await settle()
      const problem = all("li > .cs-approval-problem")[0]!
      assert.include(problem.textContent, "ApprovalNotGranted")
      assert.strictEqual(parts(), before)
      assert.isTrue(all("li > :last-child")[0] === problem)
    }))

  it("shows arguments whole: with their lines, or as they are if these would be too many", () =>
    play(async ({ all, show }) => {
      const deep = `${"[".repeat(4000)}"\u0301\u0301\u0301\u0301\u0301\u0301 pay"${"]".repeat(4000)}`
      const wide = `${"[".repeat(30)}${"0,".repeat(7000)}0${"]".repeat(30)}`
      assert.isAbove(JSON.stringify(JSON.parse(wide), undefined, 2).length, ApprovalArguments.prettyCharsMax)
      assert.strictEqual(ApprovalArguments.shown(wide), wide)
      assert.strictEqual(
        ApprovalArguments.shown('["[{\\"[",{"a":[]}]'),
        '[\n  "[{\\"[",\n  {\n    "a": []\n  }\n]'
      )
      assert.strictEqual(
        ApprovalArguments.shown(deep),
        deep.replace("\u0301\u0301 pay", "⟨U+0301⟩⟨U+0301⟩ pay")
      )
      await show([approval("apr-3", { arguments: deep }), one])
      const [pretty, raw] = all("pre").map(({ textContent }) => textContent)
      assert.strictEqual(pretty, '{\n  "text": "3 EUR"\n}')
      assert.strictEqual(raw, ApprovalArguments.shown(deep))
    }))
})
