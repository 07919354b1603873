/**
 * Reads patches, as `git format-patch` writes them, as files with lines. Pure. An agent wrote all of it.
 *
 * The header of a hunk says how many lines follow. Only those are lines of a file, so no line of a file is taken for a
 * header, a message or a signature, and nothing else for a line. A hunk with other lines makes the whole patch
 * unreadable: the rest of it could hide a change.
 */
import type { ChangeData, HunkData } from "react-diff-view"

export interface ReadFile {
  readonly type: "add" | "delete" | "modify" | "rename" | "copy"
  /** As git writes it: quoted if it has unusual characters. Absent for a new file. */
  readonly oldPath: string | undefined
  /** Absent for a removed file. */
  readonly newPath: string | undefined
  readonly hunks: ReadonlyArray<HunkData>
  /** Changes besides lines: modes, and content that is not text. */
  readonly notes: ReadonlyArray<string>
}

interface ReadPatch {
  readonly files: ReadonlyArray<ReadFile>
  /** The text ends in a hunk. */
  readonly isCut: boolean
}

/** A file that is being read. */
interface Draft {
  readonly header: Array<string>
  readonly hunks: Array<HunkData>
}

/** A hunk that is being read, with the number of lines that are still missing on each side. */
interface OpenHunk {
  readonly hunk: HunkData
  oldLeft: number
  newLeft: number
}

const hunkHeader = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@/u

const openHunk = (content: string): OpenHunk | undefined => {
  const [matched, oldStart, oldLines = "1", newStart, newLines = "1"] = hunkHeader.exec(content) ?? []
  if (matched === undefined) return undefined
  const [oldLeft, newLeft] = [Number(oldLines), Number(newLines)]
  return {
    hunk: {
      content,
      oldStart: Number(oldStart),
      newStart: Number(newStart),
      oldLines: oldLeft,
      newLines: newLeft,
      changes: []
    },
    oldLeft,
    newLeft
  }
}

const changeOf = ({ hunk, newLeft, oldLeft }: OpenHunk, line: string): ChangeData | undefined => {
  const content = line.slice(1)
  const oldLineNumber = hunk.oldStart + hunk.oldLines - oldLeft
  const newLineNumber = hunk.newStart + hunk.newLines - newLeft
  switch (line.charAt(0)) {
    case "+":
      return newLeft === 0
        ? undefined
        : { type: "insert", isInsert: true, content, lineNumber: newLineNumber }
    case "-":
      return oldLeft === 0
        ? undefined
        : { type: "delete", isDelete: true, content, lineNumber: oldLineNumber }
    case " ":
    // Some tools remove spaces at the ends of lines.
    case "":
      return oldLeft === 0 || newLeft === 0
        ? undefined
        : { type: "normal", isNormal: true, content, oldLineNumber, newLineNumber }
    default:
      return undefined
  }
}

/** Adds a line to its hunk, if it can be one. */
const add = (open: OpenHunk, line: string): boolean => {
  const change = changeOf(open, line)
  if (change === undefined) return false
  if (change.type !== "insert") open.oldLeft -= 1
  if (change.type !== "delete") open.newLeft -= 1
  open.hunk.changes.push(change)
  return true
}

/** Marks the last line of a file that ends without a line feed. */
const endWithoutLineFeed = ({ hunk: { changes } }: OpenHunk) => {
  const last = changes.at(-1)
  if (last !== undefined) last.content += "⟨no line feed⟩"
}

/** Removes the prefix of a side, and the tab that git writes after a name with spaces. */
const pathIn = (side: string): string | undefined => {
  const path = side.replace(/\t$/u, "")
  return path === "/dev/null" ? undefined : path.replace(/^("?)[ab]\//u, "$1")
}

/** The two sides of `diff --git`. Names may contain spaces, but both are the same unless the file was renamed. */
const sidesOf = (names: string): readonly [string | undefined, string | undefined] => {
  const middle = (names.length - 1) / 2
  const [old, current] = [pathIn(names.slice(0, middle)), pathIn(names.slice(middle + 1))]
  return names.charAt(middle) === " " && old === current ? [old, current] : [names, names]
}

const noted = /^(?:old mode |new mode |(?:new|deleted) file mode (?!100644)|GIT binary patch|Binary files )/u

const fileOf = ({ header, hunks }: Draft): ReadFile => {
  const valueOf = (...names: ReadonlyArray<string>) => {
    for (const name of names) {
      const line = header.find((line) => line.startsWith(name))
      if (line !== undefined) return line.slice(name.length)
    }
    return undefined
  }
  const [oldSide, newSide] = sidesOf(valueOf("diff --git ") ?? "")
  const pathOf = (line: "--- " | "+++ ", side: string | undefined) => {
    const value = valueOf(line)
    return value === undefined ? side : pathIn(value)
  }
  const type =
    valueOf("rename from ") !== undefined
      ? "rename"
      : valueOf("copy from ") !== undefined
        ? "copy"
        : valueOf("new file mode ") !== undefined
          ? "add"
          : valueOf("deleted file mode ") !== undefined
            ? "delete"
            : "modify"
  return {
    type,
    oldPath: type === "add" ? undefined : (valueOf("rename from ", "copy from ") ?? pathOf("--- ", oldSide)),
    newPath: type === "delete" ? undefined : (valueOf("rename to ", "copy to ") ?? pathOf("+++ ", newSide)),
    hunks,
    notes: header.filter((line) => noted.test(line))
  }
}

/** Reads a patch. `undefined`: a hunk has not the lines that its header says. */
export const read = (text: string): ReadPatch | undefined => {
  const files: Array<Draft> = []
  let firstOfMail = 0
  let isAfterMessage = false
  let open: OpenHunk | undefined
  let current: Draft | undefined
  const lines = text.split("\n")
  if (lines.at(-1) === "") lines.pop()
  for (const line of lines) {
    if (open !== undefined && line.startsWith("\\ ")) endWithoutLineFeed(open)
    else if (open !== undefined && open.oldLeft + open.newLeft > 0) {
      if (!add(open, line)) return undefined
    } else if (line.startsWith("diff --git ")) {
      // A message can contain a diff. The commit's own is the last one that follows the statistics.
      if (isAfterMessage) files.splice(firstOfMail)
      isAfterMessage = false
      open = undefined
      current = { header: [line], hunks: [] }
      files.push(current)
    } else if (/^From [0-9a-f]{40,64} /u.test(line)) {
      firstOfMail = files.length
      isAfterMessage = false
      open = current = undefined
    } else if (line === "---") {
      isAfterMessage = true
      open = current = undefined
    } else if (current !== undefined && line.startsWith("@@")) {
      open = openHunk(line)
      if (open === undefined) return undefined
      current.hunks.push(open.hunk)
    } else {
      if (line !== "" && !line.startsWith(" ")) isAfterMessage = false
      if (open === undefined) current?.header.push(line)
    }
  }
  return { files: files.map(fileOf), isCut: open !== undefined && open.oldLeft + open.newLeft > 0 }
}
