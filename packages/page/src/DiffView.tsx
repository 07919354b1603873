/** The commits of a run, file by file. Characters that could hide what code does are shown. */
"use client"

import { useQuery } from "@tanstack/react-query"
import type { ReactElement } from "react"
import { Button, Disclosure, DisclosurePanel, Heading } from "react-aria-components"
import { Decoration, Diff, Hunk } from "react-diff-view"
import { ApiProblem } from "./ApiProblem.ts"
import * as Format from "./Format.ts"
import { Empty, Loading, Problem } from "./Parts.tsx"
import * as Patch from "./Patch.ts"
import { useSandbox } from "./SandboxProvider.tsx"

/** Files that are open at first. */
const openFiles = 5

const File = ({ file, isOpen }: { readonly file: Patch.PatchFile; readonly isOpen: boolean }) => (
  <Disclosure className="cs-diff-file" defaultExpanded={isOpen}>
    {({ isExpanded }) => (
      <>
        <Heading level={3}>
          <Button slot="trigger" className="cs-button cs-quiet">
            <span aria-hidden="true">{isExpanded ? "▾" : "▸"}</span>{" "}
            <bdi className="cs-mono">{file.name}</bdi>{" "}
            <span className="cs-good-text cs-figure">+{Format.count(file.added)}</span>{" "}
            <span className="cs-bad-text cs-figure">−{Format.count(file.removed)}</span>
          </Button>
        </Heading>
        <DisclosurePanel>
          {isExpanded && file.notes.length > 0 ? (
            <p className="cs-note cs-mono">{file.notes.join(" · ")}</p>
          ) : null}
          {!isExpanded ? null : file.hunks.length === 0 ? (
            <p className="cs-note">A binary file, or only its name or mode changed.</p>
          ) : (
            <div className="cs-diff" dir="ltr">
              <Diff viewType="unified" diffType={file.type} hunks={file.hunks}>
                {(hunks) =>
                  hunks.flatMap((hunk, index) => [
                    <Decoration key={`place/${index}`}>
                      <div className="cs-diff-place">{hunk.content}</div>
                    </Decoration>,
                    <Hunk key={index} hunk={hunk} />
                  ])
                }
              </Diff>
            </div>
          )}
        </DisclosurePanel>
      </>
    )}
  </Disclosure>
)

export const DiffView = ({
  isCut,
  runId
}: {
  readonly runId: string
  readonly isCut: boolean
}): ReactElement => {
  const { client, scope } = useSandbox()
  const { data, error, refetch } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "patch", runId],
    queryFn: async ({ signal }) => Patch.parse(await client.patch(runId, signal)),
    staleTime: Infinity
  })
  if (error instanceof ApiProblem && error.status === 404)
    return (
      <Empty>
        This server does not have the patch. It is in the repository, or on the host that ran the run.
      </Empty>
    )
  if (error !== null) return <Problem error={error} onRetry={refetch} />
  if (data === undefined) return <Loading what="patch" />
  if (data.isUnreadable) return <Empty>The patch cannot be shown. Read it with git.</Empty>
  return (
    <section aria-label="Patch" className="cs-panel">
      <h2>Patch</h2>
      {data.files.map((file, index) => (
        <File key={file.id} file={file} isOpen={index < openFiles} />
      ))}
      {isCut || data.isCut ? <p className="cs-note">Only the beginning of the patch is shown.</p> : null}
    </section>
  )
}
