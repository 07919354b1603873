/**
 * Settings of the upstream's profile: its kind, changes to it from a JSON file, and the secret for pseudonyms.
 *
 * Whether the profile fits the URL is decided with the URL: see `RunPlan`.
 */
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import type { EgressProxy } from "@cogni/sandbox-proxy/EgressProxy"
import { Choice, type KeyHeader, type Name } from "@cogni/sandbox-proxy/UpstreamProfile"
import { Effect, Redacted, Schema } from "effect"
import { type Refusal, refusal } from "./Failure.ts"
import * as KeyFile from "./KeyFile.ts"

/** Values of the environment variables. */
interface UpstreamVariables {
  readonly url: string | undefined
  readonly proxyUrl: string | undefined
  readonly noProxy: string | undefined
  readonly profile: Name | undefined
  readonly profileFile: string | undefined
  readonly keyHeader: KeyHeader | undefined
  readonly identitySecret: Redacted.Redacted<string> | undefined
  readonly identitySecretFile: string | undefined
}

/** Options of the proxy for its upstream. */
export interface UpstreamOptions {
  readonly profile: Choice
  /** Absent: an upstream other than LiteLLM learns nothing about the account. */
  readonly identitySecret?: Redacted.Redacted<string> | undefined
  /** `HTTPS_PROXY` and `NO_PROXY`, for an upstream with https. */
  readonly egressProxy?: EgressProxy | undefined
}

const profileBytesMax = 256 * 1024

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Choice), { onExcessProperty: "error" })

export const make = Effect.fnUntraced(function* (
  found: UpstreamVariables
): Effect.fn.Return<UpstreamOptions, Refusal> {
  const { keyHeader, profile: name, profileFile } = found
  const identitySecret = yield* KeyFile.secretOf(
    "COGNI_LLM_IDENTITY_SECRET",
    found.identitySecret,
    found.identitySecretFile
  )
  const choice = profileFile === undefined ? {} : yield* read(profileFile)
  if (choice.name !== undefined && name !== undefined && choice.name !== name)
    return yield* refusal(
      "configuration",
      `COGNI_LLM_PROFILE is ${name}, and ${profileFile} names ${choice.name}`,
      "Name the profile once"
    )
  return {
    profile: {
      ...choice,
      ...(name === undefined ? {} : { name }),
      ...(keyHeader === undefined ? {} : { keyHeader })
    },
    ...(identitySecret === undefined ? {} : { identitySecret }),
    ...(found.proxyUrl !== undefined && /^https:/iu.test(found.url ?? "")
      ? { egressProxy: { url: Redacted.make(found.proxyUrl), noProxy: found.noProxy } }
      : {})
  }
})

const read = Effect.fnUntraced(function* (path: string): Effect.fn.Return<Choice, Refusal> {
  const refuse = (problem: string, remedy: string) =>
    refusal("configuration", `COGNI_LLM_PROFILE_FILE ${path} ${problem}`, remedy)
  const { bytes } = yield* HostFile.read(path, { bytesMax: profileBytesMax }).pipe(
    Effect.mapError(({ detail, remedy }) => refuse(`cannot be read (it ${detail})`, remedy))
  )
  return yield* decode(new TextDecoder().decode(bytes)).pipe(
    Effect.mapError(({ message }) =>
      refuse(`is not a profile: ${message}`, "Correct it: docs/guides/gateway.md lists the keys")
    )
  )
})
