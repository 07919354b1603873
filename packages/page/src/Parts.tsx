/** Small parts that several panels share. */
"use client"

import type { ReactElement, ReactNode } from "react"
import { Button, Link, ProgressBar } from "react-aria-components"
import * as ApiProblem from "./ApiProblem.ts"
import * as Format from "./Format.ts"
import type { Run } from "./RunModel.ts"
import * as VisibleText from "./VisibleText.ts"

/** Text that an agent or a repository chose. */
export const Untrusted = ({ isBlock = false, text }: { readonly text: string; readonly isBlock?: boolean }) =>
  isBlock ? (
    <pre className="cs-block">
      <bdi>{VisibleText.block(text)}</bdi>
    </pre>
  ) : (
    <bdi className="cs-untrusted">{VisibleText.line(text)}</bdi>
  )

const looks: Readonly<Record<string, readonly [tone: string, mark: string, label: string]>> = {
  starting: ["info", "◌", "Starting"],
  running: ["info", "●", "Running"],
  succeeded: ["good", "✓", "Succeeded"],
  failed: ["bad", "✕", "Failed"],
  closed: ["calm", "■", "Closed"],
  interrupted: ["warn", "‖", "Interrupted"],
  abandoned: ["warn", "?", "Abandoned"]
}

export const StatusBadge = ({ error, status }: Pick<Run, "error" | "status">): ReactElement => {
  const [tone, mark, label] = looks[status] ?? ["calm", "•", VisibleText.line(status, 40)]
  return (
    <span className={`cs-badge cs-${tone}`}>
      <span aria-hidden="true">{mark}</span> {label}
      {error === undefined ? null : (
        <>
          <span className="cs-reason">
            : <bdi>{VisibleText.line(error.reason, 80)}</bdi>
          </span>
        </>
      )}
    </span>
  )
}

const stateLooks: Readonly<Record<string, readonly [tone: string, mark: string]>> = {
  active: ["good", "✓"],
  expired: ["warn", "‖"],
  revoked: ["calm", "■"]
}

/** State of a grant or a connection. */
export const StateBadge = ({ state }: { readonly state: string }): ReactElement => {
  const [tone, mark] = stateLooks[state] ?? ["calm", "•"]
  return (
    <span className={`cs-badge cs-${tone}`}>
      <span aria-hidden="true">{mark}</span> {VisibleText.line(state, 40)}
    </span>
  )
}

/** A word about the certainty of a cost. */
export const costWords = (cost: Run["cost"]): string | undefined => {
  if (cost === undefined) return undefined
  const { drifted, estimated, missing, pending } = cost.states
  if (missing > 0) return `${missing} missing`
  if (drifted > 0) return `${drifted} drifted`
  if (cost.callsWithoutCost > 0) return `${cost.callsWithoutCost} without cost`
  if (estimated > 0) return `${estimated} estimated`
  if (!cost.isSettled || pending > 0) return "pending"
  return cost.calls === 0 ? undefined : "matched"
}

/** The best known cost: the ledger's, otherwise the proxy's. */
export const costOf = ({ cost, llm }: Pick<Run, "cost" | "llm">): number | undefined =>
  cost?.costUsd ?? llm?.usage?.costUsd

export const Cost = ({ run }: { readonly run: Pick<Run, "cost" | "llm"> }): ReactElement => {
  const words = costWords(run.cost)
  return (
    <>
      <span className="cs-figure">{Format.usd(costOf(run))}</span>
      {words === undefined ? null : <span className="cs-note"> {words}</span>}
    </>
  )
}

export const Loading = ({ what }: { readonly what: string }): ReactElement => (
  <ProgressBar className="cs-loading" isIndeterminate aria-label={`Loading ${what}`}>
    <span aria-hidden="true" className="cs-spinner" /> Loading {what}…
  </ProgressBar>
)

/** Says why a request failed, and offers to try again. */
export const Problem = ({
  error,
  onRetry
}: {
  readonly error: unknown
  readonly onRetry?: (() => unknown) | undefined
}): ReactElement => {
  const { isRetryable, message, reason } = ApiProblem.describe(error)
  return (
    <div className="cs-problem" role="alert">
      <p>
        <strong>{VisibleText.line(reason, 80)}</strong>: {VisibleText.line(message, 1000)}
      </p>
      {onRetry === undefined || !isRetryable ? null : (
        <Button className="cs-button" onPress={() => void onRetry()}>
          Try again
        </Button>
      )}
    </div>
  )
}

export const Empty = ({ children }: { readonly children: ReactNode }): ReactElement => (
  <p className="cs-empty">{children}</p>
)

/** Protocols that a link of a record may have. Anything else is only text. */
const linkable = new Set(["https:", "http:"])

/** A link to another site, if its address is one. Its text is the address itself, so that it cannot mislead. */
export const OuterLink = ({ url }: { readonly url: string }): ReactElement => {
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  return parsed !== undefined && linkable.has(parsed.protocol) && parsed.username === "" ? (
    <Link className="cs-link" href={parsed.href} target="_blank" rel="noopener noreferrer nofollow">
      {VisibleText.line(parsed.href)}
    </Link>
  ) : (
    <Untrusted text={url} />
  )
}

/** Names and values. A value that is absent is left out. */
export const Facts = ({
  facts
}: {
  readonly facts: ReadonlyArray<readonly [name: string, value: ReactNode]>
}): ReactElement => (
  <dl className="cs-facts">
    {facts
      .filter(([, value]) => value !== undefined && value !== null && value !== "")
      .map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
  </dl>
)
