/** A JSON file of the operator that an environment variable names. */
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import { Effect, Schema } from "effect"
import { type Refusal, refusal } from "./Failure.ts"

/** Reads a file and decodes it. Unknown keys are an error. `describes` and `page` complete the refusal. */
export const read = Effect.fnUntraced(function* <A, I>(
  {
    bytesMax,
    describes,
    file,
    page,
    variable
  }: {
    readonly variable: string
    readonly file: string
    readonly bytesMax: number
    /** Subject of the file, such as `registries`. */
    readonly describes: string
    /** Page that lists its keys. */
    readonly page: string
  },
  schema: Schema.Codec<A, I>
): Effect.fn.Return<A, Refusal> {
  const refuse = (problem: string, remedy: string) =>
    refusal("configuration", `${variable} ${file} ${problem}`, remedy)
  const { bytes } = yield* HostFile.read(file, { bytesMax }).pipe(
    Effect.mapError(({ detail, remedy }) => refuse(`cannot be read (it ${detail})`, remedy))
  )
  const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(schema), { onExcessProperty: "error" })
  return yield* decode(new TextDecoder().decode(bytes)).pipe(
    Effect.mapError(({ message }) =>
      refuse(`does not describe ${describes}: ${message}`, `Correct it: ${page} lists the keys`)
    )
  )
})
