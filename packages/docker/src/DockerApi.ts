/**
 * The Engine API: one function per endpoint, each with a timeout, with schemas at the edge.
 *
 * Only this module talks to the engine, over the connection in `internal`. The two hide dockerode: they export none of
 * its types.
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

/** Timeout in seconds of a create, a start or a removal, which take long on a busy engine. */
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

/** A container, volume or network that has our labels. */
export interface Labelled {
  readonly kind: "container" | "volume" | "network"
  readonly id: string
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
}

const Info = Schema.Struct({
  ServerVersion: Schema.String,
  /** The runc that starts containers: a version or a commit, sometimes with a distribution's suffix. */
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
  /** Address as in `DOCKER_HOST`. Default: `/var/run/docker.sock`. */
  readonly host?: string | undefined
}

const make = Effect.fnUntraced(function* (options: Options = {}) {
  const address = parse(options.host ?? defaultPath)
  if (address === undefined) {
    return yield* new RuntimeUnavailable({
      detail: `has an invalid address: ${options.host}`,
      remedy: "Set DOCKER_HOST to unix:///path/to/docker.sock or tcp://host:port"
    })
  }
  const { call, docker, find } = yield* EngineConnection.make(address)

  const decoded =
    <A, I>(schema: Schema.Codec<A, I>, operation: string) =>
    (value: unknown): Effect.Effect<A, ContainerError> =>
      Schema.decodeUnknownEffect(schema)(value).pipe(
        Effect.mapError((error) => classify(operation, new Error(`unexpected response: ${error.message}`)))
      )

  /** Acts on a running container. Does nothing if the container is not running or does not exist. */
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

  /** Removes a container. Succeeds also if it was already removed. */
  const remove = (id: string): Effect.Effect<void, ContainerError> =>
    find(
      "remove",
      async (abortSignal) => {
        for (;;) {
          try {
            return await docker.getContainer(id).remove({ force: true, v: true, abortSignal })
          } catch (thrown) {
            // Another caller is already removing it: poll until the container is not found.
            if (!isRemovalUnderWay(faultOf(thrown))) throw thrown
            await new Promise((resolve) => setTimeout(resolve, 20))
          }
        }
      },
      { secondsMax: heavyCallSecondsMax }
    )

  /** Opens a stream that stays open until the caller or the engine closes it. */
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
            // Otherwise dockerode also writes all options into the URL: into logs, and past the URL limit of an engine.
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
    /** Attaches to stdin, and to stdout and stderr as frames. Call it before `start`, so that no output is missed. */
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
    /** Completes when the container next exits. Has no timeout: the caller sets one. */
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
    /** Freezes all processes of the container. */
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
        // The engine returns an existing volume of that name as if it had created it.
        const { Labels } = await docker.getVolume(options.name).inspect({ abortSignal })
        // dockerode's types are wrong here: a volume without labels has null.
        const found: Readonly<Record<string, string>> | null = Labels
        if (Object.entries(options.labels).some(([name, value]) => found?.[name] !== value)) {
          throw Object.assign(new Error(`the volume name ${options.name} is already in use`), {
            statusCode: 409
          })
        }
      }),
    removeVolume: (name: string) =>
      Effect.asVoid(find("remove volume", (abortSignal) => docker.getVolume(name).remove({ abortSignal }))),
    /** Returns whether a network is internal, or `undefined` if it does not exist. */
    isInternalNetwork: (name: string) =>
      Effect.map(
        find("inspect network", () => docker.getNetwork(name).inspect()),
        (found) => found && found.Internal === true
      ),
    removeNetwork: (id: string) =>
      Effect.asVoid(find("remove network", () => docker.getNetwork(id).remove())),
    /** Lists all containers, volumes and networks with a label: `name` for any value, or `name=value`. */
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
    /** Streams the engine's events about labelled containers, one JSON object per line. */
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
