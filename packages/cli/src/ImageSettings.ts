/**
 * The pull policy of images, from the environment.
 *
 * Without a public key, nothing is pulled: an incomplete configuration is refused when a run or `images pull` needs it.
 */
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import { never, type PullPolicy } from "@cogni/sandbox-docker/ImagePull"
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import { Effect } from "effect"
import { type Refusal, refusal } from "./Failure.ts"

/** Largest file of a public key. */
const keyBytesMax = 16 * 1024

interface ImageVariables {
  readonly pull: "never" | "missing" | undefined
  readonly keyFile: string | undefined
}

export interface ImageSettings {
  /** Behavior of a run whose image is missing. */
  readonly policy: PullPolicy
  /** Key for `images pull`, which pulls with either policy. */
  readonly cosignPublicKey: string | undefined
}

const readKey = (path: string): Effect.Effect<string, Refusal> =>
  HostFile.read(path, { bytesMax: keyBytesMax }).pipe(
    Effect.mapError(({ detail, problem, remedy }) =>
      problem === "too_large"
        ? refusal(
            "configuration",
            `COGNI_IMAGE_KEY_FILE ${path} is larger than ${formatBytes(keyBytesMax)}`,
            "Name the public key of cosign (cosign.pub)"
          )
        : refusal("configuration", `COGNI_IMAGE_KEY_FILE ${path} cannot be read (it ${detail})`, remedy)
    ),
    Effect.map(({ bytes }) => new TextDecoder().decode(bytes))
  )

export const make = Effect.fnUntraced(function* ({
  keyFile,
  pull
}: ImageVariables): Effect.fn.Return<ImageSettings, Refusal> {
  const cosignPublicKey = keyFile === undefined ? undefined : yield* readKey(keyFile)
  if (pull !== "missing") return { policy: never, cosignPublicKey }
  if (cosignPublicKey === undefined) {
    return yield* refusal(
      "configuration",
      "COGNI_IMAGE_PULL is missing, but no key to verify images is configured",
      "Set COGNI_IMAGE_KEY_FILE to the signer's public key (cosign.pub), or unset COGNI_IMAGE_PULL"
    )
  }
  return { policy: { pull, cosignPublicKey }, cosignPublicKey }
})
