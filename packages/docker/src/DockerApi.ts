/**
 * The Engine API: one function per endpoint, each with a timeout, with schemas at the edge.
 *
 * Only this module talks to the engine, over the connection in `internal`.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { named } from "@cogni/sandbox-core/Remedy"
import { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { Context, Effect, Layer, Schema } from "effect"
import * as EngineConnection from "./internal/engine/EngineConnection.ts"
import { type EngineHttp, parsed, path } from "./internal/engine/EngineHttp.ts"
import { classify, faultOf, isRemovalUnderWay, unreadable } from "./internal/engine/EngineFault.ts"
import * as KnownContainer from "./internal/engine/KnownContainer.ts"
import * as PullProgress from "./internal/engine/PullProgress.ts"
import { defaultPath, parse } from "./DockerSocket.ts"

/** Timeout in seconds of a create, a start or a removal, which take long on a busy engine. */
export const heavyCallSecondsMax = 90

/** Timeout in seconds of a pull. Images have hundreds of megabytes. */
export const pullSecondsMax = 900

export const Inspected = Schema.Struct({
  Id: Schema.String,
  Name: Schema.String,
  /** ID of its image, whatever name that has now. */
  Image: Schema.String,
  HostConfig: Schema.Record(Schema.String, Schema.Unknown),
  /** Directories and volumes that it mounts: those of `HostConfig`, and those that the image asks for. */
  Mounts: Schema.optional(Schema.NullOr(Schema.Array(Schema.Struct({ Destination: Schema.String })))),
  /** Programs that clients of the engine have started in it. */
  ExecIDs: Schema.optional(Schema.NullOr(Schema.Array(Schema.String))),
  Config: Schema.Struct({
    Labels: Schema.NullishOr(Schema.Record(Schema.String, Schema.String)),
    User: Schema.String
  }),
  State: Schema.Struct({
    Status: Schema.String,
    Running: Schema.Boolean,
    OOMKilled: Schema.Boolean,
    Pid: Schema.Int,
    ExitCode: Schema.Int,
    /** ISO 8601, by the engine's clock. Year 1 if it has not happened. */
    StartedAt: Schema.optional(Schema.String),
    FinishedAt: Schema.optional(Schema.String)
  })
})

export type Inspected = typeof Inspected.Type

type Known = KnownContainer.KnownContainer<Inspected>

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
  /** OCI runtimes that it can start containers with, by name, and the one that it uses by default. */
  Runtimes: Schema.optional(Schema.NullOr(Schema.Record(Schema.String, Schema.Unknown))),
  DefaultRuntime: Schema.optional(Schema.String),
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

const Labels = Schema.NullishOr(Schema.Record(Schema.String, Schema.String))

const Volume = Schema.Struct({ Name: Schema.String, Labels })

/** The answers to the three calls that list resources. */
const Listed = Schema.Tuple([
  Schema.Array(
    Schema.Struct({ Id: Schema.String, Names: Schema.NullishOr(Schema.Array(Schema.String)), Labels })
  ),
  Schema.Struct({ Volumes: Schema.NullishOr(Schema.Array(Volume)) }),
  Schema.Array(Schema.Struct({ Id: Schema.String, Name: Schema.String, Labels }))
])

const Version = Schema.Struct({ ApiVersion: Schema.String })

/**
 * Containers with some names. `Image` is the name of the image that a container was created with, or an ID if that name
 * has another image now, or none.
 */
const Named = Schema.Array(Schema.Struct({ Id: Schema.String, Image: Schema.String }))

const Created = Schema.Struct({ Id: Schema.String })

const Image = Schema.Struct({ Id: Schema.String, Size: Schema.Finite })

const Network = Schema.Struct({ Internal: Schema.optional(Schema.Boolean) })

export interface CreateOptions {
  readonly name: string
  readonly image: string
  readonly entrypoint?: ReadonlyArray<string> | undefined
  readonly argv: ReadonlyArray<string>
  readonly env: ReadonlyArray<string>
  readonly user: string
  readonly workingDirectory?: string | undefined
  readonly labels: Readonly<Record<string, string>>
  /**
   * The engine configures no network (default false). The container has a namespace of its own with only `lo`, and the
   * engine mounts no `/etc/hosts`. It starts two programs less, which is a third of the processor time of a short
   * container.
   */
  readonly networkDisabled?: boolean | undefined
  readonly hostConfig: object
}

export interface Options {
  /** Address as in `DOCKER_HOST`. Default: `/var/run/docker.sock`. */
  readonly host?: string | undefined
}

const decoded =
  <A, I>(schema: Schema.Codec<A, I>, operation: string) =>
  (value: unknown): Effect.Effect<A, ContainerError> =>
    Schema.decodeUnknownEffect(schema)(value).pipe(
      Effect.mapError((error) => unreadable(operation, error.message))
    )

/** Decodes the answer to `find`, which is `undefined` if the resource does not exist. */
const decodedIfFound =
  <A, I>(schema: Schema.Codec<A, I>, operation: string) =>
  (value: unknown): Effect.Effect<A | undefined, ContainerError> =>
    value === undefined ? Effect.undefined : decoded(schema, operation)(value)

const make = Effect.fnUntraced(function* (options: Options = {}) {
  const address = parse(options.host ?? defaultPath)
  if (address === undefined) {
    return yield* new RuntimeUnavailable({
      detail: `has an invalid address: ${options.host}`,
      remedy: `Set ${named("DockerApi.host")} to unix:///path/to/docker.sock or tcp://host:port`,
      isPermanent: true
    })
  }
  const { call, find, http } = yield* EngineConnection.make(address)

  const get = (where: string, query?: Readonly<Record<string, string>>) => (abortSignal: AbortSignal) =>
    http.json({ method: "GET", path: where, ...(query === undefined ? {} : { query }), abortSignal })

  const remover = (where: string) => (abortSignal: AbortSignal) =>
    http.json({ method: "DELETE", path: where, abortSignal })

  /** Acts on a running container. Does nothing if the container is not running or does not exist. */
  const toRunning = (
    operation: "kill" | "pause" | "unpause",
    id: string,
    query?: Readonly<Record<string, string>>
  ): Effect.Effect<void, ContainerError> =>
    call(operation, async (abortSignal) => {
      try {
        const where = path("containers", id, operation)
        await http.json({
          method: "POST",
          path: where,
          ...(query === undefined ? {} : { query }),
          abortSignal
        })
      } catch (thrown) {
        const { statusCode } = faultOf(thrown)
        if (statusCode !== 404 && statusCode !== 409) throw thrown
      }
    })

  const imageOf = (image: string) =>
    find("inspect image", get(`${path("images", image)}/json`)).pipe(
      Effect.flatMap(decodedIfFound(Image, "inspect image"))
    )

  /** Removes a container. Succeeds also if it was already removed. */
  const remove = (id: string): Effect.Effect<unknown, ContainerError> =>
    find(
      "remove",
      async (abortSignal) => {
        for (;;) {
          try {
            const query = { force: "true", v: "true" }
            return await http.json({ method: "DELETE", path: path("containers", id), query, abortSignal })
          } catch (thrown) {
            // Another caller is already removing it: poll until the container is not found.
            if (!isRemovalUnderWay(faultOf(thrown))) throw thrown
            await new Promise((resolve) => setTimeout(resolve, 20))
          }
        }
      },
      { secondsMax: heavyCallSecondsMax }
    )

  return {
    address,
    ping: call("ping", get("/version")).pipe(
      Effect.flatMap(decoded(Version, "ping")),
      Effect.map((version) => ({ apiVersion: version.ApiVersion }))
    ),
    info: call("info", get("/info")).pipe(Effect.flatMap(decoded(Info, "info"))),
    imageSize: (image: string) => Effect.map(imageOf(image), (found) => found?.Size),
    /** Returns the ID of the image that has this name now, or `undefined` if none has. */
    imageId: (image: string) => Effect.map(imageOf(image), (found) => found?.Id),
    /** Pulls an image by its digest. The engine verifies its content. */
    pull: (name: string, digest: string) =>
      call(
        "pull",
        async (abortSignal) =>
          PullProgress.finished(
            await http.stream({
              method: "POST",
              path: "/images/create",
              query: { fromImage: name, tag: digest },
              abortSignal
            }),
            abortSignal
          ),
        { secondsMax: pullSecondsMax }
      ),
    create: (options: CreateOptions) =>
      call(
        "create",
        (abortSignal) =>
          http.json({
            method: "POST",
            path: "/containers/create",
            query: { name: options.name },
            body: {
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
              // The engine would start a program of the image, also before the posture is verified.
              Healthcheck: { Test: ["NONE"] },
              ...(options.networkDisabled === true ? { NetworkDisabled: true } : {}),
              HostConfig: options.hostConfig
            },
            abortSignal
          }),
        { secondsMax: heavyCallSecondsMax, image: options.image }
      ).pipe(
        Effect.flatMap(decoded(Created, "create")),
        Effect.map(({ Id }) => Id)
      ),
    /** Attaches to stdin, and to stdout and stderr as frames. Call it before `start`, so that no output is missed. */
    attach: (id: string) =>
      call("attach", (abortSignal) =>
        http.upgrade({
          method: "POST",
          path: path("containers", id, "attach"),
          query: { stream: "true", stdin: "true", stdout: "true", stderr: "true" },
          abortSignal
        })
      ),
    start: (id: string) =>
      call(
        "start",
        (abortSignal) => http.json({ method: "POST", path: path("containers", id, "start"), abortSignal }),
        { secondsMax: heavyCallSecondsMax }
      ).pipe(Effect.asVoid),
    /** Completes when the container next exits. Has no timeout: the caller sets one. */
    waitNextExit: (id: string) =>
      call(
        "wait",
        (abortSignal) =>
          http.json({
            method: "POST",
            path: path("containers", id, "wait"),
            query: { condition: "next-exit" },
            abortSignal
          }),
        { secondsMax: Infinity }
      ).pipe(Effect.asVoid),
    inspect: (id: string) =>
      find("inspect", get(`${path("containers", id)}/json`)).pipe(
        Effect.flatMap(decodedIfFound(Inspected, "inspect"))
      ),
    /** Inspects a container again. Returns `known` itself while the engine says the same about all that can change. */
    inspectAgain: (id: string, known: Known | undefined) =>
      find("inspect", askAgain(http, id, known)).pipe(
        Effect.flatMap(knownFrom(decoded(Inspected, "inspect")))
      ),
    named: (names: ReadonlyArray<string>) =>
      Effect.flatMap(call("list", get("/containers/json", withName(names))), decoded(Named, "list")),
    kill: (id: string, signal: "SIGTERM" | "SIGKILL") => toRunning("kill", id, { signal }),
    /** Freezes all processes of the container. */
    pause: (id: string) => toRunning("pause", id),
    unpause: (id: string) => toRunning("unpause", id),
    remove: (id: string) => Effect.asVoid(remove(id)),
    /** Gives a container another name. Fails if another container has it. */
    rename: (id: string, name: string) =>
      call("rename", (abortSignal) =>
        http.json({ method: "POST", path: path("containers", id, "rename"), query: { name }, abortSignal })
      ).pipe(Effect.asVoid),
    /** Changes limits of a running container. The names are those of `HostConfig`. */
    update: (
      id: string,
      limits: {
        readonly CpuPeriod: number
        readonly CpuQuota: number
        readonly Memory: number
        readonly MemorySwap: number
        readonly PidsLimit: number
      }
    ) =>
      call("update", (abortSignal) =>
        http.json({
          method: "POST",
          path: path("containers", id, "update"),
          body: { ...limits },
          abortSignal
        })
      ).pipe(Effect.asVoid),
    createVolume: (options: {
      readonly name: string
      readonly labels: Readonly<Record<string, string>>
      readonly tmpfsOptions: string
    }) =>
      call("create volume", async (abortSignal) => {
        await http.json({
          method: "POST",
          path: "/volumes/create",
          body: {
            Name: options.name,
            Labels: { ...options.labels },
            Driver: "local",
            DriverOpts: { type: "tmpfs", device: "tmpfs", o: options.tmpfsOptions }
          },
          abortSignal
        })
        // The engine returns an existing volume of that name as if it had created it.
        return await get(path("volumes", options.name))(abortSignal)
      }).pipe(
        Effect.flatMap(decoded(Volume, "create volume")),
        Effect.flatMap((found) =>
          Object.entries(options.labels).every(([name, value]) => found.Labels?.[name] === value)
            ? Effect.void
            : Effect.fail(classify("create volume", nameInUse(options.name)))
        )
      ),
    removeVolume: (name: string) => Effect.asVoid(find("remove volume", remover(path("volumes", name)))),
    /** Returns whether a network is internal, or `undefined` if it does not exist. */
    isInternalNetwork: (name: string) =>
      find("inspect network", get(path("networks", name))).pipe(
        Effect.flatMap(decodedIfFound(Network, "inspect network")),
        Effect.map((found) => found && found.Internal === true)
      ),
    removeNetwork: (id: string) => Effect.asVoid(find("remove network", remover(path("networks", id)))),
    /** Lists all containers, volumes and networks with a label: `name` for any value, or `name=value`. */
    labelled: (label: string) => {
      const filters = JSON.stringify({ label: [label] })
      return call("list", (abortSignal) =>
        Promise.all([
          get("/containers/json", { all: "true", filters })(abortSignal),
          get("/volumes", { filters })(abortSignal),
          get("/networks", { filters })(abortSignal)
        ])
      ).pipe(
        Effect.flatMap(decoded(Listed, "list")),
        Effect.map(([containers, { Volumes }, networks]) => [
          ...containers.map(({ Id, Labels, Names }) =>
            labelledAs("container", Id, Labels, Names?.[0]?.replace(/^\//u, ""))
          ),
          ...(Volumes ?? []).map(({ Labels, Name }) => labelledAs("volume", Name, Labels)),
          ...networks.map(({ Id, Labels, Name }) => labelledAs("network", Id, Labels, Name))
        ])
      )
    },
    /** Streams the engine's events about labelled containers, one JSON object per line. */
    events: (label: string) =>
      call("events", (abortSignal) =>
        http.stream({
          method: "GET",
          path: "/events",
          query: { filters: JSON.stringify({ type: ["container"], label: [label] }) },
          abortSignal
        })
      )
  }
})

export class DockerApi extends Context.Service<DockerApi>()("@cogni/sandbox-docker/DockerApi", { make }) {}

/** Asks for a container. Returns the text and the value of the answer, unless it is known. */
const askAgain =
  ({ text }: Pick<EngineHttp, "text">, id: string, known: Known | undefined) =>
  async (abortSignal: AbortSignal) => {
    const answer = await text({ method: "GET", path: `${path("containers", id)}/json`, abortSignal })
    return known !== undefined && KnownContainer.isUnchanged(answer, known)
      ? known
      : { text: answer, value: parsed(answer) }
  }

const knownFrom =
  (decode: (value: unknown) => Effect.Effect<Inspected, ContainerError>) =>
  (
    answer: Awaited<ReturnType<ReturnType<typeof askAgain>>> | undefined
  ): Effect.Effect<Known | undefined, ContainerError> =>
    answer === undefined || "inspected" in answer
      ? Effect.succeed(answer)
      : Effect.map(decode(answer.value), (inspected) => ({
          inspected,
          beginning: KnownContainer.beginningOf(answer.text)
        }))

/** Query for containers with one of these names, which must match as a whole. */
const withName = (names: ReadonlyArray<string>) => ({
  all: "true",
  filters: JSON.stringify({ name: names.map((name) => `^/${name.replaceAll(".", "\\.")}$`) })
})

const nameInUse = (name: string) =>
  Object.assign(new Error(`the volume name ${name} is already in use`), { statusCode: 409 })

const labelledAs = (
  kind: Labelled["kind"],
  id: string,
  labels: Labelled["labels"] | null | undefined,
  name = id
): Labelled => ({ kind, id, name, labels: labels ?? {} })

export const layer = (options?: Options): Layer.Layer<DockerApi, RuntimeUnavailable> =>
  Layer.effect(DockerApi, DockerApi.make(options))
