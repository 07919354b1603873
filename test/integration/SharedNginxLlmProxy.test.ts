/**
 * One nginx for many runs on a real engine: the contract of a proxy, and what one run could do to another.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { execFileSync } from "node:child_process"
import { mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as SharedNginxLlmProxy from "@cogni/sandbox-proxy/SharedNginxLlmProxy"
import * as Images from "../harness/Images.ts"
import * as NginxRun from "../harness/NginxRun.ts"

/** Runs the `docker` CLI, independent of the code under test. */
const docker = (...args: ReadonlyArray<string>) => execFileSync("docker", args, { encoding: "utf8" })

/** The containers that mount a directory below this one. */
const containersIn = (directory: string): ReadonlyArray<string> =>
  readdirSync(directory).flatMap((name) =>
    docker("ps", "--quiet", "--no-trunc", "--filter", `volume=${join(directory, name, "sockets")}`)
      .split("\n")
      .filter((id) => id !== "")
  )

const directories: Array<string> = []
const directoryOf = () => {
  const made = mkdtempSync(join(tmpdir(), "cogni-test-"))
  directories.push(made)
  return made
}
process.once("exit", () => directories.forEach((made) => rmSync(made, { recursive: true, force: true })))

for (const identity of ["socket", "token"] as const) {
  const directory = directoryOf()
  LlmProxyContract.suite(
    `nginx for many runs, each with a ${identity}, on Docker`,
    SharedNginxLlmProxy.layer({
      image: Images.proxy,
      upstream: { type: "host", url: "http://127.0.0.1:4000" },
      key: Redacted.make(NginxRun.key),
      identity,
      directory
    }).pipe(Layer.provide(UsageObserver.layerNone), Layer.provideMerge(DockerContainerRuntime.layer())),
    {
      leftovers: (runId) =>
        Effect.gen(function* () {
          const runtime = yield* ContainerRuntime
          const files = readdirSync(directory).flatMap((name) =>
            ["upstream", "logs", "runs"].flatMap((kind) => readdirSync(join(directory, name, kind)))
          )
          return [...(yield* runtime.leftovers(runId)), ...files]
        }),
      socketMount: Effect.acquireRelease(
        Effect.sync(() => {
          const source = mkdtempSync(join(directoryOf(), "mount-"))
          return { type: "directory", source, target: "/llm-sock", readOnly: true } as const
        }),
        ({ source }) => Effect.sync(() => rmSync(source, { recursive: true, force: true }))
      ),
      kill: () =>
        Effect.sync(() => containersIn(directory).forEach((id) => docker("kill", "--signal", "KILL", id)))
    }
  )
}

describe("placeholder", () => {
  it("is", () => assert.isTrue(true))
})
