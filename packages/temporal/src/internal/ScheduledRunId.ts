/** IDs of scheduled runs. Pure, and a part of the workflow: an ID must stay the same for the same firing. */

/** The end that Temporal adds to the ID of the workflow that it starts. */
const due = /-(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z$/u

/**
 * Returns the run ID of a firing: with the tag `k3f9x2`, `nightly-2026-11-27T03:00:00Z` is the run
 * `nightly-k3f9x2-20261127t030000z`. `undefined`: no schedule has started this workflow. Schedules of earlier versions
 * have no tag.
 */
export const runIdOf = (name: string, tag: string | undefined, workflowId: string): string | undefined => {
  const [, year, month, day, hour, minute, second] = due.exec(workflowId) ?? []
  const start = tag === undefined ? name : `${name}-${tag}`
  return second === undefined ? undefined : `${start}-${year}${month}${day}t${hour}${minute}${second}z`
}
