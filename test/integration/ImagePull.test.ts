/** Images come from a registry only by digest, with a valid signature, and if the caller has asked for it. */
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Limits } from "@cogni/sandbox-core/SpecFields"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as ImagePull from "@cogni/sandbox-docker/ImagePull"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer, Schema } from "effect"
import { generateKeyPairSync, type KeyObject } from "node:crypto"
import { docker } from "../harness/Docker.ts"
import * as Engine from "../harness/Engine.ts"
import * as RegistryDouble from "../harness/RegistryDouble.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const signer = generateKeyPairSync("ec", { namedCurve: "prime256v1" })
const stranger = generateKeyPairSync("ec", { namedCurve: "prime256v1" })

const pem = (key: KeyObject) => key.export({ type: "spki", format: "pem" }).toString()

const options = { cosignPublicKey: pem(signer.publicKey) }

/** A registry with one image, which the engine does not keep after the test. */
const acquireRegistry = (options?: Parameters<typeof RegistryDouble.acquire>[0]) =>
  Effect.tap(RegistryDouble.acquire(options), ({ image }) =>
    Effect.addFinalizer(() => Effect.ignore(docker("image", "rm", "--force", image)))
  )

const isThere = (image: string) =>
  DockerApi.DockerApi.use((api) => Effect.map(api.imageSize(image), (bytes) => bytes !== undefined))

const refused = Effect.fnUntraced(function* (registry: RegistryDouble.RegistryDouble) {
  const error = yield* Effect.flip(ImagePull.pull(registry.image, options))
  assert.strictEqual(error._tag, "ContainerFailed")
  assert.isFalse(yield* isThere(registry.image))
  assert.notInclude(
    registry.requested.join("\n"),
    `manifests/${registry.digest}`,
    "the engine asked for the image"
  )
  return error.message
})

layer(Engine.api(), { excludeTestServices: true })("images pull", (it) => {
  it.effect("pulls an image whose signature is valid", () =>
    Effect.gen(function* () {
      const registry = yield* acquireRegistry()
      registry.sign(stranger.privateKey)
      registry.sign(signer.privateKey)
      yield* ImagePull.pull(registry.image, options)
      assert.isTrue(yield* isThere(registry.image))
    })
  )

  it.effect("gets an anonymous token first, if the registry requires one", () =>
    Effect.gen(function* () {
      const registry = yield* acquireRegistry({ token: "anonymous-token" })
      registry.sign(signer.privateKey)
      yield* ImagePull.pull(registry.image, options)
      assert.isTrue(yield* isThere(registry.image))
      assert.include(registry.requested, "/token")
    })
  )

  it.effect("refuses an image without a signature", () =>
    Effect.gen(function* () {
      assert.match(yield* refused(yield* acquireRegistry()), /has no signature in its registry/u)
    })
  )

  it.effect("refuses an image that another key has signed", () =>
    Effect.gen(function* () {
      const registry = yield* acquireRegistry()
      registry.sign(stranger.privateKey)
      assert.match(yield* refused(registry), /has no signature of the configured key/u)
    })
  )

  it.effect("refuses a signature that was made for another image", () =>
    Effect.gen(function* () {
      const registry = yield* acquireRegistry()
      registry.sign(signer.privateKey, `sha256:${"ab".repeat(32)}`)
      assert.match(yield* refused(registry), /has no signature of the configured key/u)
    })
  )

  it.effect("refuses a payload that was changed after it was signed", () =>
    Effect.gen(function* () {
      const registry = yield* acquireRegistry()
      registry.sign(signer.privateKey)
      registry.tamper()
      assert.match(yield* refused(registry), /has no signature of the configured key/u)
    })
  )

  it.effect("refuses a reference without a digest, and an invalid key, without a request", () =>
    Effect.gen(function* () {
      const registry = yield* acquireRegistry()
      registry.sign(signer.privateKey)
      const tagged = registry.image.replace(/@.*$/u, ":latest")
      const named = yield* Effect.flip(ImagePull.pull(tagged, options))
      assert.match(named.message, /does not name its content/u)
      const keyless = yield* Effect.flip(ImagePull.pull(registry.image, { cosignPublicKey: "" }))
      assert.match(keyless.message, /no key of cosign/u)
      assert.deepStrictEqual(registry.requested, [])
    })
  )

  it.effect("reports a registry that does not answer", () =>
    Effect.gen(function* () {
      const registry = yield* Effect.scoped(RegistryDouble.acquire())
      const error = yield* Effect.flip(ImagePull.pull(registry.image, options))
      assert.match(error.message, /the registry http:\/\/127\.0\.0\.1:\d+ cannot be read/u)
    })
  )
})

const limits = Schema.decodeSync(Limits)({})

/** Starts a run in an image of a double, and returns its failure: the image has no entrypoint of ours. */
const reasonOf = (image: string) =>
  Effect.gen(function* () {
    const runner = yield* SandboxRunner.SandboxRunner
    const { reason } = yield* Effect.flip(runner.run({ image, argv: ["true"] }))
    return reason
  })

layer(RunHarness.layer(), { excludeTestServices: true })("a run", (it) => {
  it.effect("never pulls by default", () =>
    Effect.gen(function* () {
      const registry = yield* acquireRegistry()
      registry.sign(signer.privateKey)
      assert.strictEqual((yield* reasonOf(registry.image))._tag, "ImageNotFound")
      assert.deepStrictEqual(registry.requested, [])
    })
  )

  it.effect("pulls a missing image only if it may, its digest is named, and its signature is valid", () =>
    Effect.gen(function* () {
      const registry = yield* acquireRegistry()
      const runtime = yield* ContainerRuntime
      const runId = yield* RunId.generate
      const acquired = (image: string) =>
        Effect.flip(
          Effect.scoped(
            Effect.flatMap(
              runtime.acquire({
                runId,
                role: "agent",
                image,
                argv: ["true"],
                env: {},
                mounts: [],
                network: { mode: "none" },
                user: { userId: 1000, groupId: 1000 },
                limits
              }),
              ({ start }) => start
            )
          )
        )
      assert.match((yield* acquired(registry.image)).message, /has no signature in its registry/u)
      assert.strictEqual((yield* acquired(registry.image.replace(/@.*$/u, ":latest")))._tag, "ImageNotFound")
      registry.sign(signer.privateKey)
      // The image was pulled: it lacks only the programs of the runtime image.
      assert.match((yield* acquired(registry.image)).message, /cogni-init.*no such file/u)
      assert.isTrue(yield* isThere(registry.image))
    }).pipe(
      Effect.provide(
        Layer.fresh(
          DockerContainerRuntime.layerApi({ ...Engine.runtime, images: { pull: "missing", ...options } })
        )
      )
    )
  )
})
