/** Ways to run `true` in a container without a network: Docker's command line, the bare Engine API, our runner. */
import type * as ContainerRuntime from "@cogni/sandbox-core/ContainerRuntime"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import type { Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as NginxLlmProxy from "@cogni/sandbox-proxy/NginxLlmProxy"
import type { Upstream } from "@cogni/sandbox-proxy/Upstream"
import type Docker from "dockerode"
import { Effect, Layer, Redacted } from "effect"
import { execFile } from "node:child_process"
import { Agent } from "node:http"
import { PassThrough } from "node:stream"
import { inspect, promisify } from "node:util"

/** Runs once, and throws on failure. Returns the milliseconds of its phases, if it has any. */
export type Contender = () => Promise<Readonly<Record<string, number>>>

/** Directory and engine of our runs. */
export interface Place {
  /** Directory for run records. */
  readonly directory: string
  /** Address of the engine, as in `DOCKER_HOST`. */
  readonly host: string | undefined
}

const exec = promisify(execFile)

export const cli =
  (image: string): Contender =>
  async () => {
    await exec("docker", ["run", "--rm", "--network", "none", "--entrypoint", "true", image])
    return {}
  }

/**
 * The lower bound for any library over this engine: five calls, persistent connections, no hardening, no checks. The
 * agent prints as little as ours when it is inspected, because dockerode's debug log would make this one slower.
 */
export const bareApi = (docker: Docker, image: string): Contender => {
  const run = bareApiKept(docker, image)
  return async () => {
    const container = await run()
    await container.remove()
    return {}
  }
}

/** The same, but each run returns its container. The caller removes it later, as ours are removed after their results. */
export const bareApiKept = (docker: Docker, image: string) => {
  const agent = Object.assign(new Agent({ keepAlive: true }), { [inspect.custom]: () => "Agent" })
  Object.assign(docker.modem, { agent })
  return async (): Promise<Pick<Docker.Container, "remove">> => {
    const container = await docker.createContainer({
      Image: image,
      Entrypoint: ["true"],
      Cmd: [],
      AttachStdout: true,
      AttachStderr: true,
      HostConfig: { NetworkMode: "none" }
    })
    const stream = await container.attach({ stream: true, stdout: true, stderr: true, hijack: true })
    const output = new PassThrough()
    docker.modem.demuxStream(stream, output, output)
    output.resume()
    await container.start()
    const { StatusCode } = (await container.wait()) as { readonly StatusCode: number }
    if (StatusCode === 0) return container
    await container.remove()
    throw new Error(`the bare container ended with ${StatusCode}`)
  }
}

const spec = (image: string): SandboxSpecInput => ({ image, argv: ["true"] })

const withModel = (image: string): SandboxSpecInput => ({
  ...spec(image),
  llm: { model: "demo", identity: { billingAccountId: "bench" } }
})

const phases = (result: RunResult) => {
  if (result.exitCode !== 0)
    throw new Error(`the agent ended with ${result.exitCode}: ${result.output.stderr.text}`)
  return Object.fromEntries(result.timings.map(({ durationMs, phase }) => [phase, durationMs]))
}

/** Our runner over its own directory, until the scope closes. */
const runner = (
  { directory, host }: Place,
  proxy: Layer.Layer<LlmProxy.LlmProxy, Misconfigured, ContainerRuntime.ContainerRuntime>
) =>
  Effect.map(
    Layer.build(
      SandboxRunner.layer.pipe(
        Layer.provide([
          HostWorkspace.layer(),
          FileRunStore.layer({ directory, trafficOf: "unknown" }),
          proxy
        ]),
        Layer.provide(DockerContainerRuntime.layer({ host }))
      )
    ),
    (context) => (input: SandboxSpecInput) =>
      SandboxRunner.SandboxRunner.use((service) => service.run(input)).pipe(
        Effect.map(phases),
        Effect.provide(context),
        Effect.runPromise
      )
  )

export const sealed = (place: Place, image: string) =>
  Effect.map(
    runner(place, LlmProxy.layerNoop),
    (run): Contender =>
      () =>
        run(spec(image))
  )

export const sealedWithGateway = (
  place: Place,
  images: { readonly runtime: string; readonly gateway: string },
  url: string,
  carrier: "directory" | "container"
) =>
  Effect.map(
    runner(
      place,
      GatewayLlmProxy.layer({
        url,
        key: Redacted.make("no-key-of-anybody"),
        carrier,
        image: images.gateway
      }).pipe(Layer.provide(UsageObserver.layerNone))
    ),
    (run): Contender =>
      () =>
        run(withModel(images.runtime))
  )

export const sealedWithModel = (
  place: Place,
  images: { readonly runtime: string; readonly proxy: string },
  upstream: Upstream
) =>
  Effect.map(
    runner(
      place,
      NginxLlmProxy.layer({ image: images.proxy, upstream, key: Redacted.make("no-key-of-anybody") }).pipe(
        Layer.provide(UsageObserver.layerNone)
      )
    ),
    (run): Contender =>
      () =>
        run(withModel(images.runtime))
  )
