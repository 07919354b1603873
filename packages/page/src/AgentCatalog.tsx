/** The agents of a server, and a form that starts one. */
"use client"

import { useAgents } from "@cogni/sandbox-react/Agents"
import type { ReactElement } from "react"
import { Heading } from "react-aria-components"
import { Empty, Facts, Loading, Problem, Untrusted } from "./Parts.tsx"
import { StartRun } from "./StartRun.tsx"

interface AgentCatalogProps {
  /** Whether the caller may start runs. Defaults to true; the server decides. */
  readonly canStart?: boolean
  readonly onStarted?: (runId: string) => void
}

/** The capabilities that an agent has, in words. */
const capable = (capabilities: object | undefined): string =>
  Object.entries(capabilities ?? {})
    .filter(([, has]) => has === true)
    .map(([name]) => name.replaceAll(/[A-Z]/gu, (letter) => ` ${letter.toLowerCase()}`))
    .join(", ")

export const AgentCatalog = ({ canStart = true, onStarted }: AgentCatalogProps): ReactElement => {
  const { data, error, refetch } = useAgents()
  if (error !== null) return <Problem error={error} onRetry={refetch} />
  if (data === undefined) return <Loading what="agents" />
  if (data.length === 0) return <Empty>This server has no agents.</Empty>
  return (
    <section aria-label="Agents" className="cs-cards">
      {data.map(({ capabilities, description, graphId, modelApi, name }) => (
        <article key={graphId} className="cs-card cs-agent" aria-label={name}>
          <Heading level={2}>
            <Untrusted text={name} />
          </Heading>
          <p>{description === null ? null : <Untrusted text={description} />}</p>
          <Facts
            facts={[
              ["Graph", <span className="cs-mono">{graphId}</span>],
              ["Model API", modelApi],
              ["Capabilities", capable(capabilities)]
            ]}
          />
          {canStart ? (
            <StartRun graphId={graphId} name={name} {...(onStarted === undefined ? {} : { onStarted })} />
          ) : null}
        </article>
      ))}
    </section>
  )
}
