/** The connections of an account, with the uses of each. Never their credentials. */
"use client"

import { type ReactElement, useState } from "react"
import { ToggleButton } from "react-aria-components"
import { Ago } from "./Ago.tsx"
import { EntryList } from "./EntryList.tsx"
import * as Format from "./Format.ts"
import { StateBadge, Untrusted } from "./Parts.tsx"
import type { Connection, ConnectionUse } from "./RunModel.ts"
import { useSandbox } from "./SandboxProvider.tsx"

const columns = [
  { name: "Connection" },
  { name: "State" },
  { name: "Kind" },
  { name: "Server" },
  { name: "Last use" },
  { name: "Valid until" },
  { name: "Uses" }
]

const useColumns = [
  { name: "Time" },
  { name: "Event" },
  { name: "Purpose" },
  { name: "For" },
  { name: "Run" },
  { name: "Grant" }
]

const idOf = ({ id }: Connection) => id
const idOfUse = ({ event, leaseId }: ConnectionUse) => `${leaseId} ${event}`

const UseList = ({ connection: { id, name } }: { readonly connection: Connection }) => {
  const { client } = useSandbox()
  return (
    <EntryList
      what={`uses of ${name}`}
      label={`Uses of ${name}`}
      columns={useColumns}
      empty="No use of this connection is recorded."
      idOf={idOfUse}
      read={async (after, signal) => {
        const { next, uses } = await client.uses(id, after, signal)
        return { entries: uses, next }
      }}
      cellsOf={({ at, event, grantId, purpose, reason, repository, runId, toolId }) => [
        Format.time(at),
        <Untrusted text={reason === null ? event : `${event}: ${reason}`} />,
        <Untrusted text={purpose} />,
        <Untrusted text={repository ?? toolId ?? Format.unknown} />,
        <Untrusted text={runId ?? Format.unknown} />,
        <Untrusted text={grantId} />
      ]}
    />
  )
}

export const ConnectionList = (): ReactElement => {
  const { client } = useSandbox()
  const [shown, setShown] = useState<Connection>()
  return (
    <>
      <EntryList
        what="connections"
        label="Connections of the account"
        columns={columns}
        empty="This account has no connections. Make one on the host: cogni-sandbox connections add."
        idOf={idOf}
        read={async (after, signal) => {
          const { connections, next } = await client.connections(after, signal)
          return { entries: connections, next }
        }}
        cellsOf={(connection) => [
          <Untrusted text={connection.name} />,
          <StateBadge state={connection.state} />,
          <Untrusted text={connection.kind} />,
          <Untrusted text={connection.server} />,
          connection.lastUsedAt === undefined ? "none" : <Ago at={connection.lastUsedAt} />,
          connection.expiresAt === null ? "no end" : Format.time(connection.expiresAt),
          <ToggleButton
            className="cs-button cs-quiet"
            aria-label={`Show uses of ${connection.name}`}
            isSelected={shown?.id === connection.id}
            onChange={(isOn) => setShown(isOn ? connection : undefined)}
          >
            Show
          </ToggleButton>
        ]}
      />
      {shown === undefined ? null : <UseList key={shown.id} connection={shown} />}
    </>
  )
}
