/**
 * Converts paths between the caller's form and the executor's.
 *
 * A caller may write a path relative to its working directory, an absolute path as commands see it or, if the workspace
 * is a known directory of the host, an absolute path there. Answers use the caller's form. The conversion is only
 * lexical; the executor checks where links lead.
 */
import { Effect } from "effect"
import { posix } from "node:path"
import * as Excerpt from "../Excerpt.ts"
import { ToolFailed } from "../Tool.ts"

export interface PlaceOptions {
  /** Start directory of commands, and base of relative paths (default: the workspace). */
  readonly workingDirectory?: string | undefined
  /** Absolute path of the workspace on the host, if callers may use it. */
  readonly hostDirectory?: string | undefined
}

export interface Places extends PlaceOptions {
  /** Absolute path of the executor's workspace. */
  readonly workspace: string
}

export interface ToolPath {
  /** Absolute path as commands see it, without `.`, `..` and empty parts. */
  readonly inside: string
  /** The same path in the caller's form. */
  readonly shown: string
  /** Converts the paths in a text, such as an error message, to the caller's form. */
  readonly show: (text: string) => string
}

/** The kernel's `PATH_MAX`, less its closing NUL. */
const pathBytesMax = 4095

/** Resolves the path in the argument `what`. The default is the working directory. */
export const at = (
  what: string,
  given: string | undefined,
  { hostDirectory, workspace, workingDirectory = workspace }: Places
): Effect.Effect<ToolPath, ToolFailed> => {
  const path = given ?? workingDirectory
  const refuse = (detail: string) =>
    Effect.fail(new ToolFailed({ code: "validation", detail: `${what}: ${detail}` }))
  if (/[\0\n\r]/u.test(path)) return refuse("a path must not contain NUL or a line break")
  if (path === "") return refuse("it is empty; omit it for the default directory")
  if (Excerpt.bytesOf(path) > pathBytesMax) return refuse(`it is longer than ${pathBytesMax} bytes`)
  const inside = posix.resolve(workingDirectory, path)
  const isAbsolute = path.startsWith("/")
  if (below(workspace, inside) !== undefined) {
    const shown = isAbsolute ? inside : posix.relative(workingDirectory, inside) || "."
    // A caller that uses relative paths understands absolute ones too.
    return Effect.succeed({ inside, shown, show: (text) => text })
  }
  const ofHost = isAbsolute && hostDirectory !== undefined ? below(hostDirectory, inside) : undefined
  return ofHost === undefined || hostDirectory === undefined
    ? refuse(
        `${JSON.stringify(path.slice(0, 200))} leads out of the workspace. Give a path below ${workspace}, or a relative one; a command itself can use other paths`
      )
    : Effect.succeed({
        inside: posix.join(workspace, ofHost),
        shown: posix.join(hostDirectory, ofHost),
        show: (text) => replacePath(text, workspace, hostDirectory)
      })
}

const below = (base: string, path: string): string | undefined => {
  const rest = posix.relative(base, path)
  return rest === ".." || rest.startsWith("../") ? undefined : rest
}

/** Replaces whole paths only: `/workspace-old` is not inside `/workspace`. */
const replacePath = (text: string, from: string, to: string): string => {
  const pieces = text.split(from)
  return pieces.reduce((left, right) => {
    const begins = !/[\w./-]$/u.test(left)
    const ends = !/^[\w-]/u.test(right)
    return `${left}${begins && ends ? to : from}${right}`
  })
}
