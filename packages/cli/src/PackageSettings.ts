/** The registries of the package mirror, from a JSON file that `COGNI_PACKAGES_FILE` names. */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import type { PackageMirrorOptions } from "@cogni/sandbox-proxy/PackageMirror"
import { Effect, Redacted, Schema } from "effect"
import type { Refusal } from "./Failure.ts"
import * as JsonFile from "./JsonFile.ts"

/** Values of the environment variables. */
interface PackageVariables {
  readonly file: string | undefined
  readonly proxyUrl: string | undefined
  readonly noProxy: string | undefined
}

const RegistryOptions = Schema.Struct({
  url: Schema.String,
  fileOrigins: Schema.optionalKey(Schema.Array(Schema.String)),
  allowPrivateAddresses: Schema.optionalKey(Schema.Boolean)
})

const positive = Schema.optionalKey(Schema.Int.check(Schema.isGreaterThan(0)))

const PackageFile = Schema.Struct({
  npm: Schema.optionalKey(RegistryOptions),
  pypi: Schema.optionalKey(RegistryOptions),
  cargo: Schema.optionalKey(RegistryOptions),
  cacheBytesMax: positive,
  fileBytesMax: positive,
  metadataBytesMax: positive,
  runBytesMax: positive,
  bytesPerSecondMax: positive,
  concurrentMax: positive,
  silentSecondsMax: positive
})

const fileBytesMax = 64 * 1024

/** Options of the mirror; `undefined` without a file. */
export const make = Effect.fnUntraced(function* (
  { file, noProxy, proxyUrl }: PackageVariables,
  stateDirectory: string
): Effect.fn.Return<PackageMirrorOptions | undefined, Refusal> {
  if (file === undefined) return undefined
  const options = yield* JsonFile.read(
    {
      variable: "COGNI_PACKAGES_FILE",
      file,
      bytesMax: fileBytesMax,
      describes: "registries",
      page: "docs/guides/packages.md"
    },
    PackageFile
  )
  return {
    ...options,
    cacheDirectory: StateDirectory.paths(stateDirectory).packages,
    ...(proxyUrl === undefined ? {} : { egressProxy: { url: Redacted.make(proxyUrl), noProxy } })
  }
})
