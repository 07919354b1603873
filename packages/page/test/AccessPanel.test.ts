/** Permissions of a grant, as its holder sees them. */
import { assert, describe, it } from "@effect/vitest"
import { createElement } from "react"
import { renderToStaticMarkup } from "react-dom/server"
import { AccessPanel } from "../src/AccessPanel.tsx"

const shown = (permissions: Readonly<Record<string, unknown>>) =>
  renderToStaticMarkup(
    createElement(AccessPanel, {
      grant: {
        id: "grant-1",
        userId: "ana",
        billingAccountId: "acme",
        scopes: [],
        allowSandbox: true,
        mayWrite: true,
        expiresAt: null,
        permissions
      } as Parameters<typeof AccessPanel>[0]["grant"]
    })
  )

describe("AccessPanel", () => {
  it("says whether the grant may propose changes of personalities and skills", () => {
    assert.match(shown({ propose: true }), /Changes of personalities and skills.*may be proposed/u)
    assert.notInclude(shown({}), "Changes of personalities")
  })
})
