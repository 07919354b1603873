/** Permissions of the grant of the caller. */
"use client"

import type { ReactElement } from "react"
import * as Format from "./Format.ts"
import { Facts, Untrusted } from "./Parts.tsx"
import type { Grant } from "./RunModel.ts"

const patterns = (value: unknown, none: string): ReactElement | string =>
  Array.isArray(value) && value.length > 0 ? <Untrusted text={value.map(String).join(", ")} /> : none

/** Rules for tools, such as `ask acme__* (state_change)`. */
const rules = (value: unknown): ReactElement | undefined => {
  if (!Array.isArray(value) || value.length === 0) return undefined
  const texts = value.map((one: unknown) => {
    const { access, effect, tool } = one as Readonly<Record<string, unknown>>
    return `${String(access)} ${String(tool)}${effect === undefined ? "" : ` (${String(effect)})`}`
  })
  return <Untrusted text={texts.join(", ")} />
}

const budget = (value: unknown): string | undefined => {
  if (typeof value !== "object" || value === null) return undefined
  const { callsMax, costUsdMax, outputTokensMax } = value as Readonly<Record<string, unknown>>
  const parts = [
    typeof costUsdMax === "number" ? Format.usd(costUsdMax) : "",
    typeof callsMax === "number" ? `${Format.count(callsMax)} calls` : "",
    typeof outputTokensMax === "number" ? `${Format.count(outputTokensMax)} output tokens` : ""
  ].filter((part) => part !== "")
  return parts.length === 0 ? undefined : parts.join(", ")
}

export const AccessPanel = ({ grant }: { readonly grant: Grant }): ReactElement => {
  const { permissions } = grant
  return (
    <section className="cs-card" aria-label="Your grant">
      <h2>Your grant</h2>
      <Facts
        facts={[
          ["Grant", <span className="cs-mono cs-break">{grant.id}</span>],
          ["User", <Untrusted text={grant.userId} />],
          ["Account that pays", <Untrusted text={grant.billingAccountId} />],
          [
            "Graphs",
            <Untrusted text={grant.scopes.map((scope) => scope.replace("graph:execute:", "")).join(", ")} />
          ],
          ["Changes", grant.mayWrite ? undefined : "none: the grant is read-only"],
          ["Sandboxes", grant.allowSandbox ? "allowed" : "not allowed: no run can be started"],
          ["Models", patterns(permissions["models"], "those that the server offers")],
          ["Tools of the host", patterns(permissions["tools"], "none")],
          ["Rules for tools", rules(permissions["toolRules"])],
          ["Decisions about tool calls", permissions["approve"] === true ? "allowed" : undefined],
          ["Repositories", patterns(permissions["repositories"], "none")],
          ["Packages", patterns(permissions["packages"], "none")],
          ["Budget of one run", budget(permissions["budget"]) ?? "as the server sets it"],
          [
            "Concurrent runs",
            permissions["concurrentRunsMax"] === undefined
              ? "as the server sets it"
              : String(permissions["concurrentRunsMax"])
          ],
          ["Valid until", grant.expiresAt === null ? "revoked" : Format.time(grant.expiresAt)]
        ]}
      />
      <p className="cs-note">Grants are made, listed and revoked on the host: cogni-sandbox grants.</p>
    </section>
  )
}
