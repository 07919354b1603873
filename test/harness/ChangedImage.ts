/** The runtime image with one of its programs changed, as by a test that shortens a time limit in it. */
import { Effect } from "effect"
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Await from "./Await.ts"
import { docker } from "./Docker.ts"
import * as Images from "./Images.ts"

const programOf = (name: string) => new URL(`../../images/runtime/${name}`, import.meta.url)

/** Replaces a text of a program, which must be there once. */
const changed = (program: string, from: string, to: string): string => {
  const parts = readFileSync(programOf(program), "utf8").split(from)
  if (parts.length !== 2) throw new Error(`${program} has ${parts.length - 1} times: ${from}`)
  return parts.join(to)
}

/**
 * Makes the image, without a build, and removes it when the scope closes. Returns its name. `instructions` of a
 * Dockerfile change its configuration.
 */
export const acquire = Effect.fnUntraced(function* (
  program: string,
  from: string,
  to: string,
  ...instructions: ReadonlyArray<string>
) {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-image-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const file = join(directory, program)
  writeFileSync(file, changed(program, from, to))
  chmodSync(file, 0o755)
  const container = yield* Effect.acquireRelease(docker("create", Images.runtime), (id) =>
    docker("rm", "--force", id)
  )
  yield* docker("cp", file, `${container}:/usr/local/bin/${program}`)
  const image = `cogni-sandbox/changed:${crypto.randomUUID()}`
  return yield* Effect.acquireRelease(
    Effect.as(docker("commit", ...instructions.map((line) => `--change=${line}`), container, image), image),
    (name) =>
      Await.until(
        "no container has the changed image any more",
        docker("image", "rm", name).pipe(
          Effect.as(true),
          Effect.catchCause(() => Effect.succeed(false))
        )
      )
  )
})
