/** The patch of a run as files with lines, for display. Pure. An agent wrote all of it. */
import type { ChangeData, HunkData } from "react-diff-view"
import * as PatchReader from "./PatchReader.ts"
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
  readonly type: PatchReader.ReadFile["type"]
  readonly hunks: Array<HunkData>
  /** Changes besides lines, such as modes. */
  readonly notes: ReadonlyArray<string>
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

const nameOf = ({ newPath, oldPath }: PatchReader.ReadFile): string =>
  [...new Set([oldPath, newPath])]
    .flatMap((path) => (path === undefined ? [] : [VisibleText.line(path)]))
    .join(" → ")

/** Reads a patch. */
export const parse = (mbox: string): Patch => {
  const patch = PatchReader.read(mbox)
  if (patch === undefined || (mbox !== "" && patch.files.length === 0))
    return { files: [], isCut: false, isUnreadable: true }
  let left = linesMax
  const files: Array<PatchFile> = []
  for (const [index, file] of patch.files.slice(0, filesMax).entries()) {
    const changes = file.hunks.flatMap((hunk) => hunk.changes)
    if (changes.length > left) break
    left -= changes.length
    files.push({
      id: String(index),
      name: nameOf(file),
      type: file.type,
      hunks: file.hunks.map((hunk) => ({
        ...hunk,
        content: VisibleText.line(hunk.content),
        changes: hunk.changes.map(visibleChange)
      })),
      notes: file.notes.map((note) => VisibleText.line(note)),
      added: changes.filter(({ type }) => type === "insert").length,
      removed: changes.filter(({ type }) => type === "delete").length
    })
  }
  return { files, isCut: patch.isCut || files.length < patch.files.length, isUnreadable: false }
}
