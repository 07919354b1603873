/**
 * The configuration as it is now, whole: read at the start, and again when it is asked for or has changed.
 *
 * A text that is no configuration changes nothing: what was read before stays in use, and that is logged. A caller that
 * takes `current` once and keeps it works with one snapshot, whatever is read meanwhile. Where the text comes from is
 * an Effect; a file is opened by the one door for them (`HostFile`).
 */
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import { Context, Duration, Effect, Layer, Schedule, Semaphore, type Stream, SubscriptionRef } from "effect"
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
    return Effect.logError(`${error.message}. The configuration that was read before stays in use`)
  }

  const reload = read.pipe(
    Effect.flatMap(take),
    Effect.tapError(refuse),
    lock.withPermit,
    Effect.withSpan("ConfigurationStore.reload")
  )

  /** Takes a text that has been read twice: before, it may still be written. Says why not once. */
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

/** Reads a text from anywhere. */
export const layer = (
  read: Effect.Effect<string, ConfigurationError.ConfigurationError>,
  options: StoreOptions
): Layer.Layer<ConfigurationStore, ConfigurationError.ConfigurationError> =>
  Layer.effect(ConfigurationStore, make(read, options))

/** Reads a file. */
export const layerFile = (
  path: string,
  options: Omit<StoreOptions, "file"> = {}
): Layer.Layer<ConfigurationStore, ConfigurationError.ConfigurationError> =>
  layer(readFile(path), { ...options, file: path })

const readSecondsMax = 10

/** A plain file of UTF-8, and no more of it than a configuration may have. */
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
      orElse: () => Effect.fail(unreadable(`it was not read within ${readSecondsMax} s`, "Look at its disk"))
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
  /** What was there at the last look. */
  seen: string | undefined
  /** Why a text was not taken, as it was logged. */
  refusal: string | undefined
}
