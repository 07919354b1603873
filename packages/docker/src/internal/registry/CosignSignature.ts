/**
 * Verifies signatures of images in the format of cosign ("simple signing"). Pure.
 *
 * A signature is a layer of the manifest with the tag `sha256-DIGEST.sig`: the layer's content names the digest of the
 * image, and an annotation has the signature of that content. Only the content that was verified is decoded.
 *
 * Format: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
 */
import { Option, Schema } from "effect"
import { createPublicKey, type KeyObject, verify } from "node:crypto"

/** Annotation of a layer that has its signature, in base64. */
export const annotation = "dev.cosignproject.cosign/signature"

/** Media type of a layer that has a signed payload. */
export const payloadType = "application/vnd.dev.cosign.simplesigning.v1+json"

/** Largest number of signatures that are read. An image has one for each signer. */
export const signaturesMax = 16

const Digest = Schema.String.check(Schema.isPattern(/^sha256:[0-9a-f]{64}$/u))

const Manifest = Schema.fromJsonString(
  Schema.Struct({
    layers: Schema.Array(
      Schema.Struct({
        mediaType: Schema.String,
        digest: Digest,
        annotations: Schema.optional(Schema.Record(Schema.String, Schema.String))
      })
    )
  })
)

const Payload = Schema.fromJsonString(
  Schema.Struct({
    critical: Schema.Struct({
      type: Schema.Literal("cosign container image signature"),
      image: Schema.Struct({ "docker-manifest-digest": Digest })
    })
  })
)

/** A payload to fetch, and its signature. */
export interface Signed {
  readonly digest: string
  readonly signature: string
}

/** The tag of the manifest that has the signatures of an image. */
export const tagOf = (digest: string): string => `${digest.replace(":", "-")}.sig`

/** Returns the signatures of such a manifest, or `undefined` if it is invalid. */
export const signaturesOf = (manifest: Uint8Array): ReadonlyArray<Signed> | undefined => {
  const decoded = Schema.decodeUnknownOption(Manifest)(new TextDecoder().decode(manifest))
  if (Option.isNone(decoded)) return undefined
  return decoded.value.layers
    .flatMap(({ annotations, digest, mediaType }) => {
      const signature = annotations?.[annotation]
      return mediaType === payloadType && signature !== undefined ? [{ digest, signature }] : []
    })
    .slice(0, signaturesMax)
}

/** Parses a public key that `cosign generate-key-pair` made (ECDSA on P-256), or one of Ed25519; else `undefined`. */
export const publicKey = (pem: string): KeyObject | undefined => {
  try {
    if (!/-----BEGIN PUBLIC KEY-----/u.test(pem)) return undefined
    const key = createPublicKey(pem)
    const { asymmetricKeyDetails, asymmetricKeyType } = key
    return asymmetricKeyType === "ed25519" ||
      (asymmetricKeyType === "ec" && asymmetricKeyDetails?.namedCurve === "prime256v1")
      ? key
      : undefined
  } catch {
    return undefined
  }
}

/** Returns whether the key has signed this payload, and the payload is about this image. */
export const isValid = (
  key: KeyObject,
  {
    digest,
    payload,
    signature
  }: { readonly digest: string; readonly payload: Uint8Array; readonly signature: string }
): boolean => {
  const algorithm = key.asymmetricKeyType === "ed25519" ? null : "sha256"
  if (!verify(algorithm, payload, key, Buffer.from(signature, "base64"))) return false
  const decoded = Schema.decodeUnknownOption(Payload)(new TextDecoder().decode(payload))
  return Option.isSome(decoded) && decoded.value.critical.image["docker-manifest-digest"] === digest
}
