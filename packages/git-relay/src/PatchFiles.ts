/**
 * The files that a patch changes, with the lines that it adds and removes.
 *
 * Pure. A patch is untrusted: a commit message can look like a part of it, so the result is only for display. Lines in
 * a hunk are counted by the numbers in its header, so no line of a file is taken for a header.
 */

export interface PatchFile {
  /** As git writes it: quoted if it has unusual characters. */
  readonly path: string
  /** Lines. Absent for a binary file. */
  readonly added?: number
  readonly removed?: number
}

export interface PatchFiles {
  readonly commits: number
  /** The first files, by the order in the patch. */
  readonly files: ReadonlyArray<PatchFile>
  readonly filesTotal: number
}

interface Counted {
  added: number
  removed: number
  isBinary: boolean
}

const header = /^diff --git ("?a\/.+)$/u
const hunk = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/u
const commit = /^From [0-9a-f]{40,64} /u

/** Longest path. Longer ones are cut. */
const pathCharsMax = 1000

const withoutSide = (path: string): string => path.replace(/^("?)[ab]\//u, "$1")

/** Names may contain spaces, but both are the same unless the file was renamed. */
const pathOf = (names: string): string => {
  const middle = (names.length - 1) / 2
  const [old, current] = [names.slice(0, middle), names.slice(middle + 1)].map(withoutSide)
  const isSame = names.charAt(middle) === " " && old === current
  const renamed = /^.* ("?b\/.+)$/u.exec(names)?.[1] ?? names
  return (isSame ? current! : withoutSide(renamed)).slice(0, pathCharsMax)
}

/** Summarizes an mbox, as `git format-patch` writes it, or a diff. Files of several commits are added up. */
export const summarize = (patch: string, filesMax: number): PatchFiles => {
  const files = new Map<string, Counted>()
  let commits = 0
  let old = 0
  let added = 0
  let current: Counted | undefined
  for (const line of patch.split("\n")) {
    if (old > 0 || added > 0) {
      const [first] = line
      if (first === "\\") continue
      if (first !== "+") old -= 1
      if (first !== "-") added -= 1
      if (current !== undefined && first === "+") current.added += 1
      if (current !== undefined && first === "-") current.removed += 1
      continue
    }
    const [, names] = header.exec(line) ?? []
    const counts = hunk.exec(line)
    if (names !== undefined) {
      const path = pathOf(names)
      current = files.get(path) ?? { added: 0, removed: 0, isBinary: false }
      files.set(path, current)
    } else if (counts !== null && current !== undefined) {
      old = Number(counts[1] ?? 1)
      added = Number(counts[2] ?? 1)
    } else if (current !== undefined && /^(?:GIT binary patch|Binary files )/u.test(line)) {
      current.isBinary = true
    } else if (commit.test(line)) {
      commits += 1
      current = undefined
    }
  }
  return {
    commits,
    files: [...files]
      .slice(0, filesMax)
      .map(([path, { added: plus, isBinary, removed }]) =>
        isBinary ? { path } : { path, added: plus, removed }
      ),
    filesTotal: files.size
  }
}
