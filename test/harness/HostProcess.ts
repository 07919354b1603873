/**
 * A separate host process that runs one spec, for tests that kill it, orphan it, or run it as an ordinary user.
 *
 * The first half starts the process and reads its messages, one JSON value per line. The second half is the program of
 * the process.
 */
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as AuditTraffic from "@cogni/sandbox-proxy/AuditTraffic"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as NginxLlmProxy from "@cogni/sandbox-proxy/NginxLlmProxy"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, Layer, Redacted, Schedule, type Scope, Stream } from "effect"
import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { createInterface } from "node:readline"
import * as Engine from "./Engine.ts"
import * as LinkedPrograms from "./LinkedPrograms.ts"

export interface Asked {
  readonly directory: string
  readonly host?: string
  readonly spec: SandboxSpecInput
  /** Removes orphaned resources at the start. Absent: no, so that a test can look at them. */
  readonly reap?: boolean
  /** Adds egress to the demo upstream through nginx with this image. */
  readonly proxyImage?: string
  /** Adds egress to the demo upstream through a gateway whose sockets are in a container of this image. */
  readonly gatewayImage?: string
  /** User to switch to from root, before anything else. */
  readonly become?: {
    readonly userId: number
    readonly groupId: number
    readonly groups: ReadonlyArray<number>
  }
}

export type Told =
  | { readonly _tag: "Started"; readonly processId: number }
  | { readonly _tag: "Output"; readonly text: string }
  | { readonly _tag: "Ended"; readonly result: RunResult }
  | { readonly _tag: "Failed"; readonly reason: string; readonly code: string; readonly message: string }

export interface HostProcess {
  readonly processId: number
  /** The first message with this tag. A defect if the process ends without it. */
  readonly told: <T extends Told["_tag"]>(tag: T) => Effect.Effect<Extract<Told, { readonly _tag: T }>>
  /** The message that its run ended or failed, after the release of its resources. */
  readonly last: Effect.Effect<Extract<Told, { readonly _tag: "Ended" | "Failed" }>>
  /** Sends SIGKILL, unless the process has already ended, and waits until it is gone. */
  readonly kill: Effect.Effect<void>
}

/** The key of the demo upstream, which tests search for and must not find. */
export const key = "sk-planted-in-a-host-process"

const isAlive = (processId: number) => {
  try {
    return !/^\d+ \(.*\) [ZX]/su.test(readFileSync(`/proc/${processId}/stat`, "latin1"))
  } catch {
    return false
  }
}

/** Starts the process. With `unreaped`, its parent never reaps it, so that it stays in the process table. */
export const start = (
  asked: Asked,
  options: { readonly unreaped?: boolean } = {}
): Effect.Effect<HostProcess, never, Scope.Scope> =>
  Effect.gen(function* () {
    const argv = [
      process.execPath,
      "--disable-warning=ExperimentalWarning",
      LinkedPrograms.pathOf(import.meta.filename),
      JSON.stringify(asked)
    ]
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        options.unreaped === true
          ? spawn("sh", ["-c", '"$@" & exec sleep 300', "sh", ...argv], {
              stdio: ["ignore", "pipe", "inherit"]
            })
          : spawn(argv[0]!, argv.slice(1), { stdio: ["ignore", "pipe", "inherit"] })
      ),
      (made) => Effect.sync(() => made.kill("SIGKILL"))
    )
    const heard: Array<Told> = []
    const listeners = new Set<() => void>()
    let closed = false
    const change = () => {
      for (const listener of listeners) listener()
    }
    const lines = createInterface({ input: child.stdout! })
    lines.on("line", (line) => {
      // Other lines are logs.
      if (!line.startsWith("{")) return
      heard.push(JSON.parse(line))
      change()
    })
    lines.once("close", () => {
      closed = true
      change()
    })
    const until = <A>(look: () => A | undefined): Effect.Effect<A> =>
      Effect.callback((resume) => {
        const listener = () => {
          const found = look()
          if (found !== undefined) resume(Effect.succeed(found))
          else if (closed) resume(Effect.die(new Error(`the process ended: ${JSON.stringify(heard)}`)))
        }
        listeners.add(listener)
        listener()
        return Effect.sync(() => listeners.delete(listener))
      })
    const told: HostProcess["told"] = (tag) =>
      until(() => heard.find((one): one is Extract<Told, { readonly _tag: typeof tag }> => one._tag === tag))
    const { processId } = yield* told("Started")
    return {
      processId,
      told,
      last: until(() => heard.find((one) => one._tag === "Ended" || one._tag === "Failed")),
      kill: Effect.sync(() => isAlive(processId) && process.kill(processId, "SIGKILL")).pipe(
        Effect.andThen(
          Effect.sync(() => isAlive(processId)).pipe(
            Effect.repeat({ schedule: Schedule.spaced("5 millis"), while: Boolean })
          )
        ),
        Effect.asVoid
      )
    }
  })

const tell = (told: Told) => Effect.sync(() => void process.stdout.write(`${JSON.stringify(told)}\n`))

const become = ({ groupId, groups, userId }: NonNullable<Asked["become"]>) => {
  process.setgroups!([...groups])
  process.setgid!(groupId)
  process.setuid!(userId)
}

const proxyOf = ({ gatewayImage, proxyImage }: Asked) =>
  proxyImage === undefined && gatewayImage === undefined
    ? LlmProxy.layerNoop
    : Layer.unwrap(
        Effect.map(DemoUpstream.acquire(), ({ url }) =>
          proxyImage === undefined
            ? GatewayLlmProxy.layer({
                url: url,
                key: Redacted.make(key),
                carrier: "container",
                image: gatewayImage
              }).pipe(Layer.provide(UsageObserver.layerNone))
            : NginxLlmProxy.layer({
                image: proxyImage,
                upstream: { type: "host", url: url },
                key: Redacted.make(key)
              }).pipe(Layer.provide(UsageObserver.layerNone))
        )
      )

const program = (asked: Asked) =>
  Effect.gen(function* () {
    const runner = yield* SandboxRunner.SandboxRunner
    yield* Stream.runForEach(runner.stream(asked.spec), (event) =>
      event._tag === "OutputReceived"
        ? tell({ _tag: "Output", text: new TextDecoder().decode(event.bytes) })
        : event._tag === "RunEnded"
          ? tell({ _tag: "Ended", result: event.result })
          : Effect.void
    )
  }).pipe(
    Effect.provide(
      SandboxRunner.layer.pipe(
        Layer.provide([
          FileRunStore.layer({ directory: asked.directory, trafficOf: AuditTraffic.reader() }),
          HostWorkspace.layer(),
          proxyOf(asked)
        ]),
        Layer.provide(
          DockerContainerRuntime.layer({
            ...(asked.host === undefined ? Engine.options : { host: asked.host }),
            reap: asked.reap ?? false
          })
        )
      )
    ),
    Effect.catchTag("SandboxError", ({ code, message, reason }) =>
      tell({ _tag: "Failed", reason: reason._tag, code, message })
    )
  )

if (import.meta.main) {
  const asked: Asked = JSON.parse(process.argv[2]!)
  if (asked.become !== undefined) become(asked.become)
  NodeRuntime.runMain(Effect.andThen(tell({ _tag: "Started", processId: process.pid }), program(asked)))
}
