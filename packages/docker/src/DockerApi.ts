/**
 * The Engine API: one function per endpoint, each bounded in time, with schemas at the edge.
 *
 * The only module that speaks to the engine, over the connection in `internal`. dockerode stays behind the two; none of
 * its types go further.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxError"
import type Docker from "dockerode"
import { Context, Effect, Layer, Schema } from "effect"
import type { Duplex, Readable } from "node:stream"
import * as EngineConnection from "./internal/engine/EngineConnection.ts"
import { finished } from "node:stream/promises"
import { classify, faultOf, isRemovalUnderWay } from "./internal/engine/EngineFault.ts"
import { type DockerAddress, defaultPath, parse } from "./DockerSocket.ts"

/** How long a create, a start or a removal may take on a busy engine. */
export const heavyCallSecondsMax = 90

export const Inspected = Schema.Struct({
  Id: Schema.String,
  Name: Schema.String,
  HostConfig: Schema.Record(Schema.String, Schema.Unknown),
  Config: Schema.Struct({
    Labels: Schema.NullishOr(Schema.Record(Schema.String, Schema.String)),
    User: Schema.String
  }),
  State: Schema.Struct({
    Status: Schema.String,
    Running: Schema.Boolean,
    OOMKilled: Schema.Boolean,
    Pid: Schema.Int,
    ExitCode: Schema.Int
  })
})

export type Inspected = typeof Inspected.Type

/** What carries our labels. */
export interface Labelled {
  readonly kind: "container" | "volume" | "network"
  readonly id: string
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
}

const ContainerEvent = Schema.Struct({
  Action: Schema.String,
  Actor: Schema.Struct({ ID: Schema.String, Attributes: Schema.Record(Schema.String, Schema.String) })
})

export type ContainerEvent = typeof ContainerEvent.Type

const Info = Schema.Struct({
  ServerVersion: Schema.String,
  /** What it starts containers with: a version, or a commit, sometimes with a distribution's own suffix. */
  RuncCommit: Schema.optional(Schema.NullOr(Schema.Struct({ ID: Schema.String }))),
  Driver: Schema.String,
  CgroupVersion: Schema.optional(Schema.String),
  CgroupDriver: Schema.optional(Schema.String),
  DockerRootDir: Schema.String,
  OperatingSystem: Schema.String,
  /** Host name and kernel of the machine that the engine runs on. */
  Name: Schema.optional(Schema.String),
  KernelVersion: Schema.optional(Schema.String),
  NCPU: Schema.Int,
  MemTotal: Schema.Finite,
  SwapLimit: Schema.optional(Schema.Boolean),
  PidsLimit: Schema.optional(Schema.Boolean),
  CpuCfsPeriod: Schema.optional(Schema.Boolean),
  CpuCfsQuota: Schema.optional(Schema.Boolean),
  SecurityOptions: Schema.NullishOr(Schema.Array(Schema.String)),
  Warnings: Schema.NullishOr(Schema.Array(Schema.String))
})

export type Info = typeof Info.Type

export interface CreateOptions {
  readonly name: string
  readonly image: string
  readonly entrypoint?: ReadonlyArray<string> | undefined
  readonly argv: ReadonlyArray<string>
  readonly env: ReadonlyArray<string>
  readonly user: string
  readonly workingDirectory?: string | undefined
  readonly labels: Readonly<Record<string, string>>
  readonly hostConfig: object
}

export class DockerApi extends Context.Service<
  DockerApi,
  {
    readonly address: DockerAddress
    readonly ping: Effect.Effect<{ readonly apiVersion: string }, ContainerError>
    readonly info: Effect.Effect<Info, ContainerError>
    readonly imageSize: (image: string) => Effect.Effect<number | undefined, ContainerError>
    readonly create: (options: CreateOptions) => Effect.Effect<string, ContainerError>
    /** Frames of stdout and stderr come out, stdin goes in. Before the start, so that nothing is missed. */
    readonly attach: (id: string) => Effect.Effect<Duplex, ContainerError>
    readonly start: (id: string) => Effect.Effect<void, ContainerError>
    /** Settles when the container next ends. Unbounded: the caller has the clock. */
    readonly waitNextExit: (id: string) => Effect.Effect<void, ContainerError>
    readonly inspect: (id: string) => Effect.Effect<Inspected | undefined, ContainerError>
    readonly kill: (id: string, signal: "SIGTERM" | "SIGKILL") => Effect.Effect<void, ContainerError>
    /** Freeze all its processes; of one that does not run: nothing. */
    readonly pause: (id: string) => Effect.Effect<void, ContainerError>
    readonly unpause: (id: string) => Effect.Effect<void, ContainerError>
    /** Idempotent: succeeds when the container is gone. */
    readonly remove: (id: string) => Effect.Effect<void, ContainerError>
    readonly createVolume: (options: {
      readonly name: string
      readonly labels: Readonly<Record<string, string>>
      readonly tmpfsOptions: string
    }) => Effect.Effect<void, ContainerError>
    readonly removeVolume: (name: string) => Effect.Effect<void, ContainerError>
    /** `undefined` when there is none of that name. */
    readonly isInternalNetwork: (name: string) => Effect.Effect<boolean | undefined, ContainerError>
    readonly removeNetwork: (id: string) => Effect.Effect<void, ContainerError>
    /** Everything that carries a label, of any value or of this one. */
    readonly labelled: (label: string) => Effect.Effect<ReadonlyArray<Labelled>, ContainerError>
    /** Lines of the engine's event stream about labelled containers, until it ends. */
    readonly events: (label: string) => Effect.Effect<Readable, ContainerError>
    readonly parseEvent: (line: string) => ContainerEvent | undefined
  }
>()("@cogni/sandbox-docker/DockerApi") {}

export const make = Effect.fnUntraced(function* (options: { readonly host?: string | undefined } = {}) {
  const address = parse(options.host ?? defaultPath)
  if (address === undefined) {
    return yield* new RuntimeUnavailable({
      detail: `has an address that is none: ${options.host}`,
      remedy: "Set DOCKER_HOST to unix:///path/to/docker.sock or tcp://host:port"
    })
  }
  const { call, docker } = yield* EngineConnection.make(address)

  const decoded =
    <A, I>(schema: Schema.Codec<A, I>, operation: string) =>
    (value: unknown): Effect.Effect<A, ContainerError> =>
      Schema.decodeUnknownEffect(schema)(value).pipe(
        Effect.mapError((error) =>
          classify(operation, new Error(`an answer this library does not know: ${error.message}`))
        )
      )

  /** Of a container that does not run, or is gone: nothing. */
  const toRunning =
    (operation: string, act: (container: Docker.Container, abortSignal: AbortSignal) => Promise<unknown>) =>
    (id: string): Effect.Effect<void, ContainerError> =>
      call(operation, async (abortSignal) => {
        try {
          await act(docker.getContainer(id), abortSignal)
        } catch (thrown) {
          const { statusCode } = faultOf(thrown)
          if (statusCode !== 404 && statusCode !== 409) throw thrown
        }
      })

  const remove = (id: string): Effect.Effect<void, ContainerError> =>
    call(
      "remove",
      async (abortSignal) => {
        for (;;) {
          try {
            return await EngineConnection.absentIsFine(
              docker.getContainer(id).remove({ force: true, v: true, abortSignal })
            )
          } catch (thrown) {
            // Somebody else removes it already; it is gone when it can no longer be found.
            if (!isRemovalUnderWay(faultOf(thrown))) throw thrown
            await new Promise((resolve) => setTimeout(resolve, 20))
          }
        }
      },
      { secondsMax: heavyCallSecondsMax }
    ).pipe(Effect.asVoid)

  return DockerApi.of({
    address,
    ping: call("ping", () => docker.version()).pipe(
      Effect.map((version) => ({ apiVersion: version.ApiVersion }))
    ),
    info: call("info", () => docker.info()).pipe(Effect.flatMap(decoded(Info, "info"))),
    imageSize: (image) =>
      call("inspect image", () => EngineConnection.absentIsFine(docker.getImage(image).inspect())).pipe(
        Effect.map((found) => found?.Size)
      ),
    create: (options) =>
      call(
        "create",
        async (abortSignal) => {
          const container = await docker.createContainer({
            // Or dockerode writes all of it into the URL as well: into logs, and up to where an engine refuses it.
            _query: { name: options.name },
            _body: {
              Image: options.image,
              ...(options.entrypoint === undefined ? {} : { Entrypoint: [...options.entrypoint] }),
              Cmd: [...options.argv],
              Env: [...options.env],
              User: options.user,
              ...(options.workingDirectory === undefined ? {} : { WorkingDir: options.workingDirectory }),
              Labels: { ...options.labels },
              AttachStdin: true,
              AttachStdout: true,
              AttachStderr: true,
              OpenStdin: true,
              StdinOnce: true,
              Tty: false,
              HostConfig: options.hostConfig
            },
            abortSignal
          } as Docker.ContainerCreateOptions)
          return container.id
        },
        { secondsMax: heavyCallSecondsMax, image: options.image }
      ),
    attach: (id) =>
      call("attach", async (abortSignal) => {
        const stream = docker.getContainer(id).attach({
          stream: true,
          stdin: true,
          stdout: true,
          stderr: true,
          hijack: true
        })
        return (await EngineConnection.abandonable(stream, abortSignal)) as Duplex
      }),
    start: (id) =>
      call("start", (abortSignal) => docker.getContainer(id).start({ abortSignal }), {
        secondsMax: heavyCallSecondsMax
      }).pipe(Effect.asVoid),
    waitNextExit: (id) =>
      call(
        "wait",
        async (abortSignal) => {
          const answer = await EngineConnection.answering(docker, {
            path: `/containers/${id}/wait?`,
            options: { condition: "next-exit" },
            abortSignal
          })
          answer.resume()
          await finished(answer)
        },
        { secondsMax: Infinity }
      ),
    inspect: (id) =>
      call("inspect", (abortSignal) =>
        EngineConnection.absentIsFine(docker.getContainer(id).inspect({ abortSignal }))
      ).pipe(
        Effect.flatMap((found) =>
          found === undefined ? Effect.succeed(undefined) : decoded(Inspected, "inspect")(found)
        )
      ),
    kill: (id, signal) =>
      toRunning("kill", (container, abortSignal) => container.kill({ signal, abortSignal }))(id),
    pause: toRunning("pause", (container, abortSignal) => container.pause({ abortSignal })),
    unpause: toRunning("unpause", (container, abortSignal) => container.unpause({ abortSignal })),
    remove,
    createVolume: (options) =>
      call("create volume", async (abortSignal) => {
        await docker.createVolume({
          Name: options.name,
          Labels: { ...options.labels },
          Driver: "local",
          DriverOpts: { type: "tmpfs", device: "tmpfs", o: options.tmpfsOptions },
          abortSignal
        })
        // The engine hands out an existing volume of that name as if it had made it.
        const { Labels } = await docker.getVolume(options.name).inspect({ abortSignal })
        // Its types do not say so: a volume without labels has null.
        const found: Readonly<Record<string, string>> | null = Labels
        if (Object.entries(options.labels).some(([name, value]) => found?.[name] !== value)) {
          throw Object.assign(new Error(`the volume name ${options.name} is already in use`), {
            statusCode: 409
          })
        }
      }),
    removeVolume: (name) =>
      call("remove volume", (abortSignal) =>
        EngineConnection.absentIsFine(docker.getVolume(name).remove({ abortSignal }))
      ).pipe(Effect.asVoid),
    isInternalNetwork: (name) =>
      call("inspect network", () => EngineConnection.absentIsFine(docker.getNetwork(name).inspect())).pipe(
        Effect.map((found) => (found === undefined ? undefined : found.Internal === true))
      ),
    removeNetwork: (id) =>
      call("remove network", () => EngineConnection.absentIsFine(docker.getNetwork(id).remove())).pipe(
        Effect.asVoid
      ),
    labelled: (label) =>
      call("list", async (abortSignal) => {
        const filters = { label: [label] }
        const [containers, volumes, networks] = await Promise.all([
          docker.listContainers({ all: true, filters, abortSignal }),
          docker.listVolumes({ filters, abortSignal } as Docker.VolumeListOptions),
          docker.listNetworks({ filters, abortSignal })
        ])
        return [
          ...containers.map((one): Labelled => ({
            kind: "container",
            id: one.Id,
            name: one.Names[0]?.replace(/^\//u, "") ?? one.Id,
            labels: one.Labels
          })),
          ...(volumes.Volumes ?? []).map((one): Labelled => ({
            kind: "volume",
            id: one.Name,
            name: one.Name,
            labels: one.Labels ?? {}
          })),
          ...networks.map((one): Labelled => ({
            kind: "network",
            id: one.Id,
            name: one.Name,
            labels: one.Labels ?? {}
          }))
        ]
      }),
    events: (label) =>
      call("events", async (abortSignal) => {
        const stream = docker.getEvents({ filters: { type: ["container"], label: [label] } })
        return (await EngineConnection.abandonable(stream, abortSignal)) as Readable
      }),
    parseEvent: (line) => {
      const parsed = decodeEvent(line)
      return parsed._tag === "Some" ? parsed.value : undefined
    }
  })
})

export const layer = (options?: {
  readonly host?: string | undefined
}): Layer.Layer<DockerApi, RuntimeUnavailable> => Layer.effect(DockerApi, make(options))

const decodeEvent = Schema.decodeUnknownOption(Schema.fromJsonString(ContainerEvent))
