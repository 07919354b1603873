/** IDs of scheduled runs. Pure, and a part of the workflow: an ID must stay the same for the same firing. */

/** The end that Temporal adds to the ID of the workflow that it starts. */
const due = /-(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z$/u

/**
 * Returns the run ID of a firing: `nightly-2026-11-27T03:00:00Z` is the run `nightly-20261127t030000z`. `undefined`: no
 * schedule has started this workflow.
 */
export const runIdOf = (name: string, workflowId: string): string | undefined => {
  const [, year, month, day, hour, minute, second] = due.exec(workflowId) ?? []
  return second === undefined ? undefined : `${name}-${year}${month}${day}t${hour}${minute}${second}z`
}
