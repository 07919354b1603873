/**
 * Holds the current configuration. It is read at startup, on request, and when the source changes.
 *
 * An invalid text changes nothing: the previous configuration stays in use, and the log gives the reason. A caller that
 * reads `current` once works with one snapshot, whatever is read later. The source of the text is an Effect; files are
 * opened through `HostFile`.
 */
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import { Context, Duration, Effect, Layer, Schedule, Semaphore, type Stream, SubscriptionRef } from "effect"
import * as Configuration from "./Configuration.ts"
import * as ConfigurationError from "./ConfigurationError.ts"

interface StoreOptions extends Configuration.ParseOptions {
  /**
   * Maximum time until a change is applied, or its rejection is logged. Without it, only `reload` of
   * {@link ConfigurationStore} reads again.
   */
  readonly reloadSecondsMax?: number | undefined
}

export class ConfigurationStore extends Context.Service<
  ConfigurationStore,
  {
    /** Current configuration, as an immutable snapshot. */
    readonly current: Effect.Effect<Configuration.Configuration>
    /** Reads the source again now. On failure, `current` does not change. */
    readonly reload: Effect.Effect<Configuration.Configuration, ConfigurationError.ConfigurationError>
    /** Emits the current configuration, then each change. A late subscriber starts with the latest one. */
    readonly changes: Stream.Stream<Configuration.Configuration>
  }
>()("@cogni/sandbox-sessions/ConfigurationStore") {}

/** Fails if the initial configuration cannot be read or is invalid. */
const make = Effect.fnUntraced(function* (
  read: Effect.Effect<string, ConfigurationError.ConfigurationError>,
  options: StoreOptions
) {
  const { file, reloadSecondsMax } = options
  const first = yield* read
  const configuration = yield* SubscriptionRef.make(yield* Configuration.parse(first, options))
  const lock = yield* Semaphore.make(1)
  const last: Last = { used: first, seen: undefined, refusal: undefined }

  const take = Effect.fnUntraced(function* (text: string) {
    if (text !== last.used) {
      yield* SubscriptionRef.set(configuration, yield* Configuration.parse(text, options))
      last.used = text
      yield* Effect.logInfo(`the configuration ${file} has changed, and is used from now on`)
    }
    last.refusal = undefined
    return yield* SubscriptionRef.get(configuration)
  })

  const refuse = (error: ConfigurationError.ConfigurationError) => {
    last.refusal = error.message
    return Effect.logError(`${error.message}. The previous configuration stays in use`)
  }

  const reload = read.pipe(
    Effect.flatMap(take),
    Effect.tapError(refuse),
    lock.withPermit,
    Effect.withSpan("ConfigurationStore.reload")
  )

  /** Applies a text only after two equal reads, because a first read may see a partial write. Logs each reason once. */
  const look = Effect.gen(function* () {
    const text = yield* read
    const isSettled = last.seen === text
    last.seen = text
    if (isSettled) yield* take(text)
  }).pipe(
    Effect.catch((error) => (error.message === last.refusal ? Effect.void : refuse(error))),
    lock.withPermit
  )

  if (reloadSecondsMax !== undefined) {
    yield* look.pipe(
      Effect.repeat(Schedule.spaced(Duration.seconds(reloadSecondsMax / 2))),
      Effect.delay(Duration.seconds(reloadSecondsMax / 2)),
      Effect.forkScoped
    )
  }

  return ConfigurationStore.of({
    current: SubscriptionRef.get(configuration),
    reload,
    changes: SubscriptionRef.changes(configuration)
  })
})

/** Layer that reads the text with an Effect. */
export const layer = (
  read: Effect.Effect<string, ConfigurationError.ConfigurationError>,
  options: StoreOptions
): Layer.Layer<ConfigurationStore, ConfigurationError.ConfigurationError> =>
  Layer.effect(ConfigurationStore, make(read, options))

/** Layer that reads a file. */
export const layerFile = (
  path: string,
  options: Omit<StoreOptions, "file"> = {}
): Layer.Layer<ConfigurationStore, ConfigurationError.ConfigurationError> =>
  layer(readFile(path), { ...options, file: path })

const readSecondsMax = 10

/** Reads a regular UTF-8 file of at most {@link Configuration.textBytesMax} bytes. */
export const readFile = Effect.fnUntraced(function* (path: string) {
  const unreadable = (detail: string, remedy: string, isAbsent?: boolean) =>
    ConfigurationError.unreadable(path, detail, remedy, isAbsent)
  const { bytes } = yield* HostFile.read(path, { bytesMax: Configuration.textBytesMax }).pipe(
    Effect.mapError(({ detail, problem, remedy }) =>
      problem === "not_found"
        ? unreadable("there is no such file", "Write one, or name another", true)
        : unreadable(`it ${detail}`, remedy)
    ),
    Effect.timeoutOrElse({
      duration: Duration.seconds(readSecondsMax),
      orElse: () => Effect.fail(unreadable(`it was not read within ${readSecondsMax} s`, "Check its disk"))
    })
  )
  return yield* Effect.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(bytes),
    catch: () => unreadable("it is not UTF-8", "Save it as UTF-8")
  })
})

interface Last {
  /** The text of `current`. */
  used: string
  /** Text of the last read. */
  seen: string | undefined
  /** Reason why a text was rejected, as it was logged. */
  refusal: string | undefined
}
