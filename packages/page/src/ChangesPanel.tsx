/** Changes of a run in its repository, and the delivery of its commits. */
"use client"

import { useMutation, useQueryClient } from "@tanstack/react-query"
import { memo, type ReactElement } from "react"
import { Button } from "react-aria-components"
import * as Format from "./Format.ts"
import { DataTable } from "./DataTable.tsx"
import { DiffView } from "./DiffView.tsx"
import { Empty, Facts, OuterLink, Problem, Untrusted } from "./Parts.tsx"
import { isActive, type Run } from "./RunModel.ts"
import { useSandbox } from "./SandboxProvider.tsx"

const words: Readonly<Record<string, string>> = {
  skipped: "The agent changed nothing",
  pushed: "Pushed",
  unchanged: "Already on the branch",
  patched: "Written as a patch",
  kept: "Kept on the host, not delivered",
  failed: "Not delivered, kept on the host"
}

/** Delivery states whose commits the host still has. */
const retryable = new Set(["kept", "failed"])

const Retry = ({ runId }: Pick<Run, "runId">) => {
  const { client, scope } = useSandbox()
  const queries = useQueryClient()
  const { data, error, isPending, mutate } = useMutation({
    mutationFn: () => client.deliver(runId),
    onSettled: () => queries.invalidateQueries({ queryKey: ["@cogni/sandbox-page", scope, "run", runId] })
  })
  return (
    <>
      <Button className="cs-button" isPending={isPending} onPress={() => mutate()}>
        {isPending ? "Delivering…" : "Deliver again"}
      </Button>
      {error === null ? null : <Problem error={error} />}
      {data?.problem === undefined ? null : (
        <p role="alert">
          {data.problem.reason}: <Untrusted text={data.problem.message} />
        </p>
      )}
    </>
  )
}

const fileColumns = [{ name: "File" }, { name: "Added", isFigure: true }, { name: "Removed", isFigure: true }]

const Files = ({ changes }: { readonly changes: NonNullable<Run["changes"]> }) => (
  <DataTable
    label="Changed files"
    className="cs-files"
    columns={fileColumns}
    rows={changes.files.map(({ added, path, removed }, index) => ({
      id: String(index),
      cells: [
        <Untrusted text={path} />,
        <span className="cs-good-text">{added === undefined ? "binary" : `+${Format.count(added)}`}</span>,
        <span className="cs-bad-text">{removed === undefined ? "" : `−${Format.count(removed)}`}</span>
      ]
    }))}
  />
)

/** Memoized: a run under way is rendered again each second. */
export const ChangesPanel = memo(({ run }: { readonly run: Run }): ReactElement => {
  const { changes, relay, repository } = run
  const { mayWrite } = useSandbox()
  if (relay === undefined && changes === undefined && repository === undefined)
    return <Empty>The run works in no repository.</Empty>
  return (
    <div className="cs-panel">
      <section className="cs-card" aria-label="Delivery">
        <Facts
          facts={[
            ["Repository", <OuterLink url={relay?.origin ?? repository ?? ""} />],
            ["Delivery", relay && (words[relay.status] ?? <Untrusted text={relay.status} />)],
            ["Branch", relay && <Untrusted text={relay.branch} />],
            ["Base", relay?.baseBranch && <Untrusted text={relay.baseBranch} />],
            ["Commit", relay?.tip && <span className="cs-mono">{relay.tip}</span>],
            ["Pull request", relay?.pullRequestUrl && <OuterLink url={relay.pullRequestUrl} />],
            ["Commits", changes && Format.count(changes.commits)],
            ["Patch", changes && Format.bytes(changes.patchBytes)]
          ]}
        />
      </section>
      {relay !== undefined && mayWrite && retryable.has(relay.status) ? <Retry runId={run.runId} /> : null}
      {changes !== undefined && changes.files.length > 0 ? (
        <>
          <Files changes={changes} />
          {changes.filesTotal > changes.files.length ? (
            <p className="cs-note">
              {Format.count(changes.files.length)} of {Format.count(changes.filesTotal)} files are listed.
            </p>
          ) : null}
          {changes.patchBytes > 0 ? <DiffView runId={run.runId} isCut={changes.patchTruncated} /> : null}
        </>
      ) : relay === undefined || isActive(run) ? (
        <p className="cs-note">The changes are read when the run has ended.</p>
      ) : null}
    </div>
  )
})
