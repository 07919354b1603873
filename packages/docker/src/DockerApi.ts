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
import { defaultPath, parse } from "./DockerSocket.ts"

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

export interface Options {
  /** As in `DOCKER_HOST`; the usual socket when left out. */
  readonly host?: string | undefined
}

const make = Effect.fnUntraced(function* (options: Options = {}) {
  const address = parse(options.host ?? defaultPath)
  if (address === undefined) {
    return yield* new RuntimeUnavailable({
      detail: `has an address that is none: ${options.host}`,
      remedy: "Set DOCKER_HOST to unix:///path/to/docker.sock or tcp://host:port"
    })
  }
  const { call, docker, find } = yield* EngineConnection.make(address)

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

  /** Succeeds when the container is gone, whoever removed it. */
  const remove = (id: string): Effect.Effect<void, ContainerError> =>
    find(
      "remove",
      async (abortSignal) => {
        for (;;) {
          try {
            return await docker.getContainer(id).remove({ force: true, v: true, abortSignal })
          } catch (thrown) {
            // Somebody else removes it already; it is gone when it can no longer be found.
            if (!isRemovalUnderWay(faultOf(thrown))) throw thrown
            await new Promise((resolve) => setTimeout(resolve, 20))
          }
        }
      },
      { secondsMax: heavyCallSecondsMax }
    )

  /** A stream that stays open until the caller closes it, or the engine does. */
  const opened = <S extends Readable>(operation: string, open: () => Promise<NodeJS.ReadableStream>) =>
    call(operation, (abortSignal) => EngineConnection.abandonable<S>(open(), abortSignal))

  return {
    address,
    ping: call("ping", () => docker.version()).pipe(
      Effect.map((version) => ({ apiVersion: version.ApiVersion }))
    ),
    info: call("info", () => docker.info()).pipe(Effect.flatMap(decoded(Info, "info"))),
    imageSize: (image: string) =>
      Effect.map(
        find("inspect image", () => docker.getImage(image).inspect()),
        (found) => found?.Size
      ),
    create: (options: CreateOptions) =>
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
    /** Frames of stdout and stderr come out, stdin goes in. Before the start, so that nothing is missed. */
    attach: (id: string) =>
      opened<Duplex>("attach", () =>
        docker
          .getContainer(id)
          .attach({ stream: true, stdin: true, stdout: true, stderr: true, hijack: true })
      ),
    start: (id: string) =>
      call("start", (abortSignal) => docker.getContainer(id).start({ abortSignal }), {
        secondsMax: heavyCallSecondsMax
      }).pipe(Effect.asVoid),
    /** Settles when the container next ends. Unbounded: the caller has the clock. */
    waitNextExit: (id: string) =>
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
    inspect: (id: string) =>
      find("inspect", (abortSignal) => docker.getContainer(id).inspect({ abortSignal })).pipe(
        Effect.flatMap((found) =>
          found === undefined ? Effect.succeed(undefined) : decoded(Inspected, "inspect")(found)
        )
      ),
    kill: (id: string, signal: "SIGTERM" | "SIGKILL") =>
      toRunning("kill", (container, abortSignal) => container.kill({ signal, abortSignal }))(id),
    /** Freezes all its processes. */
    pause: toRunning("pause", (container, abortSignal) => container.pause({ abortSignal })),
    unpause: toRunning("unpause", (container, abortSignal) => container.unpause({ abortSignal })),
    remove,
    createVolume: (options: {
      readonly name: string
      readonly labels: Readonly<Record<string, string>>
      readonly tmpfsOptions: string
    }) =>
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
    removeVolume: (name: string) =>
      Effect.asVoid(find("remove volume", (abortSignal) => docker.getVolume(name).remove({ abortSignal }))),
    /** `undefined` when there is none of that name. */
    isInternalNetwork: (name: string) =>
      Effect.map(
        find("inspect network", () => docker.getNetwork(name).inspect()),
        (found) => found && found.Internal === true
      ),
    removeNetwork: (id: string) =>
      Effect.asVoid(find("remove network", () => docker.getNetwork(id).remove())),
    /** Everything that carries a label, of any value or of this one. */
    labelled: (label: string) =>
      call("list", async (abortSignal) => {
        const filters = { label: [label] }
        const [containers, volumes, networks] = await Promise.all([
          docker.listContainers({ all: true, filters, abortSignal }),
          docker.listVolumes({ filters, abortSignal } as Docker.VolumeListOptions),
          docker.listNetworks({ filters, abortSignal })
        ])
        return [
          ...containers.map(({ Id, Labels, Names }) =>
            labelledAs("container", Id, Labels, Names[0]?.replace(/^\//u, ""))
          ),
          ...(volumes.Volumes ?? []).map(({ Labels, Name }) => labelledAs("volume", Name, Labels)),
          ...networks.map(({ Id, Labels, Name }) => labelledAs("network", Id, Labels, Name))
        ]
      }),
    /** Lines of the engine's event stream about labelled containers, until it ends. */
    events: (label: string) =>
      opened("events", () => docker.getEvents({ filters: { type: ["container"], label: [label] } }))
  }
})

export class DockerApi extends Context.Service<DockerApi>()("@cogni/sandbox-docker/DockerApi", { make }) {}

const labelledAs = (
  kind: Labelled["kind"],
  id: string,
  labels: Labelled["labels"] | null | undefined,
  name = id
): Labelled => ({ kind, id, name, labels: labels ?? {} })

export const layer = (options?: Options): Layer.Layer<DockerApi, RuntimeUnavailable> =>
  Layer.effect(DockerApi, DockerApi.make(options))
