/**
 * Pulls an image that is named by its digest, after a signature of it was verified.
 *
 * Nothing is pulled unless a public key is configured and one signature of the image is valid for it. The engine then
 * verifies the content against the digest itself, so what it stores is what was signed.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { ContainerFailed, ImageNotFound } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Semaphore } from "effect"
import { createHash } from "node:crypto"
import * as DockerApi from "./DockerApi.ts"
import * as CosignSignature from "./internal/registry/CosignSignature.ts"
import * as ImageReference from "./internal/registry/ImageReference.ts"
import * as RegistryClient from "./internal/registry/RegistryClient.ts"

/** Behavior for an image that the engine does not have. */
export type PullPolicy =
  /** Fail: the caller builds or pulls it first. */
  | { readonly pull: "never" }
  /** Pull an image that is named by a digest, if its signature is valid. */
  | {
      readonly pull: "missing"
      /** Public key of the signer, as PEM: the `cosign.pub` of `cosign generate-key-pair`. */
      readonly cosignPublicKey: string
    }

/** The default: a run pulls nothing. */
export const never: PullPolicy = { pull: "never" }

/** A public key that cannot be used. Fails with it before anything is pulled. */
const invalidKey = new ContainerFailed({
  operation: "pull",
  detail: "the public key for images is no key of cosign",
  remedy: "Set the option cosignPublicKey to a PEM public key: ECDSA on P-256, or Ed25519"
})

const unsigned = (image: string, problem: string) =>
  new ContainerFailed({
    operation: "pull",
    detail: `the image ${image} ${problem}, so it was not pulled`,
    remedy: "Sign it with the configured key (cosign sign --key), or configure the key of its signer"
  })

/** Verifies that the key has signed the image. */
const verified = Effect.fnUntraced(function* (
  image: string,
  reference: ImageReference.ImageReference,
  cosignPublicKey: string
) {
  const key = CosignSignature.publicKey(cosignPublicKey)
  if (key === undefined) return yield* invalidKey
  const registry = RegistryClient.make(reference)
  const manifest = yield* registry.read(`manifests/${CosignSignature.tagOf(reference.digest)}`)
  if (manifest === undefined) return yield* unsigned(image, "has no signature in its registry")
  const signatures = CosignSignature.signaturesOf(manifest)
  if (signatures === undefined) return yield* unsigned(image, "has an invalid list of signatures")
  for (const { digest, signature } of signatures) {
    const payload = yield* registry.read(`blobs/${digest}`)
    if (payload === undefined) continue
    const isWhole = `sha256:${createHash("sha256").update(payload).digest("hex")}` === digest
    if (isWhole && CosignSignature.isValid(key, { digest: reference.digest, payload, signature })) return
  }
  return yield* unsigned(image, "has no signature of the configured key")
})

/** Pulls an image after verification, whether or not the engine has it. Fails if the reference has no digest. */
export const pull = Effect.fn("ImagePull.pull")(function* (
  image: string,
  { cosignPublicKey }: { readonly cosignPublicKey: string }
): Effect.fn.Return<void, ContainerError, DockerApi.DockerApi> {
  const api = yield* DockerApi.DockerApi
  const reference = ImageReference.parse(image)
  if (reference === undefined) {
    return yield* new ContainerFailed({
      operation: "pull",
      detail: `${image} does not name its content`,
      remedy: "Name the image by its digest: HOST/REPOSITORY@sha256:DIGEST"
    })
  }
  yield* verified(image, reference, cosignPublicKey)
  yield* api.pull(reference.name, reference.digest)
})

/**
 * Makes an effect that applies a policy before a container is created. It pulls each missing image once, however many
 * runs wait for it.
 */
export const ensurer = Effect.fnUntraced(function* (policy: PullPolicy) {
  const api = yield* DockerApi.DockerApi
  const oneAtATime = yield* Semaphore.make(1)
  return (image: string): Effect.Effect<void, ContainerError> => {
    if (policy.pull === "never") return Effect.void
    const isThere = Effect.map(api.imageSize(image), (bytes) => bytes !== undefined)
    const missing = Effect.gen(function* () {
      if (yield* isThere) return
      if (ImageReference.parse(image) === undefined) return yield* new ImageNotFound({ image })
      yield* pull(image, policy).pipe(Effect.provideService(DockerApi.DockerApi, api))
    })
    return Effect.flatMap(isThere, (found) => (found ? Effect.void : oneAtATime.withPermits(1)(missing)))
  }
})
