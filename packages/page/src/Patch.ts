/** The patch of a run as files with lines, for display. Pure. An agent wrote all of it. */
import { type ChangeData, type FileData, parseDiff } from "react-diff-view"
import * as VisibleText from "./VisibleText.ts"

/** Lines and files that are shown. More would make the page slow. */
export const linesMax = 5000
export const filesMax = 300

/** Longest shown line. */
const lineCharsMax = 2000

export interface PatchFile {
  /** Unique in a patch: several commits can change one file. */
  readonly id: string
  readonly name: string
  readonly diff: FileData
  readonly added: number
  readonly removed: number
}

export interface Patch {
  readonly files: ReadonlyArray<PatchFile>
  /** Not all files or lines are in `files`. */
  readonly isCut: boolean
  /** The text is not a patch that can be read. */
  readonly isUnreadable: boolean
}

/** Code can hide what it does: characters that change the direction of a line, or that are not visible. */
const visibleChange = (change: ChangeData): ChangeData => ({
  ...change,
  content: VisibleText.code(change.content, lineCharsMax)
})

const nameOf = ({ newPath, oldPath, type }: FileData): string =>
  type === "delete"
    ? VisibleText.line(oldPath)
    : type === "rename" || type === "copy"
      ? `${VisibleText.line(oldPath)} → ${VisibleText.line(newPath)}`
      : VisibleText.line(newPath)

/** The parts of an mbox that are diffs. Messages of commits may contain anything. */
const diffsOf = (mbox: string): string =>
  mbox
    .split(/^(?=From [0-9a-f]{40} )/mu)
    .map((mail) => mail.slice(Math.max(0, mail.search(/^diff --git /mu))))
    .map((part) => part.replace(/^-- \n[^\n]*\n*$/mu, ""))
    .filter((part) => part.startsWith("diff --git "))
    .join("\n")

const read = (text: string): ReadonlyArray<FileData> | undefined => {
  try {
    return parseDiff(text)
  } catch {
    return undefined
  }
}

/** Reads a patch. */
export const parse = (mbox: string): Patch => {
  const text = diffsOf(mbox)
  const parsed = text === "" ? [] : read(text)
  if (parsed === undefined || (text !== "" && parsed.length === 0))
    return { files: [], isCut: false, isUnreadable: true }
  let left = linesMax
  const files: Array<PatchFile> = []
  for (const [index, file] of parsed.slice(0, filesMax).entries()) {
    const changes = file.hunks.flatMap((hunk) => hunk.changes)
    if (changes.length > left) break
    left -= changes.length
    files.push({
      id: String(index),
      name: nameOf(file),
      diff: {
        ...file,
        hunks: file.hunks.map((hunk) => ({
          ...hunk,
          content: VisibleText.line(hunk.content),
          changes: hunk.changes.map(visibleChange)
        }))
      },
      added: changes.filter(({ type }) => type === "insert").length,
      removed: changes.filter(({ type }) => type === "delete").length
    })
  }
  return { files, isCut: files.length < parsed.length, isUnreadable: false }
}
