/**
 * What a name of a tree becomes where it is checked out: file systems fold case, drop code points that nobody sees, and
 * take several names for one. A rule that knows only the spelling of git's documentation is no rule.
 *
 * Paths are latin1 strings, one character a byte.
 */

/** As UTF-8 where it is that, and else one character a byte. */
export const textOf = (latin1: string): string => {
  const bytes = Buffer.from(latin1, "latin1")
  const text = bytes.toString("utf8")
  return Buffer.from(text, "utf8").equals(bytes) ? text : latin1
}

/** Nobody sees them, and HFS+ and others do not either. */
const ignorable = /[\p{Default_Ignorable_Code_Point}\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/gu

/** One name as the most forgiving file system takes it: no case, nothing unseen, no stream, no dots at its end. */
const foldName = (name: string): string =>
  name
    .replace(ignorable, "")
    .normalize("NFKC")
    .toLowerCase()
    .replace(/(?<=.):.*$/su, "")
    .replace(/(?<=[^. ])[. ]+$/u, "")

/** A path in which what means the same is the same. */
export const fold = (path: string): string =>
  textOf(path).replaceAll("\\", "/").split("/").map(foldName).join("/")

/** The name in a directory. */
export const baseOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1)

/** A component that some file system takes for the repository's own directory, or that is no name at all. */
export const isDotGit = (name: string): boolean =>
  fold(name)
    .split("/")
    .some((part) => part === ".git" || part === "git~1" || part === ".." || part === ".")

/** Any component of it. */
export const entersDotGit = (path: string): boolean => path.split("/").some(isDotGit)

/** Short names that Windows may give it: the last form is the one for when the plain ones are taken. */
const shortGitmodules = (() => {
  const hash = "gi7eba"
  const counted = [0, 1, 2, 3, 4, 5, 6].map(
    (length) => `${hash.slice(0, length)}~[1-9]${"[0-9]".repeat(hash.length - length)}`
  )
  return new RegExp(`^(?:gitmod~[1-4]|${counted.join("|")})$`, "u")
})()

/** A name that some file system takes for `.gitmodules`. */
export const isGitmodules = (path: string): boolean => {
  const name = baseOf(fold(path))
  return name === ".gitmodules" || shortGitmodules.test(name)
}

/** A name that some file system takes for `.lfsconfig`. */
export const isLfsConfig = (path: string): boolean =>
  /^(?:\.lfsconfig|lfscon~[1-4])$/u.test(baseOf(fold(path)))

/** C0 and DEL as bytes, and C1 and what turns the direction of writing where it is text. */
export const hasControlCharacter = (path: string): boolean =>
  /[\u0000-\u001f\u007f]/u.test(path) ||
  (textOf(path) !== path && /[\u0080-\u009f\u202a-\u202e\u2066-\u2069]/u.test(textOf(path)))

/** Linux takes no more than this. */
export const linkTargetBytesMax = 4096

/** What is wrong with where a link points; `undefined` is nothing. */
export type LinkFault = "empty" | "long" | "nul" | "absolute" | "winding" | "leaves" | "dot-git"

/**
 * Going up is counted from the link's own directory, which is a real one. After a name it is not: the name may be a
 * link itself, and what is above it is then somewhere else.
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
