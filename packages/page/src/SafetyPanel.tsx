/** Why a run can be trusted, or not: its isolation, its canaries and its audit. */
"use client"

import { useQuery } from "@tanstack/react-query"
import type { ReactElement } from "react"
import { ApiProblem } from "./ApiProblem.ts"
import * as Format from "./Format.ts"
import { Facts, Loading, Problem, Untrusted } from "./Parts.tsx"
import type { AuditVerdict, Run } from "./RunModel.ts"
import { isActive } from "./RunModel.ts"
import { useSandbox } from "./SandboxProvider.tsx"
import * as VisibleText from "./VisibleText.ts"

const verdictWords = ({
  closed,
  headKnown,
  ok,
  problem
}: AuditVerdict): readonly [tone: string, words: string] => {
  if (!ok || problem !== undefined)
    return [
      "bad",
      `Not intact: ${VisibleText.line(problem?.kind ?? "changed", 80)}, at line ${problem?.line ?? "unknown"}`
    ]
  if (!headKnown) return ["warn", "Intact, but its end is not confirmed by the record of the run"]
  return closed ? ["good", "Intact and complete"] : ["warn", "Intact so far, and not closed"]
}

const Audit = ({ run }: { readonly run: Run }) => {
  const { client, scope } = useSandbox()
  const { data, error, refetch } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "audit", run.runId],
    queryFn: ({ signal }) => client.audit(run.runId, signal),
    staleTime: 30_000
  })
  if (error instanceof ApiProblem && error.status === 404)
    return <p className="cs-note">This server has no audit of the run. It is on the host that ran it.</p>
  if (error !== null) return <Problem error={error} onRetry={refetch} />
  if (data === undefined) return <Loading what="audit" />
  const [tone, words] = verdictWords(data)
  return (
    <>
      <p>
        <span className={`cs-badge cs-${tone}`}>{words}</span>
      </p>
      <Facts
        facts={[
          ["Entries", Format.count(data.head.entries)],
          ["Last hash", <span className="cs-mono cs-break">{data.head.hash}</span>],
          ["Problem", data.problem && <Untrusted text={data.problem.detail} />]
        ]}
      />
    </>
  )
}

const list = (values: ReadonlyArray<string>) =>
  values.length === 0 ? "none" : <Untrusted text={values.join(", ")} />

const seccompModes = ["off", "strict", "filter"] as const

export const SafetyPanel = ({ run }: { readonly run: Run }): ReactElement => {
  const { posture, suspicions = [] } = run
  return (
    <div className="cs-cards">
      <section className="cs-card" aria-label="Audit">
        <h2>Audit</h2>
        {isActive(run) ? (
          <p className="cs-note">The audit can be verified when the run has ended.</p>
        ) : (
          <Audit run={run} />
        )}
      </section>
      <section className="cs-card" aria-label="Canaries">
        <h2>Canaries</h2>
        {suspicions.length === 0 ? (
          <p>
            <span className="cs-badge cs-good">
              <span aria-hidden="true">✓</span> No planted secret was seen leaving
            </span>
          </p>
        ) : (
          <ul className="cs-plain">
            {suspicions.map(({ at, canary, channel, encoding }, index) => (
              <li key={index}>
                <span className="cs-badge cs-bad">
                  <span aria-hidden="true">!</span> <Untrusted text={canary} />
                </span>{" "}
                in <Untrusted text={channel} />, <Untrusted text={encoding} />, {Format.time(at)}
              </li>
            ))}
          </ul>
        )}
      </section>
      <section className="cs-card" aria-label="Isolation">
        <h2>Isolation</h2>
        {posture === undefined ? (
          <p className="cs-note">
            The isolation was not reported. The agent did not start, or the run is still starting.
          </p>
        ) : (
          <Facts
            facts={[
              ["Confirmed by", list(posture.confirmedBy)],
              ["Network interfaces", list(posture.interfaces)],
              ["Routes", list(posture.routes)],
              ["User IDs", list([...new Set(posture.userIds)].map(String))],
              ["Capabilities", `${posture.capabilities.effective}, at most ${posture.capabilities.bounding}`],
              ["New privileges", posture.noNewPrivileges ? "forbidden" : "possible"],
              ["System calls", seccompModes[posture.seccompMode] ?? String(posture.seccompMode)],
              [
                "Writable mounts",
                list(posture.mounts.filter(({ readOnly }) => !readOnly).map(({ target }) => target))
              ]
            ]}
          />
        )}
      </section>
    </div>
  )
}
