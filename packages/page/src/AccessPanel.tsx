/** Permissions of the grant of the caller, and who else uses the account, if the grant may see that. */
"use client"

import type { ReactElement } from "react"
import * as Format from "./Format.ts"
import { ConnectionList } from "./ConnectionList.tsx"
import { GrantList } from "./GrantList.tsx"
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

/** Figures of a budget, in words. */
const figures: ReadonlyArray<readonly [name: string, words: (figure: number) => string]> = [
  ["costUsdMax", Format.usd],
  ["callsMax", (figure) => `${Format.count(figure)} calls`],
  ["inputTokensMax", (figure) => `${Format.count(figure)} input tokens`],
  ["outputTokensMax", (figure) => `${Format.count(figure)} output tokens`],
  ["bytesMax", Format.bytes],
  ["concurrentCallsMax", (figure) => `${Format.count(figure)} calls at once`],
  ["requestsPerSecondMax", (figure) => `${Format.count(figure)} calls a second`],
  ["subagentShareMax", (figure) => `at most ${Math.round(figure * 100)}% for subagents`]
]

const budget = (value: unknown): string | undefined => {
  if (typeof value !== "object" || value === null) return undefined
  const given = value as Readonly<Record<string, unknown>>
  const parts = figures.flatMap(([name, words]) => {
    const figure = given[name]
    return typeof figure === "number" ? [words(figure)] : []
  })
  if (parts.length === 0) return undefined
  return `${parts.join(", ")}; then ${given["onExhausted"] === "stop" ? "the run ends" : "calls are refused"}`
}

/** Rules for connections, such as `github: fetch, push`. */
const uses = (value: unknown): ReactElement | undefined => {
  if (!Array.isArray(value)) return undefined
  const texts = value.map((one: unknown) => {
    const { connection, purposes } = one as Readonly<Record<string, unknown>>
    return `${String(connection)}: ${Array.isArray(purposes) ? purposes.map(String).join(", ") : "nothing"}`
  })
  return <Untrusted text={texts.length === 0 ? "none" : texts.join("; ")} />
}

const OwnGrant = ({ grant }: { readonly grant: Grant }): ReactElement => {
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
          [
            "Changes of personalities and skills",
            permissions["propose"] === true ? "may be proposed" : undefined
          ],
          ["Repositories", patterns(permissions["repositories"], "none")],
          ["Connections", uses(permissions["connections"]) ?? "those of the server, for these repositories"],
          ["Packages", patterns(permissions["packages"], "none")],
          ["Budget of one run", budget(permissions["budget"]) ?? "as the server sets it"],
          [
            "Concurrent runs",
            permissions["concurrentRunsMax"] === undefined
              ? "as the server sets it"
              : String(permissions["concurrentRunsMax"])
          ],
          ["Valid until", grant.expiresAt === null ? "it is revoked" : Format.time(grant.expiresAt)],
          [
            "Grants and connections",
            permissions["seeGrants"] === true ? "listed below" : "not shown to this grant"
          ]
        ]}
      />
    </section>
  )
}

export const AccessPanel = ({ grant }: { readonly grant: Grant }): ReactElement => (
  <div className="cs-panel">
    <OwnGrant grant={grant} />
    {grant.permissions["seeGrants"] === true ? (
      <>
        <GrantList ownId={grant.id} />
        <ConnectionList />
      </>
    ) : null}
    <p className="cs-note">
      Grants and connections are made and revoked on the host: cogni-sandbox grants, cogni-sandbox
      connections.
    </p>
  </div>
)
