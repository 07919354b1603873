/** Limits of remembered threads, from the environment. */
import { defaultLimits, ThreadLimits } from "@cogni/sandbox-graph-provider/threads/Thread"
import { Config, Schema } from "effect"

const limit = (name: string, field: Schema.Codec<number>, otherwise: number) =>
  Config.schema(Schema.NumberFromString.pipe(Schema.decodeTo(field)), name).pipe(
    Config.withDefault(otherwise)
  )

const { bytesPerAccountMax, bytesPerHostMax, idleDaysMax, threadsPerAccountMax } = ThreadLimits.fields

export const config: Config.Config<ThreadLimits> = Config.all({
  threadsPerAccountMax: limit(
    "COGNI_THREADS_PER_ACCOUNT_MAX",
    threadsPerAccountMax,
    defaultLimits.threadsPerAccountMax
  ),
  bytesPerAccountMax: limit(
    "COGNI_THREAD_BYTES_PER_ACCOUNT_MAX",
    bytesPerAccountMax,
    defaultLimits.bytesPerAccountMax
  ),
  bytesPerHostMax: limit("COGNI_THREAD_BYTES_PER_HOST_MAX", bytesPerHostMax, defaultLimits.bytesPerHostMax),
  idleDaysMax: limit("COGNI_THREAD_IDLE_DAYS_MAX", idleDaysMax, defaultLimits.idleDaysMax)
})
