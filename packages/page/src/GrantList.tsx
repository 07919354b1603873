/** The grants of an account, newest first. Never their tokens, which no server has. */
"use client"

import type { ReactElement } from "react"
import { Ago } from "./Ago.tsx"
import { EntryList } from "./EntryList.tsx"
import * as Format from "./Format.ts"
import { StateBadge, Untrusted } from "./Parts.tsx"
import type { ListedGrant } from "./RunModel.ts"
import { useSandbox } from "./SandboxProvider.tsx"

const columns = [
  { name: "Grant" },
  { name: "State" },
  { name: "User" },
  { name: "Graphs" },
  { name: "Sandboxes" },
  { name: "Last run" },
  { name: "Valid until" }
]

const idOf = ({ id }: ListedGrant) => id

export const GrantList = ({ ownId }: { readonly ownId: string }): ReactElement => {
  const { client } = useSandbox()
  return (
    <EntryList
      what="grants"
      label="Grants of the account"
      columns={columns}
      empty="This account has no grants."
      idOf={idOf}
      read={async (after, signal) => {
        const { grants, next } = await client.grants(after, signal)
        return { entries: grants, next }
      }}
      cellsOf={({ allowSandbox, expiresAt, id, lastRunAt, scopes, state, userId }) => [
        <span className="cs-mono cs-id">
          {id}
          {id === ownId ? " (yours)" : ""}
        </span>,
        <StateBadge state={state} />,
        <Untrusted text={userId} />,
        <Untrusted text={scopes.map((scope) => scope.replace("graph:execute:", "")).join(", ")} />,
        allowSandbox ? "allowed" : "not allowed",
        lastRunAt === undefined ? "none" : <Ago at={lastRunAt} />,
        expiresAt === null ? "no end" : Format.time(expiresAt)
      ]}
    />
  )
}
