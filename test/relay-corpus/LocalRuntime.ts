/**
 * A `ContainerRuntime` that runs a relay's containers as local processes.
 *
 * Use it only for workspaces whose commits alone are hostile. Their repositories contain nothing that would run, and a
 * container costs ten times as much as the git in it.
 */
import { type Container, ContainerRuntime, type ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { Deferred, Effect, Layer, Stream } from "effect"
import { nothing, unusedParts } from "./UnusedParts.ts"
import * as ContainerGit from "../../packages/git-relay/src/internal/git/ContainerGit.ts"
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { basename, join } from "node:path"

/** Replaces the path of the only mount with its source, and the image's program with its source file. */
const argvOf = ({ argv = [], mounts }: ContainerSpec) => {
  const [mount] = mounts ?? []
  const [program = "", ...rest] = argv
  const own = program === ContainerGit.program ? join(images, basename(program)) : program
  return [own, ...(mount === undefined ? rest : rest.map((word) => word.replace(mount.target, mount.source)))]
}

const images = join(import.meta.dirname, "../../images/runtime")

const containerOf = Effect.fnUntraced(function* (spec: ContainerSpec) {
  const over = yield* Deferred.make<number>()
  const [program = "", ...rest] = argvOf(spec)
  const output = Stream.unwrap(
    Effect.map(
      Effect.acquireRelease(
        Effect.sync(() => {
          const scratch = mkdtempSync(join(tmpdir(), "cogni-local-"))
          const env = { ...spec.env, TMPDIR: scratch }
          const child = spawn(program, rest, { env, cwd: "/", stdio: ["ignore", "pipe", "pipe"] })
          return { child, scratch }
        }),
        ({ child, scratch }) =>
          Effect.sync(() => {
            child.kill("SIGKILL")
            rmSync(scratch, { recursive: true, force: true })
          })
      ),
      ({ child }) => {
        child.once("close", (code) => Deferred.doneUnsafe(over, Effect.succeed(code ?? 137)))
        const from = (channel: "stdout" | "stderr") =>
          Stream.fromAsyncIterable<Uint8Array, unknown>(child[channel], (cause) => cause).pipe(
            Stream.orDie,
            Stream.map((bytes) => ({ channel, bytes }))
          )
        return Stream.merge(from("stdout"), from("stderr"))
      }
    )
  )
  return {
    id: "local",
    start: Effect.as(Effect.void, undefined),
    ...unusedParts,
    output,
    exit: Effect.map(Deferred.await(over), (exitCode) => ({
      exitCode,
      oomKilled: false,
      processesRefused: false,
      peak: {}
    }))
  } satisfies Container
})

export const layer: Layer.Layer<ContainerRuntime> = Layer.succeed(ContainerRuntime, {
  acquire: containerOf,
  acquireVolume: () => nothing,
  sharesHost: Effect.succeed(true),
  leftovers: () => Effect.succeed([])
})
