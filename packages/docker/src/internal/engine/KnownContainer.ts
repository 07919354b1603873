/**
 * The engine's answer about a container, which is not parsed and decoded again while the engine answers the same. Pure.
 *
 * An answer has 45 KB, most of it the seccomp profile, and a run in a waiting sandbox waits until it is compared. All
 * that checks read and that can change is at its beginning. Mounts follow later, in an order that changes from answer
 * to answer, but an engine adds none to a container.
 */
export interface KnownContainer<Inspected> {
  readonly inspected: Inspected
  /** Beginning of the answer, with all that can change. Absent: this engine writes another order. */
  readonly beginning: string | undefined
}

/** Where the part begins that no check reads, but for the mounts. */
const rest = ',"GraphDriver":'

const read = ["Id", "Name", "Image", "State", "ExecIDs", "HostConfig"]

/** Returns the beginning of an answer that equal answers share. */
export const beginningOf = (answer: string): string | undefined => {
  const at = answer.indexOf(rest)
  if (at === -1) return undefined
  try {
    // Complete only if the rest begins at the outermost level.
    const found: unknown = JSON.parse(`${answer.slice(0, at)}}`)
    const isComplete =
      typeof found === "object" && found !== null && read.every((name) => Object.hasOwn(found, name))
    return isComplete ? answer.slice(0, at + rest.length) : undefined
  } catch {
    return undefined
  }
}

/** Returns whether an answer says the same as the one before. */
export const isUnchanged = (
  answer: string,
  { beginning }: Pick<KnownContainer<unknown>, "beginning">
): boolean => beginning !== undefined && answer.startsWith(beginning)
