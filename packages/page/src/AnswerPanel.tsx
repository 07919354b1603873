/** The answer of the agent of a run that has ended, as text. */
"use client"

import { useQuery } from "@tanstack/react-query"
import type { ReactElement } from "react"
import * as Format from "./Format.ts"
import { Loading, Problem } from "./Parts.tsx"
import type { Run } from "./RunModel.ts"
import { useSandbox } from "./SandboxProvider.tsx"
import * as VisibleText from "./VisibleText.ts"

export const AnswerPanel = ({ run }: { readonly run: Run }): ReactElement | null => {
  const { answer, runId } = run
  const { client, scope } = useSandbox()
  const { data, error, refetch } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "answer", runId],
    queryFn: ({ signal }) => client.answer(runId, signal),
    enabled: answer !== undefined,
    staleTime: Infinity
  })
  if (answer === undefined) return null
  return (
    <section className="cs-card cs-answer" aria-label="Answer">
      <h2>{run.status === "succeeded" ? "Answer" : "Text until the run ended"}</h2>
      {error === null ? null : <Problem error={error} onRetry={refetch} />}
      {data === undefined ? (
        error === null ? (
          <Loading what="answer" />
        ) : null
      ) : (
        // Without the mouse, only what has the focus can be scrolled.
        <pre className="cs-block" tabIndex={0} role="group" aria-label="Text of the answer">
          <bdi>{VisibleText.block(data)}</bdi>
        </pre>
      )}
      {answer.truncated ? (
        <p className="cs-note">Only the beginning of {Format.count(answer.chars)} characters is kept.</p>
      ) : null}
    </section>
  )
}
