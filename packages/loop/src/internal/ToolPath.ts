/**
 * Paths as a caller writes them, and as the executor has them.
 *
 * A caller may say a path from the directory on in which it works, the absolute one inside, or, where a host's
 * directory is known to lie behind the workspace, that one. Answers come in the form of the question. Lexical only:
 * where a link leads, the executor sees.
 */
import { Effect } from "effect"
import { posix } from "node:path"
import * as Excerpt from "../Excerpt.ts"
import { ToolFailed } from "../Tool.ts"

export interface PlaceOptions {
  /** Where commands begin, and what paths are relative to; the workspace when left out. */
  readonly workingDirectory?: string | undefined
  /** What the workspace is on the host, absolute: then paths may be said so, and come back so. */
  readonly hostDirectory?: string | undefined
}

export interface Places extends PlaceOptions {
  /** Of the executor; absolute. */
  readonly workspace: string
}

export interface ToolPath {
  /** Absolute, as commands see it, without `.`, `..` and empty parts. */
  readonly inside: string
  /** The same, as the caller would write it. */
  readonly shown: string
  /** Another path of the workspace, or a message that may hold some, in the caller's form. */
  readonly show: (text: string) => string
}

/** The kernel's `PATH_MAX`, less its closing NUL. */
const pathBytesMax = 4095

/** `what` is the name of the argument; without a path, where commands begin. */
export const at = (
  what: string,
  given: string | undefined,
  { hostDirectory, workspace, workingDirectory = workspace }: Places
): Effect.Effect<ToolPath, ToolFailed> => {
  const path = given ?? workingDirectory
  const refuse = (detail: string) =>
    Effect.fail(new ToolFailed({ code: "validation", detail: `${what}: ${detail}` }))
  if (/[\0\n\r]/u.test(path)) return refuse("a path holds no NUL and no line break")
  if (path === "") return refuse("it is empty; leave it out for the workspace itself")
  if (Excerpt.bytesOf(path) > pathBytesMax) return refuse(`it is longer than ${pathBytesMax} bytes`)
  const inside = posix.resolve(workingDirectory, path)
  const isAbsolute = path.startsWith("/")
  if (below(workspace, inside) !== undefined) {
    const shown = isAbsolute ? inside : posix.relative(workingDirectory, inside) || "."
    // Said as it is inside, a relative path is understood as well.
    return Effect.succeed({ inside, shown, show: (text) => text })
  }
  const ofHost = isAbsolute && hostDirectory !== undefined ? below(hostDirectory, inside) : undefined
  return ofHost === undefined || hostDirectory === undefined
    ? refuse(
        `${JSON.stringify(path.slice(0, 200))} leads out of the workspace. Give a path below ${workspace}, or one relative to it; a command can go elsewhere by itself`
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

/** Whole paths only: `/workspace-old` is not one of `/workspace`. */
const replacePath = (text: string, from: string, to: string): string => {
  const pieces = text.split(from)
  return pieces.reduce((left, right) => {
    const begins = !/[\w./-]$/u.test(left)
    const ends = !/^[\w-]/u.test(right)
    return `${left}${begins && ends ? to : from}${right}`
  })
}
