/** A signature counts only for the key, the payload and the image that it was made for. */
import { assert, describe, it } from "@effect/vitest"
import { generateKeyPairSync, sign, type KeyObject } from "node:crypto"
import * as CosignSignature from "../src/internal/registry/CosignSignature.ts"

const digest = `sha256:${"ab".repeat(32)}`
const other = `sha256:${"cd".repeat(32)}`

const payloadOf = (of: string, type = "cosign container image signature") =>
  Buffer.from(
    JSON.stringify({
      critical: { identity: { "docker-reference": "" }, image: { "docker-manifest-digest": of }, type },
      optional: null
    })
  )

const signed = (key: KeyObject, payload: Uint8Array) =>
  sign(key.asymmetricKeyType === "ed25519" ? null : "sha256", payload, key).toString("base64")

const pem = (key: KeyObject) => key.export({ type: "spki", format: "pem" }).toString()

const ecdsa = generateKeyPairSync("ec", { namedCurve: "prime256v1" })
const ed25519 = generateKeyPairSync("ed25519")

describe("cosign signature", () => {
  for (const [name, { privateKey, publicKey }] of Object.entries({ ecdsa, ed25519 })) {
    it(`is valid for its key and its image: ${name}`, () => {
      const payload = payloadOf(digest)
      const signature = signed(privateKey, payload)
      const key = CosignSignature.publicKey(pem(publicKey))!
      assert.isTrue(CosignSignature.isValid(key, { digest, payload, signature }))
      assert.isFalse(CosignSignature.isValid(key, { digest: other, payload, signature }))
    })
  }

  it("is invalid after a change of any byte of the payload", () => {
    const payload = payloadOf(digest)
    const signature = signed(ecdsa.privateKey, payload)
    for (let at = 0; at < payload.byteLength; at += 1) {
      const changed = Buffer.from(payload)
      changed[at]! ^= 1
      assert.isFalse(
        CosignSignature.isValid(ecdsa.publicKey, { digest, payload: changed, signature }),
        `byte ${at}`
      )
    }
  })

  it("is invalid if another key made it, or if it is no signature", () => {
    const payload = payloadOf(digest)
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" })
    for (const signature of [signed(privateKey, payload), "", "not base64!", "AAAA"])
      assert.isFalse(CosignSignature.isValid(ecdsa.publicKey, { digest, payload, signature }), signature)
  })

  it("is invalid over a payload of another type, or one that is no payload", () => {
    for (const payload of [
      payloadOf(digest, "another"),
      Buffer.from("{}"),
      Buffer.from(digest),
      Buffer.alloc(0)
    ]) {
      const signature = signed(ecdsa.privateKey, payload)
      assert.isFalse(CosignSignature.isValid(ecdsa.publicKey, { digest, payload, signature }))
    }
  })
})

describe("public key", () => {
  it("is a key of cosign, and nothing else", () => {
    const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 })
    const p384 = generateKeyPairSync("ec", { namedCurve: "secp384r1" })
    const secret = ecdsa.privateKey.export({ type: "pkcs8", format: "pem" }).toString()
    for (const text of ["", "key", pem(rsa.publicKey), pem(p384.publicKey), secret])
      assert.isUndefined(CosignSignature.publicKey(text), text.slice(0, 40))
    assert.isDefined(CosignSignature.publicKey(pem(ecdsa.publicKey)))
  })
})

describe("manifest of signatures", () => {
  const layer = (mediaType: string, signature?: string) => ({
    mediaType,
    digest,
    size: 1,
    ...(signature === undefined ? {} : { annotations: { [CosignSignature.annotation]: signature } })
  })
  const of = (manifest: unknown) => CosignSignature.signaturesOf(Buffer.from(JSON.stringify(manifest)))

  it("lists the layers that have a payload and a signature, up to a limit", () => {
    assert.deepStrictEqual(
      of({
        layers: [
          layer(CosignSignature.payloadType, "c2ln"),
          layer(CosignSignature.payloadType),
          layer("x", "y")
        ]
      }),
      [{ digest, signature: "c2ln" }]
    )
    const many = Array.from({ length: 100 }, () => layer(CosignSignature.payloadType, "c2ln"))
    assert.lengthOf(of({ layers: many }) ?? [], CosignSignature.signaturesMax)
  })

  it("is refused if it is invalid", () => {
    for (const manifest of [{}, [], { layers: [{ mediaType: "x", digest: "../../secret" }] }])
      assert.isUndefined(of(manifest))
    assert.isUndefined(CosignSignature.signaturesOf(Buffer.from("not JSON")))
  })

  it("has the tag that cosign gives it", () => {
    assert.strictEqual(CosignSignature.tagOf(digest), `sha256-${"ab".repeat(32)}.sig`)
  })
})
