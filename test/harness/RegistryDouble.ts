/**
 * A registry of container images on this host, which speaks the part of the OCI distribution API that a pull uses.
 *
 * It has one image of one file, and signatures that a test adds. With `token`, it requires an anonymous token first, as
 * public registries do.
 */
import { Effect, type Scope } from "effect"
import { createHash, type KeyObject, randomUUID, sign } from "node:crypto"
import type { ServerResponse } from "node:http"
import { gzipSync } from "node:zlib"
import * as LocalServer from "./LocalServer.ts"
import * as TarArchive from "./TarArchive.ts"

export interface RegistryDouble {
  /** The image, named by its digest. */
  readonly image: string
  readonly digest: string
  /** Adds a signature of the image, in the format of cosign. `of` is the digest that the signature names. */
  readonly sign: (key: KeyObject, of?: string) => void
  /** Changes a byte of every payload that was signed. */
  readonly tamper: () => void
  /** Paths of the requests so far. */
  readonly requested: ReadonlyArray<string>
}

const digestOf = (bytes: Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`

const manifestType = "application/vnd.oci.image.manifest.v1+json"
const repository = "cogni-sandbox-test/pulled"

export const acquire = (options?: {
  readonly token?: string | undefined
}): Effect.Effect<RegistryDouble, never, Scope.Scope> =>
  Effect.gen(function* () {
    const blobs = new Map<string, Buffer>()
    const manifests = new Map<string, Buffer>()
    const store = (bytes: Buffer, mediaType: string) => {
      blobs.set(digestOf(bytes), bytes)
      return { mediaType, digest: digestOf(bytes), size: bytes.byteLength }
    }
    const layer = TarArchive.of({ name: "unique", content: randomUUID() })
    const config = store(
      Buffer.from(
        JSON.stringify({
          architecture: process.arch === "x64" ? "amd64" : process.arch,
          os: "linux",
          config: {},
          rootfs: { type: "layers", diff_ids: [digestOf(layer)] }
        })
      ),
      "application/vnd.oci.image.config.v1+json"
    )
    const manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: manifestType,
        config,
        layers: [store(gzipSync(layer), "application/vnd.oci.image.layer.v1.tar+gzip")]
      })
    )
    const digest = digestOf(manifest)
    manifests.set(digest, manifest)

    const signatures: Array<{ readonly payload: string; readonly annotation: string }> = []
    const publish = () => {
      const layers = signatures.map(({ annotation, payload }) => ({
        ...store(Buffer.from(payload), "application/vnd.dev.cosign.simplesigning.v1+json"),
        annotations: { "dev.cosignproject.cosign/signature": annotation }
      }))
      const list = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: manifestType, config, layers }))
      manifests.set(`${digest.replace(":", "-")}.sig`, list)
    }

    const requested: Array<string> = []
    const send = (response: ServerResponse, found: Buffer | undefined, type: string, isHead: boolean) =>
      found === undefined
        ? LocalServer.respond(response, 404, { errors: [{ code: "MANIFEST_UNKNOWN" }] })
        : void response
            .writeHead(200, {
              "content-type": type,
              "content-length": found.byteLength,
              "docker-content-digest": digestOf(found)
            })
            .end(isHead ? undefined : found)
    const url = yield* LocalServer.serve((request, response) => {
      const { pathname } = new URL(request.url ?? "/", "http://localhost")
      requested.push(pathname)
      if (pathname === "/token") return LocalServer.respond(response, 200, { token: options?.token })
      if (options?.token !== undefined && request.headers.authorization !== `Bearer ${options.token}`) {
        return LocalServer.respond(
          response,
          401,
          {},
          {
            headers: {
              "www-authenticate": `Bearer realm="http://${request.headers.host}/token",service="double"`
            }
          }
        )
      }
      if (pathname === "/v2/") return LocalServer.respond(response, 200, {})
      const [, kind, name] =
        new RegExp(`^/v2/${repository}/(manifests|blobs)/([^/]+)$`, "u").exec(pathname) ?? []
      const found = name === undefined ? undefined : (kind === "blobs" ? blobs : manifests).get(name)
      return send(
        response,
        found,
        kind === "blobs" ? "application/octet-stream" : manifestType,
        request.method === "HEAD"
      )
    })

    return {
      image: `${url.replace("http://", "")}/${repository}@${digest}`,
      digest,
      requested,
      sign: (key, of = digest) => {
        const payload = JSON.stringify({
          critical: {
            identity: { "docker-reference": repository },
            image: { "docker-manifest-digest": of },
            type: "cosign container image signature"
          },
          optional: null
        })
        signatures.push({ payload, annotation: sign("sha256", Buffer.from(payload), key).toString("base64") })
        publish()
      },
      tamper: () => {
        signatures.forEach((one, at) => {
          signatures[at] = { ...one, payload: one.payload.replace('"optional":null', '"optional":true') }
        })
        publish()
      }
    }
  })
