/**
 * Paths as a caller writes them, and as the executor has them.
 *
 * A caller may say a path from the workspace on, the absolute one inside, or, where a host's directory is known to lie
 * behind the workspace, that one. Answers come in the form of the question. Lexical only: where a link leads, the
 * executor sees.
 */
import { ToolFailed } from "../Tool.ts"
import { Result } from "effect"

export interface Places {
  /** Of the executor; absolute. */
  readonly workspace: string
  /** What the workspace is on the host, absolute; nothing is translated where it is left out. */
  readonly hostDirectory?: string | undefined
}

type Form = "relative" | "inside" | "host"

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

const partsOf = (path: string) => path.split("/").filter((part) => part !== "" && part !== ".")

const joinedPath = (base: string, parts: ReadonlyArray<string>) =>
  parts.length === 0 ? base : `${base === "/" ? "" : base}/${parts.join("/")}`

const refuse = (what: string, detail: string) =>
  Result.fail(new ToolFailed({ code: "validation", detail: `${what}: ${detail}` }))

/** Resolve `..` by the text; `undefined` where it leads above the root. */
const normalized = (parts: ReadonlyArray<string>): ReadonlyArray<string> | undefined => {
  const out: Array<string> = []
  for (const part of parts) {
    if (part !== "..") out.push(part)
    else if (out.pop() === undefined) return undefined
  }
  return out
}

const below = (parts: ReadonlyArray<string>, base: ReadonlyArray<string>) =>
  base.every((part, index) => parts[index] === part) ? parts.slice(base.length) : undefined

/** `what` is the name of the argument. */
export const resolve = (what: string, given: string, places: Places): Result.Result<ToolPath, ToolFailed> => {
  if (/[\0\n\r]/u.test(given)) return refuse(what, "a path holds no NUL and no line break")
  if (given === "") return refuse(what, "it is empty; leave it out for the workspace itself")
  if (new TextEncoder().encode(given).byteLength > pathBytesMax) {
    return refuse(what, `it is longer than ${pathBytesMax} bytes`)
  }
  const workspace = partsOf(places.workspace)
  const host = places.hostDirectory === undefined ? undefined : partsOf(places.hostDirectory)
  if (!given.startsWith("/")) {
    const inner = normalized(partsOf(given))
    return inner === undefined
      ? outside(what, given, places)
      : Result.succeed(made("relative", inner, places))
  }
  const parts = normalized(partsOf(given))
  if (parts === undefined) return outside(what, given, places)
  const inner = below(parts, workspace)
  if (inner !== undefined) return Result.succeed(made("inside", inner, places))
  const ofHost = host === undefined ? undefined : below(parts, host)
  return ofHost === undefined ? outside(what, given, places) : Result.succeed(made("host", ofHost, places))
}

/** The workspace itself, said as it is inside. */
export const root = (places: Places): ToolPath => made("inside", [], places)

const outside = (what: string, given: string, { workspace }: Places) =>
  refuse(
    what,
    `${JSON.stringify(given.slice(0, 200))} leads out of the workspace. Give a path below ${workspace}, or one relative to it; a command can go elsewhere by itself`
  )

const made = (form: Form, inner: ReadonlyArray<string>, places: Places): ToolPath => {
  const workspace = joinedPath("/", partsOf(places.workspace))
  const host = joinedPath("/", partsOf(places.hostDirectory ?? "/"))
  return {
    inside: joinedPath(workspace, inner),
    shown:
      form === "relative"
        ? inner.length === 0
          ? "."
          : inner.join("/")
        : joinedPath(form === "host" ? host : workspace, inner),
    // Said as it is inside, a relative path is understood as well.
    show: (text) => (form === "host" ? replacePath(text, workspace, host) : text)
  }
}

/** Whole paths only: `/workspace-old` is none of `/workspace`. */
const replacePath = (text: string, from: string, to: string): string => {
  const pieces = text.split(from)
  return pieces.reduce((left, right) => {
    const begins = !/[\w./-]$/u.test(left)
    const ends = !/^[\w-]/u.test(right)
    return `${left}${begins && ends ? to : from}${right}`
  })
}
