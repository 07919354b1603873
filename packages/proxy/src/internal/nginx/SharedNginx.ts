/**
 * One nginx container for many runs: its start, its directories on the host, and the connection over which runs are
 * registered and removed.
 *
 *     <directory>/sockets/<n>.sock   made by nginx; a run's directory gets a hard link to one
 *                 up/<n>.sock        made by the relay's thread
 *                 logs/<n>.log       a hard link to the access log of a run
 *
 * The container has no network. Its configuration, the keys and all registrations arrive on its standard input. It ends
 * when that input ends, so it never outlives this process.
 */
import { Cause, Clock, Deferred, Duration, Effect, Exit, Latch, Scope } from "effect"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import type { Container, ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import type { LlmProxyError } from "@cogni/sandbox-core/LlmProxy"
import type { User } from "@cogni/sandbox-core/Posture"
import { named } from "@cogni/sandbox-core/Remedy"
import * as RunId from "@cogni/sandbox-core/RunId"
import { type HostFailed, ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import type { UpstreamKey } from "../../KeyInjection.ts"
import type * as Upstream from "../../Upstream.ts"
import * as HostDisk from "../HostDisk.ts"
import * as NginxContainer from "./NginxContainer.ts"
import * as NginxLimits from "./NginxLimits.ts"
import * as RelayThread from "./RelayThread.ts"
import * as SharedNginxConfig from "./SharedNginxConfig.ts"

interface SharedNginxOptions extends Omit<SharedNginxConfig.SharedNginxConfig, "runtimeSecondsMax" | "via"> {
  readonly runtime: ContainerRuntime["Service"]
  readonly image: string
  readonly upstream: Upstream.Upstream
  /** Removed from errors. */
  readonly key: UpstreamKey
  readonly owner: User
  /** Parent of its directory (default the directory for temporary files). */
  readonly parent: string | undefined
  readonly relayConnectionsPerSecondMax: number
  readonly certificateAuthorities: ReadonlyArray<string> | undefined
  readonly readySecondsMax: number | undefined
}

export interface SharedNginx {
  readonly directory: string
  /** Path of the relay of a run. */
  readonly relayPath: (place: number) => string
  /** Time at which the container ends itself, in milliseconds since 1970. */
  readonly deadlineMillis: number
  /** Succeeds when it takes commands. */
  readonly ready: Effect.Effect<void, LlmProxyError>
  /** Never succeeds. Fails with the reason when it has ended. */
  readonly failure: Effect.Effect<never, LlmProxyError>
  readonly hasEnded: () => boolean
  /** Sends a command, and returns the number that it is answered with. */
  readonly command: (...words: ReadonlyArray<string>) => Effect.Effect<number, LlmProxyError>
  /** Thread between nginx and an upstream that the host reaches. */
  readonly relay: Effect.Effect<RelayThread.RelayThread | undefined, LlmProxyError>
  /** Ends it and all calls at once, because it may serve a run that has been removed. */
  readonly abort: (cause: LlmProxyError) => Effect.Effect<void>
  /** Lets it end. No run uses it any more. */
  readonly retire: Effect.Effect<void>
}

const MiB = 1024 * 1024

/** How long a container may live. A run that could last longer gets a new one. */
export const lifeSecondsMax = 30 * 24 * 3600

/** Longest silence of an upstream. The end of a run cuts its calls in any case. */
const silentSecondsMax = 24 * 3600

const commandSecondsMax = 15

/** Sizes for `SharedNginxConfig.connectionsMax` connections, each with the buffers of a call. */
const limits = {
  memoryBytesMax: 2048 * MiB,
  processesMax: 32,
  cpusMax: 2,
  temporaryBytesMax: 8 * MiB,
  workspaceBytesMax: NginxLimits.fileBytesMax,
  filesOpenMax: 16_384
} as const

const failed = (detail: string) =>
  new ProxyFailed({
    detail: `the shared nginx ${detail}`,
    remedy: `Check the engine and the proxy image (${named("DockerDoctor")})`
  })

const places = { sockets: "sockets", relays: "up", logs: "logs", runs: "runs" } as const

/** `sun_path` has 108 bytes, including the final NUL. */
const socketPathBytesMax = 107

/** Paths on the host. */
export const paths = (directory: string) => ({
  socket: (slot: number) => path.join(directory, places.sockets, SharedNginxConfig.socketName(slot)),
  tokenSocket: path.join(directory, places.sockets, SharedNginxConfig.tokenSocketName),
  log: (place: number) => path.join(directory, places.logs, SharedNginxConfig.logName(place)),
  run: (place: number) => path.join(directory, places.runs, String(place))
})

/** Returns an error if a file that a run needs has been removed. `slot` is the number of the run's socket. */
export const lost = (directory: string, slot: number | undefined): Effect.Effect<ProxyFailed | undefined> =>
  Effect.promise(async () => {
    const found = paths(directory)
    const needed = [
      slot === undefined ? found.tokenSocket : found.socket(slot),
      path.dirname(found.log(0)),
      path.dirname(found.run(0))
    ]
    for (const file of needed) {
      const cause = await fs.lstat(file).catch((error: NodeJS.ErrnoException) => error)
      if ("code" in cause && cause.code === "ENOENT")
        return new ProxyFailed({
          detail: `${file} of the shared nginx has been removed`,
          remedy:
            "Run again: the next run gets a new one. Find out what removes files there, such as a cleaner"
        })
    }
    return undefined
  })

const acquireDirectories = ({ owner, parent }: SharedNginxOptions) =>
  Effect.gen(function* () {
    const failure = "the directory of the shared nginx cannot be created"
    const directory = yield* HostDisk.temporaryDirectory(
      failure,
      parent === undefined ? "cogni-sandbox-nginx-" : "nginx-",
      parent
    )
    yield* HostDisk.use(failure, async () => {
      for (const name of Object.values(places)) {
        const inner = path.join(directory, name)
        await fs.mkdir(inner, { mode: 0o700 })
        if (name !== places.runs && process.getuid?.() === 0)
          await fs.chown(inner, owner.userId, owner.groupId)
      }
    })
    const inside = path.join(directory, places.relays)
    const fits =
      Buffer.byteLength(path.join(inside, SharedNginxConfig.relayName(9_999_999))) <= socketPathBytesMax
    if (fits) return { directory, relays: inside }
    const relays = yield* HostDisk.temporaryDirectory(failure, "cogni-sandbox-up-")
    yield* HostDisk.use(failure, async () => {
      if (process.getuid?.() === 0) await fs.chown(relays, owner.userId, owner.groupId)
    })
    return { directory, relays }
  })

interface Directories {
  readonly directory: string
  /** A path that is short enough for sockets that this process makes. */
  readonly relays: string
}

const mountsOf = ({ directory, relays }: Directories): ReadonlyArray<Mount> =>
  [
    [path.join(directory, places.sockets), SharedNginxConfig.paths.sockets, false] as const,
    [relays, SharedNginxConfig.paths.relays, true] as const,
    [path.join(directory, places.logs), SharedNginxConfig.paths.logs, false] as const
  ].map(([source, target, readOnly]) => ({
    type: "directory",
    source,
    target,
    readOnly
  }))

/**
 * Starts a container. Returns as soon as its directory exists, while it starts until `ready`. It ends with the scope,
 * or when it has been retired.
 */
export const make = Effect.fnUntraced(function* (
  options: SharedNginxOptions
): Effect.fn.Return<SharedNginx, HostFailed, Scope.Scope> {
  const outer = yield* Effect.scope
  const scope = yield* Scope.fork(outer)
  const directories = yield* acquireDirectories(options).pipe(
    Scope.provide(scope),
    Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause)))
  )
  const nowMillis = yield* Clock.currentTimeMillis
  const ended = yield* Deferred.make<never, LlmProxyError>()
  const ready = yield* Deferred.make<void, LlmProxyError>()
  const relay = yield* Deferred.make<RelayThread.RelayThread | undefined, LlmProxyError>()
  const unused = yield* Latch.make()
  const nginx = yield* NginxContainer.make({ ...options, subject: "the shared nginx" })
  const control = makeControl()
  let isOver = false

  const serve = Effect.gen(function* () {
    const thread =
      options.upstream.type === "host" ? yield* RelayThread.make(threadOptions(options)) : undefined
    yield* Deferred.succeed(relay, thread)
    const live = nginx.serve(yield* specOf(options, directories), {
      heard: control.hear,
      started: (container) =>
        Effect.gen(function* () {
          control.open(container)
          yield* container.send(Buffer.from("POST /control HTTP/1.1\r\nHost: control\r\n\r\n"))
          yield* Effect.forkChild(
            Effect.flatMap(nginx.ready, () => Deferred.succeed(ready, undefined)).pipe(
              Effect.catch((error) => Deferred.fail(ended, error))
            )
          )
        })
    })
    return yield* Effect.raceFirst(
      Effect.raceFirst(live, Deferred.await(ended)),
      thread === undefined ? Effect.never : thread.failure
    )
  })
  const live = serve.pipe(
    Effect.scoped,
    Effect.catchCause((cause) => Deferred.failCause(ended, cause)),
    Effect.raceFirst(unused.await),
    Effect.ensuring(
      Effect.suspend(() => {
        isOver = true
        return Deferred.fail(ended, failed("is closed"))
      })
    ),
    // Its files are removed when its last run has ended.
    Effect.andThen(unused.await),
    Effect.onExit((exit) => Scope.close(scope, exit)),
    Effect.catchCause((cause) =>
      Cause.hasDies(cause)
        ? Effect.logWarning("resources of a shared nginx may be left over", cause)
        : Effect.void
    )
  )
  yield* Effect.forkIn(live, outer)

  const failure = Deferred.await(ended)
  return {
    directory: directories.directory,
    relayPath: (place) => path.join(directories.relays, SharedNginxConfig.relayName(place)),
    deadlineMillis: nowMillis + lifeSecondsMax * 1000,
    ready: Effect.raceFirst(Deferred.await(ready), failure),
    failure,
    hasEnded: () => isOver || Deferred.isDoneUnsafe(ended),
    command: (...words) =>
      Effect.raceFirst(control.command(words), failure).pipe(
        Effect.timeoutOrElse({
          duration: Duration.seconds(commandSecondsMax),
          orElse: () => Effect.fail(failed(`did not answer within ${commandSecondsMax} s`))
        })
      ),
    relay: Effect.raceFirst(Deferred.await(relay), failure),
    abort: ({ message }) =>
      Effect.asVoid(
        Deferred.fail(ended, failed(`was ended, because it may still serve a removed run: ${message}`))
      ),
    retire: Effect.asVoid(unused.open)
  }
})

const threadOptions = ({
  address,
  certificateAuthorities,
  connectionsPerRunMax,
  owner,
  relayConnectionsPerSecondMax
}: SharedNginxOptions): RelayThread.RelayThreadOptions => ({
  address,
  owner,
  certificateAuthorities,
  // A connection may linger after its call.
  connectionsMax: connectionsPerRunMax,
  connectionsPerSecondMax: relayConnectionsPerSecondMax
})

const specOf = Effect.fnUntraced(function* (options: SharedNginxOptions, directories: Directories) {
  return {
    ...options,
    runId: yield* RunId.generate,
    mounts: mountsOf(directories),
    limits: { ...limits, runtimeSecondsMax: lifeSecondsMax },
    configuration: SharedNginxConfig.render({
      ...options,
      via: options.upstream.type === "container" ? "network" : "relay",
      runtimeSecondsMax: silentSecondsMax
    })
  }
})

/** Commands and their answers, one line each. */
const makeControl = () => {
  const asked = new Map<number, Deferred.Deferred<number, ProxyFailed>>()
  const decoder = new TextDecoder()
  const opened = Deferred.makeUnsafe<Container>()
  let rest = ""
  let commands = 0

  const answered = (line: string) => {
    const [, verdict, number, told = ""] = /^cogni-proxy (done|refused) (\d+) ?(.*)$/u.exec(line) ?? []
    const deferred = asked.get(Number(number))
    if (deferred === undefined) return
    asked.delete(Number(number))
    Deferred.doneUnsafe(
      deferred,
      verdict === "done"
        ? Effect.succeed(Number(told))
        : Effect.fail(failed(`refused a command: ${told.slice(0, 100)}`))
    )
  }

  return {
    open: (container: Container) => Deferred.doneUnsafe(opened, Effect.succeed(container)),
    hear: (bytes: Uint8Array) => {
      const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n")
      rest = (lines.pop() ?? "").slice(-4096)
      for (const line of lines) answered(line)
    },
    command: (words: ReadonlyArray<string>) =>
      Effect.gen(function* () {
        const container = yield* Deferred.await(opened)
        const number = (commands += 1)
        const answer = yield* Deferred.make<number, ProxyFailed>()
        asked.set(number, answer)
        yield* container.send(Buffer.from(`${[number, ...words].join(" ")}\n`))
        return yield* Effect.ensuring(
          Deferred.await(answer),
          Effect.sync(() => asked.delete(number))
        )
      })
  }
}
