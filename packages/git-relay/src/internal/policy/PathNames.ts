/**
 * Names of tree entries after a checkout. File systems fold case, drop invisible code points, and accept several names
 * for one file. A rule that knows only the spelling in git's documentation protects nothing.
 *
 * Paths are latin1 strings, with one character per byte.
 */

/** Decodes a path as UTF-8 if it is valid, and otherwise as one character per byte. */
export const textOf = (latin1: string): string => {
  const bytes = Buffer.from(latin1, "latin1")
  const text = bytes.toString("utf8")
  return Buffer.from(text, "utf8").equals(bytes) ? text : latin1
}

/** Invisible characters, which HFS+ and other file systems ignore. */
const ignorable = /[\p{Default_Ignorable_Code_Point}\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/gu

/** Folds a name as the most permissive file system does: no case, invisible characters, stream or trailing dots. */
const foldName = (name: string): string =>
  name
    .replace(ignorable, "")
    .normalize("NFKC")
    .toLowerCase()
    .replace(/(?<=.):.*$/su, "")
    .replace(/(?<=[^. ])[. ]+$/u, "")

/** Folds a path so that equivalent spellings are equal. */
export const fold = (path: string): string =>
  textOf(path).replaceAll("\\", "/").split("/").map(foldName).join("/")

/** Returns the last component of a path. */
export const baseOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1)

/** Whether a component is the repository's own directory for some file system, or is not a valid name. */
const isDotGit = (name: string): boolean =>
  fold(name)
    .split("/")
    .some((part) => part === ".git" || part === "git~1" || part === ".." || part === ".")

/** Whether {@link isDotGit} is true for any component of a path. */
export const entersDotGit = (path: string): boolean => path.split("/").some(isDotGit)

/** Short names that Windows may give to `.gitmodules`. The last form is for when the plain ones are taken. */
const shortGitmodules = (() => {
  const hash = "gi7eba"
  const counted = [0, 1, 2, 3, 4, 5, 6].map(
    (length) => `${hash.slice(0, length)}~[1-9]${"[0-9]".repeat(hash.length - length)}`
  )
  return new RegExp(`^(?:gitmod~[1-4]|${counted.join("|")})$`, "u")
})()

/** Whether a name is `.gitmodules` for some file system. */
export const isGitmodules = (path: string): boolean => {
  const name = baseOf(fold(path))
  return name === ".gitmodules" || shortGitmodules.test(name)
}

/** Whether a name is `.lfsconfig` for some file system. */
export const isLfsConfig = (path: string): boolean =>
  /^(?:\.lfsconfig|lfscon~[1-4])$/u.test(baseOf(fold(path)))

/**
 * Whether a path contains C0 or DEL as bytes or, if it is text, C1 or characters that change the direction of writing.
 */
export const hasControlCharacter = (path: string): boolean =>
  /[\u0000-\u001f\u007f]/u.test(path) ||
  (textOf(path) !== path && /[\u0080-\u009f\u202a-\u202e\u2066-\u2069]/u.test(textOf(path)))

/** Maximum length of a link's target on Linux. */
export const linkTargetBytesMax = 4096

/** Fault of a link's target. */
export type LinkFault = "empty" | "long" | "nul" | "absolute" | "winding" | "leaves" | "dot-git"

/**
 * Returns the fault of a link's target, or `undefined`. A leading `..` is counted from the link's own directory, which
 * is a real one. After a name, `..` is refused: the name may be a link itself, and its parent is then somewhere else.
 */
export const linkFault = (path: string, target: string): LinkFault | undefined => {
  if (target === "") return "empty"
  if (target.length > linkTargetBytesMax) return "long"
  if (target.includes("\0")) return "nul"
  if (/^(?:[/\\]|[A-Za-z]:)/u.test(target)) return "absolute"
  const parts = target.split(/[/\\]/u).filter((part) => part !== "" && part !== ".")
  if (parts.some((part) => part !== ".." && isDotGit(part))) return "dot-git"
  const up = parts.findIndex((part) => part !== "..")
  const upwards = up === -1 ? parts.length : up
  if (parts.slice(upwards).includes("..")) return "winding"
  return upwards > path.split("/").length - 1 ? "leaves" : undefined
}
