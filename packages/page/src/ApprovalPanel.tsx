/** Tool calls of a run that wait for an approval, with the whole arguments, and buttons to decide. */
"use client"

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query"
import { memo, type ReactElement, useEffect, useMemo, useState } from "react"
import { Button, Input, Label, Link, TextField } from "react-aria-components"
import * as ApprovalArguments from "./ApprovalArguments.ts"
import { DataTable } from "./DataTable.tsx"
import * as Format from "./Format.ts"
import { Facts, Problem, Untrusted } from "./Parts.tsx"
import type { Approval } from "./RunModel.ts"
import { keepOfRun, useNow, useSandbox } from "./SandboxProvider.tsx"
import * as VisibleText from "./VisibleText.ts"

/** Time between two readings while a run is under way, in milliseconds. Its events cause another one at once. */
const liveMillis = 3000

/** Longest reason, as the server accepts it. */
const reasonCharsMax = 500

/** Reads the approvals of a run. `changes` grows with each event about one. */
export const useApprovals = (runId: string, isLive: boolean, changes: number) => {
  const { client, scope } = useSandbox()
  const { data, error, refetch } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "approvals", runId, isLive],
    placeholderData: keepOfRun(runId),
    queryFn: ({ signal }) => client.approvals(runId, signal),
    refetchInterval: isLive ? liveMillis : false
  })
  useEffect(() => {
    if (changes > 0) void refetch()
  }, [changes, refetch])
  return { approvals: data?.approvals ?? [], error, refetch }
}

const effects: Readonly<Record<string, string>> = {
  read_only: "only reads",
  state_change: "changes state",
  external_side_effect: "acts outside of this host"
}

const Left = ({ expiresAt }: Pick<Approval, "expiresAt">) => {
  const now = useNow(true)
  const millis = Date.parse(expiresAt) - now
  return millis > 0 ? `denied in ${Format.duration(Math.ceil(millis / 1000) * 1000)}` : "time is up"
}

const decisions = [
  { decision: "approve", label: "Approve", className: "cs-button" },
  { decision: "deny", label: "Deny", className: "cs-button cs-danger" }
] as const

/** A call. When it has ended, it keeps its place and its size, so that no button of another call moves. */
const Call = ({ approval, isSettled }: { readonly approval: Approval; readonly isSettled: boolean }) => {
  const { client, mayWrite, scope } = useSandbox()
  const queries = useQueryClient()
  const [reason, setReason] = useState("")
  const { error, isPending, mutate } = useMutation({
    mutationFn: (decision: "approve" | "deny") => client.decide(approval.id, decision, reason),
    onSettled: () => queries.invalidateQueries({ queryKey: ["@cogni/sandbox-page", scope] })
  })
  const shown = useMemo(() => ApprovalArguments.shown(approval.arguments), [approval.arguments])
  const name = VisibleText.line(approval.tool, 80)
  const isOver = approval.status !== "pending"
  return (
    <li className="cs-card">
      <Facts
        facts={[
          ["Tool", <Untrusted text={approval.tool} />],
          ["Effect", <Untrusted text={effects[approval.effect] ?? approval.effect} />],
          ["For", approval.askedBy.userId && <Untrusted text={approval.askedBy.userId} />],
          ["Asked", Format.time(approval.requestedAt)],
          isOver
            ? ["Decision", <Untrusted text={approval.status} />]
            : ["Without a decision", <Left expiresAt={approval.expiresAt} />]
        ]}
      />
      <pre className="cs-block cs-whole">
        <bdi>{shown}</bdi>
      </pre>
      {mayWrite ? (
        <>
          <TextField
            className="cs-field"
            value={reason}
            onChange={setReason}
            maxLength={reasonCharsMax}
            isDisabled={isOver}
          >
            <Label>Reason (optional; the agent reads it if you deny)</Label>
            <Input />
          </TextField>
          <div className="cs-actions">
            {decisions.map(({ className, decision, label }) => (
              <Button
                key={decision}
                className={className}
                aria-label={`${label} call of ${name}`}
                isPending={isPending}
                isDisabled={isOver}
                onPress={() => {
                  if (isSettled) mutate(decision)
                }}
              >
                {label}
              </Button>
            ))}
          </div>
        </>
      ) : null}
      <div className="cs-approval-problem">{error === null || isOver ? null : <Problem error={error} />}</div>
    </li>
  )
}

const words = (count: number) =>
  count === 0
    ? "No tool call waits for approval"
    : count === 1
      ? "1 tool call waits for approval"
      : `${Format.count(count)} tool calls wait for approval`

/** Time after a change of the list in which no press counts: it was meant for the earlier list. */
const settleMillis = 700

/** Returns whether a text has been the same for that time. */
const useSettled = (text: string): boolean => {
  const [settled, setSettled] = useState<string>()
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), settleMillis)
    return () => clearTimeout(timer)
  }, [text])
  return settled === text
}

/**
 * The calls that wait, the oldest first, and in their places those that ended meanwhile. No button moves under the
 * pointer of a person who decides: a new call is added at the end. Announces the number of calls that wait.
 */
export const PendingApprovals = ({
  approvals
}: {
  readonly approvals: ReadonlyArray<Approval>
}): ReactElement => {
  const [seen] = useState(() => new Set<string>())
  const pending = approvals.filter(({ status }) => status === "pending")
  for (const { id } of pending) seen.add(id)
  const shown = approvals.filter(({ id }) => seen.has(id)).toReversed()
  const isSettled = useSettled(shown.map(({ id, status }) => `${id} ${status}`).join())
  return (
    <>
      <p role="status" className={shown.length === 0 ? "cs-hidden" : "cs-why cs-why-calm"}>
        {shown.length === 0 ? "" : words(pending.length)}
      </p>
      {shown.length === 0 ? null : (
        <ul
          aria-label="Calls that wait for approval"
          className="cs-plain cs-approvals"
          data-settled={isSettled}
        >
          {shown.map((approval) => (
            <Call key={approval.id} approval={approval} isSettled={isSettled} />
          ))}
        </ul>
      )}
    </>
  )
}

const columns = [{ name: "Tool" }, { name: "Decision" }, { name: "By" }, { name: "Reason" }, { name: "Time" }]

/** Approvals that have ended. */
export const ApprovalTable = memo(
  ({ approvals }: { readonly approvals: ReadonlyArray<Approval> }): ReactElement | null => {
    const ended = approvals.filter(({ status }) => status !== "pending")
    if (ended.length === 0) return null
    return (
      <DataTable
        label="Approvals"
        columns={columns}
        rows={ended.map(({ decidedAt, decidedBy, id, reason, requestedAt, status, tool }) => ({
          id,
          cells: [
            <Untrusted text={tool} />,
            <Untrusted text={status} />,
            decidedBy === undefined ? (
              Format.unknown
            ) : (
              <Untrusted text={`${decidedBy.type} ${decidedBy.id}`} />
            ),
            reason === undefined ? Format.unknown : <Untrusted text={reason} />,
            Format.time(decidedAt ?? requestedAt)
          ]
        }))}
      />
    )
  }
)

/** Number of calls of the account that wait, with links to their runs. */
export const WaitingCalls = ({ refetchMillis }: { readonly refetchMillis: number }): ReactElement | null => {
  const { client, hrefOfRun, scope } = useSandbox()
  const { data } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "waiting"],
    queryFn: ({ signal }) => client.waiting(signal),
    refetchInterval: refetchMillis
  })
  const approvals = data?.approvals ?? []
  if (approvals.length === 0) return null
  const runs = [...new Set(approvals.map(({ runId }) => runId))]
  return (
    <p className="cs-why cs-why-calm" role="status">
      {words(approvals.length)}:{" "}
      {runs.map((runId, index) => (
        <span key={runId}>
          {index === 0 ? "" : ", "}
          {hrefOfRun === undefined ? (
            <span className="cs-mono">{runId}</span>
          ) : (
            <Link className="cs-link cs-mono" href={hrefOfRun(runId)}>
              {runId}
            </Link>
          )}
        </span>
      ))}
    </p>
  )
}
