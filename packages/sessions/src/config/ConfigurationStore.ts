/**
 * The configuration as it is now, whole: read at the start, and again when it is asked for or has changed.
 *
 * A text that is no configuration changes nothing: what was read before holds on, and that is said. Whoever takes
 * `current` once and holds it works with one snapshot, whatever is read meanwhile. Where the text comes from is an
 * Effect; a file is opened by the one door for them (`HostFile`).
 */
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import type { HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { Context, Duration, Effect, Layer, Schedule, Semaphore, Stream, SubscriptionRef } from "effect"
import * as Configuration from "./Configuration.ts"
import * as ConfigurationError from "./ConfigurationError.ts"

export interface StoreOptions extends Configuration.ParseOptions {
  /**
   * Within this long of a change the store has it, or has said why not. Left out: only {@link ConfigurationStore}'s
   * `reload` reads again.
   */
  readonly reloadSecondsMax?: number | undefined
}

export class ConfigurationStore extends Context.Service<
  ConfigurationStore,
  {
    /** One snapshot, which nothing changes. */
    readonly current: Effect.Effect<Configuration.Configuration>
    /** Read again, now. Where that fails, `current` stays what it was. */
    readonly reload: Effect.Effect<Configuration.Configuration, ConfigurationError.ConfigurationError>
    /** The current one first, then each that differs; one that is late gets the latest. */
    readonly changes: Stream.Stream<Configuration.Configuration>
  }
>()("@cogni/sandbox-sessions/ConfigurationStore") {}

/** Fails where there is no configuration to begin with. */
export const make = Effect.fnUntraced(function* (
  read: Effect.Effect<string, ConfigurationError.ConfigurationError>,
  options: StoreOptions
) {
  const { file, reloadSecondsMax } = options
  const first = yield* read
  const configuration = yield* SubscriptionRef.make(yield* Configuration.parse(first, options))
  const lock = yield* Semaphore.make(1)
  const texts: Texts = { used: first, refused: undefined, seen: undefined, unreadable: undefined }

  const take = Effect.fnUntraced(function* (text: string) {
    if (text === texts.used) return yield* SubscriptionRef.get(configuration)
    const next = yield* Configuration.parse(text, options).pipe(
      Effect.tapError((error) => {
        texts.refused = text
        return keeps(error)
      })
    )
    texts.used = text
    texts.refused = undefined
    yield* SubscriptionRef.set(configuration, next)
    yield* Effect.logInfo(`the configuration ${file} has changed, and is used from now on`)
    return next
  })

  const reload = read.pipe(
    Effect.tapError(keeps),
    Effect.flatMap(take),
    lock.withPermit,
    Effect.withSpan("ConfigurationStore.reload")
  )

  /** A file that is being written is not what somebody meant: one is taken that has been read twice. */
  const look = Effect.gen(function* () {
    const text = yield* read
    texts.unreadable = undefined
    const isSettled = texts.seen === text
    texts.seen = text
    if (isSettled && text !== texts.refused) yield* take(text)
  }).pipe(
    Effect.catch((error) => {
      // Said already, once, where it is about a text; and once where there is none.
      if (error.reason._tag === "ConfigurationInvalid" || texts.unreadable === error.message)
        return Effect.void
      texts.unreadable = error.message
      return keeps(error)
    }),
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

/** Of a text that comes from anywhere. */
export const layer = (
  read: Effect.Effect<string, ConfigurationError.ConfigurationError>,
  options: StoreOptions
): Layer.Layer<ConfigurationStore, ConfigurationError.ConfigurationError> =>
  Layer.effect(ConfigurationStore, make(read, options))

/** Of a file. */
export const layerFile = (
  path: string,
  options: Partial<StoreOptions> = {}
): Layer.Layer<ConfigurationStore, ConfigurationError.ConfigurationError> => {
  const file = options.file ?? path
  return layer(readFile(path, file), { ...options, file })
}

/** One that never changes. */
export const layerOf = (configuration: Configuration.Configuration): Layer.Layer<ConfigurationStore> =>
  Layer.succeed(
    ConfigurationStore,
    ConfigurationStore.of({
      current: Effect.succeed(configuration),
      reload: Effect.succeed(configuration),
      changes: Stream.succeed(configuration)
    })
  )

const readSecondsMax = 10

/** A plain file of UTF-8, and no more of it than a configuration may have. */
export const readFile = Effect.fnUntraced(
  function* (path: string, file: string = path) {
    const { bytes } = yield* HostFile.read(path, { bytesMax: Configuration.textBytesMax }).pipe(
      Effect.mapError(toUnreadable(file))
    )
    return yield* Effect.try({
      try: () => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes),
      catch: () => ConfigurationError.unreadable(file, "it is no UTF-8", "Save it as UTF-8")
    })
  },
  (effect, path, file = path) =>
    Effect.timeoutOrElse(effect, {
      duration: Duration.seconds(readSecondsMax),
      orElse: () =>
        Effect.fail(
          ConfigurationError.unreadable(
            file,
            `it was not read within ${readSecondsMax} s`,
            "Look at the disk that it is on"
          )
        )
    })
)

interface Texts {
  /** That of `current`. */
  used: string
  /** The last that was no configuration: of this it has been said. */
  refused: string | undefined
  /** What was there the last time somebody looked. */
  seen: string | undefined
  /** Why there was none, as it has been said. */
  unreadable: string | undefined
}

const keeps = (error: ConfigurationError.ConfigurationError) =>
  Effect.logError(`${error.message}. The configuration that was read before stays in use`)

const toUnreadable =
  (file: string) =>
  ({ detail, problem, remedy }: HostPathRefused) =>
    problem === "not_found"
      ? ConfigurationError.absent(file)
      : problem === "not_a_file"
        ? ConfigurationError.unreadable(file, `it is no plain file (it ${detail})`, "Name a file of YAML")
        : problem === "too_large"
          ? ConfigurationError.unreadable(file, `it ${detail}`, "Name a file of YAML of at most 1 MiB")
          : ConfigurationError.unreadable(file, `it ${detail}`, remedy)
