/**
 * The package of images: where its build script is, and the tags that it builds.
 *
 * A published package lists its tags for every architecture, so that the command asks for exactly the images that it
 * was released with, as a checkout does. Without that list, the default is the tag `latest`.
 */
import { Effect, FileSystem } from "effect"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

/** Tags by the name of an image, such as `runtime`. */
export type Tags = Readonly<Record<string, string>>

/** Directory of the package, or `undefined` if it is not installed. */
export const directory = (): string | undefined => {
  try {
    return dirname(fileURLToPath(import.meta.resolve("@cogni/sandbox-images/package.json")))
  } catch {
    return undefined
  }
}

/** Parses the list of a published package: lines of `ARCHITECTURE NAME=TAG`. */
export const parse = (list: string, architecture: string): Tags =>
  Object.fromEntries(
    list.split("\n").flatMap((line) => {
      const [, of, name, tag] = /^(\S+) ([a-z][a-z0-9-]*)=(\S+)$/u.exec(line) ?? []
      return of === architecture ? [[name!, tag!] as const] : []
    })
  )

/** The tags of the installed package; none in a checkout. */
export const tags: Effect.Effect<Tags, never, FileSystem.FileSystem> = Effect.gen(function* () {
  const found = directory()
  if (found === undefined) return {}
  const fs = yield* FileSystem.FileSystem
  const list = yield* Effect.orElseSucceed(fs.readFileString(join(found, "tags")), () => "")
  return parse(list, process.arch)
})
