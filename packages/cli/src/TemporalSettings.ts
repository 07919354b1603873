/**
 * The Temporal server and its credentials, from flags and the environment. A flag wins over its variable.
 *
 * Keys are in files, never in a flag or a variable: the command line and the environment of a process can be read.
 */
import type { TemporalServer } from "@cogni/sandbox-temporal/TemporalServer"
import { Config, Effect, Option, Redacted } from "effect"
import { type Refusal, refuse } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as KeyFile from "./KeyFile.ts"
import type * as TemporalFlags from "./TemporalFlags.ts"
import * as TemporalPackage from "./TemporalPackage.ts"
import * as UserFiles from "./UserFiles.ts"

/** Reads a variable. An empty one counts as unset. */
const text = (name: string) =>
  Config.String(name).pipe(
    Config.option,
    Config.map((value) => Option.getOrUndefined(Option.filter(value, (one) => one !== "")))
  )

/** Values of the environment variables. */
export const config = Config.all({
  address: text("COGNI_TEMPORAL_ADDRESS"),
  namespace: text("COGNI_TEMPORAL_NAMESPACE"),
  caFile: text("COGNI_TEMPORAL_CA_FILE"),
  certFile: text("COGNI_TEMPORAL_CERT_FILE"),
  keyFile: text("COGNI_TEMPORAL_KEY_FILE"),
  serverName: text("COGNI_TEMPORAL_SERVER_NAME"),
  apiKeyFile: text("COGNI_TEMPORAL_API_KEY_FILE")
})

type Variables = Partial<Config.Success<typeof config>>

/** Removes the variables that are not set. */
export const given = (variables: Config.Success<typeof config>): Variables => Flags.given(variables)

/** Largest file of certificates. */
const certificatesBytesMax = 1024 * 1024

const certificates = (path: string, what: string) =>
  UserFiles.read(path, what, { bytesMax: certificatesBytesMax }).pipe(Effect.map(({ bytes }) => bytes))

type Input = Flags.Typed<typeof TemporalFlags.temporal>

/** Returns the server that the flags and the environment name. Other commands use it with the same flags. */
export const serverOf = Effect.fnUntraced(function* (
  variables: Variables,
  input: Input
): Effect.fn.Return<TemporalServer, Refusal> {
  const { TemporalFailed, defaults } = yield* TemporalPackage.load(
    () => import("@cogni/sandbox-temporal/TemporalServer")
  )
  const address = input.address ?? variables.address ?? defaults.address
  const apiKeyFile = input.temporalApiKeyFile ?? variables.apiKeyFile
  const named = {
    caFile: input.temporalCaFile ?? variables.caFile,
    certFile: input.temporalCertFile ?? variables.certFile,
    keyFile: input.temporalKeyFile ?? variables.keyFile,
    serverName: input.temporalServerName ?? variables.serverName
  }
  const isEncrypted =
    input.temporalTls || apiKeyFile !== undefined || Object.values(named).some((one) => one !== undefined)
  if (isEncrypted && input.temporalInsecure)
    return yield* Effect.fromResult(
      refuse(
        "usage",
        "--temporal-insecure asks for no TLS, and another flag or a variable needs it",
        "Leave --temporal-insecure out, or unset the variables for certificates and keys"
      )
    )
  const failedOf = ({ detail, remedy }: Refusal) =>
    new TemporalFailed({ reason: "CredentialsInvalid", detail, remedy })
  return {
    address,
    namespace: input.namespace ?? variables.namespace ?? defaults.namespace,
    taskQueue: input.taskQueue,
    isInsecureAllowed: input.temporalInsecure,
    ...(isEncrypted ? { tls: yield* tlsOf(named) } : {}),
    ...(apiKeyFile === undefined ? {} : { apiKey: Effect.mapError(apiKeyOf(apiKeyFile), failedOf) })
  }
})

const apiKeyOf = (path: string) =>
  Effect.map(KeyFile.readText(path, "--temporal-api-key-file"), (key) => Redacted.make(key))

const tlsOf = Effect.fnUntraced(function* (named: {
  readonly caFile: string | undefined
  readonly certFile: string | undefined
  readonly keyFile: string | undefined
  readonly serverName: string | undefined
}): Effect.fn.Return<NonNullable<TemporalServer["tls"]>, Refusal> {
  const { caFile, certFile, keyFile, serverName } = named
  if ((certFile === undefined) !== (keyFile === undefined))
    return yield* Effect.fromResult(
      refuse(
        "usage",
        `there is a client ${certFile === undefined ? "key" : "certificate"} for Temporal, and no ${certFile === undefined ? "certificate" : "key"}`,
        "Name both, with --temporal-cert-file and --temporal-key-file"
      )
    )
  const privateKey =
    keyFile === undefined ? undefined : yield* KeyFile.readText(keyFile, "--temporal-key-file")
  return {
    serverName,
    ...(caFile === undefined ? {} : { authorities: yield* certificates(caFile, "--temporal-ca-file") }),
    ...(certFile === undefined || privateKey === undefined
      ? {}
      : {
          client: {
            certificate: yield* certificates(certFile, "--temporal-cert-file"),
            privateKey: Redacted.make(new TextEncoder().encode(privateKey))
          }
        })
  }
})
