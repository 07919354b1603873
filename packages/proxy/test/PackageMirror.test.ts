/** The package mirror over a run's own socket, with a registry on this host: what passes, and what never leaves. */
import { assert, describe, it } from "@effect/vitest"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Effect, Layer } from "effect"
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as http from "node:http"
import * as path from "node:path"
import { gzipSync } from "node:zlib"
import * as PackageRegistry from "../../../test/harness/PackageRegistry.ts"
import * as AuditLog from "../src/AuditLog.ts"
import * as Await from "../../../test/harness/Await.ts"
import * as GatewayLlmProxy from "../src/GatewayLlmProxy.ts"
import type { PackageMirrorOptions } from "../src/PackageMirror.ts"
import * as Gateway from "./GatewaySocket.ts"

interface Response {
  /** Absent if the connection broke off. */
  readonly status: number | undefined
  readonly reason: string
  readonly headers: http.IncomingHttpHeaders
  readonly body: Buffer
  readonly isComplete: boolean
}

/** Sends a request over a run's socket. Never fails: an answer that breaks off is incomplete. */
const get = (
  socketPath: string,
  target: string,
  {
    headers = {},
    method = "GET"
  }: { readonly headers?: Record<string, string>; readonly method?: string } = {}
): Effect.Effect<Response> =>
  Effect.callback((resume) => {
    const pieces: Array<Buffer> = []
    const none = { status: undefined, reason: "", headers: {}, body: Buffer.alloc(0), isComplete: false }
    const request = http.request({ socketPath, path: target, method, headers, agent: false }, (answer) => {
      const { headers: received, statusCode: status, statusMessage: reason = "" } = answer
      const end = () =>
        resume(
          Effect.succeed({
            status,
            reason,
            headers: received,
            body: Buffer.concat(pieces),
            isComplete: answer.complete
          })
        )
      answer.on("data", (piece: Buffer) => pieces.push(piece))
      answer.on("error", end)
      answer.on("close", end)
    })
    request.on("error", () => resume(Effect.succeed(none)))
    request.end()
  })

/** Sends a request, and reads only the beginning of the answer until `rest` is run, which counts all of it. */
const stalling = (
  socketPath: string,
  target: string
): Effect.Effect<{
  readonly read: (bytesMin: number) => Effect.Effect<number>
  readonly rest: Effect.Effect<number>
}> =>
  Effect.callback((resume) => {
    http.get({ socketPath, path: target, agent: false }, (answer) => {
      const pieces = answer[Symbol.asyncIterator]()
      let bytes = 0
      const read = (bytesMin: number) =>
        Effect.promise(async () => {
          while (bytes < bytesMin) {
            const { done, value } = await pieces.next()
            if (done === true) break
            bytes += (value as Buffer).byteLength
          }
          return bytes
        })
      answer.once("readable", () => resume(Effect.succeed({ read, rest: read(Number.POSITIVE_INFINITY) })))
    })
  })

const errorOf = ({ body }: Response): string => JSON.parse(body.toString()).error

interface Options extends Omit<Gateway.Options, "packages"> {
  readonly packages?: ReadonlyArray<string>
  readonly mirror?: Partial<PackageMirrorOptions>
}

/** A gateway with a mirror of one registry, and a run that may install these packages. */
const make = Effect.fnUntraced(function* ({
  mirror,
  packages = ["npm:*", "npm:@*/*"],
  ...rest
}: Options = {}) {
  const registry = yield* PackageRegistry.acquire
  const { origin } = registry
  const gateway = yield* Gateway.make({
    ...rest,
    packages: {
      npm: { url: `${origin}/npm` },
      pypi: { url: `${origin}/simple` },
      cargo: { url: `sparse+${origin}/index/` },
      ...mirror
    },
    request: { ...rest.request, packages }
  })
  return {
    ...gateway,
    registry,
    get: (target: string, options?: Parameters<typeof get>[2]) => get(gateway.socketPath, target, options)
  }
})

type Mirrored = Effect.Success<ReturnType<typeof make>>

const askedOf = ({ asked }: PackageRegistry.PackageRegistry) => asked.map((one) => one.path)

/** Ends the run, and returns its audit, which must be whole. */
const auditOf = Effect.fnUntraced(function* ({ audit, endpoint, runId }: Mirrored) {
  const traffic = yield* endpoint.finish
  const log = yield* audit
  const verdict = AuditLog.verify(Buffer.from(log), { runId, head: traffic.auditHead, ended: true })
  assert.strictEqual(verdict._tag, "Whole", JSON.stringify(verdict))
  const entries = log
    .trimEnd()
    .split("\n")
    .map((line): Record<string, unknown> => JSON.parse(line))
  return { traffic, entries }
})

const leftPad = { name: "left-pad", version: "1.0.0" }
const leftPadFile = "/packages/npm/left-pad/-/left-pad-1.0.0.tgz"

describe("PackageMirror", () => {
  it.live("serves metadata that leads to the mirror, and the file that its registry describes", () =>
    Effect.gen(function* () {
      const gateway = yield* make()
      const tarball = gateway.registry.npm(leftPad)
      const metadata = yield* gateway.get("/packages/npm/left-pad")
      assert.strictEqual(metadata.status, 200)
      const { dist } = JSON.parse(metadata.body.toString()).versions["1.0.0"]
      assert.strictEqual(dist.tarball, `http://localhost:8080${leftPadFile}`)
      const file = yield* gateway.get(leftPadFile)
      assert.strictEqual(file.status, 200)
      assert.isTrue(file.isComplete)
      assert.isTrue(file.body.equals(tarball))
      assert.strictEqual(file.headers["content-length"], String(tarball.byteLength))
    })
  )

  it.live("finds a file that was not announced by metadata before, as a lockfile names it", () =>
    Effect.gen(function* () {
      const gateway = yield* make()
      const tarball = gateway.registry.npm({ name: "@acme/left-pad", version: "1.0.0" })
      const file = yield* gateway.get("/packages/npm/@acme/left-pad/-/left-pad-1.0.0.tgz")
      assert.isTrue(file.body.equals(tarball))
      const unknown = yield* gateway.get("/packages/npm/@acme/left-pad/-/left-pad-9.9.9.tgz")
      assert.strictEqual(unknown.status, 404)
      assert.strictEqual(
        errorOf(unknown),
        "npm:@acme/left-pad: the registry has no file left-pad-9.9.9.tgz of @acme/left-pad"
      )
      const absent = yield* gateway.get("/packages/npm/absent")
      assert.strictEqual(absent.status, 404)
    })
  )

  it.live("sends the registry a name, and nothing else of the request", () =>
    Effect.gen(function* () {
      const gateway = yield* make()
      gateway.registry.npm(leftPad)
      const headers = {
        authorization: "Bearer npm_secret",
        cookie: "a=secret",
        "npm-session": "secret",
        "user-agent": "secret",
        referer: "secret",
        "x-anything": "secret",
        accept: "application/secret"
      }
      yield* gateway.get("/packages/npm/left-pad?secret=1#secret", { headers })
      yield* gateway.get(`${leftPadFile}?secret`, { headers })
      assert.deepStrictEqual(askedOf(gateway.registry), [
        "/npm/left-pad",
        "/npm/left-pad/-/left-pad-1.0.0.tgz"
      ])
      for (const asked of gateway.registry.asked) {
        assert.strictEqual(asked.method, "GET")
        assert.notInclude(JSON.stringify(asked), "secret")
        assert.strictEqual(asked.headers["user-agent"], "cogni-sandbox")
        assert.sameMembers(Object.keys(asked.headers), [
          "accept",
          "accept-encoding",
          "user-agent",
          "host",
          "connection"
        ])
      }
    })
  )

  it.live("refuses by name what the run may not install, and asks no registry", () =>
    Effect.gen(function* () {
      const gateway = yield* make({ packages: ["npm:left-pad", "npm:@types/*"] })
      gateway.registry.npm({ name: "evil", version: "1.0.0" })
      for (const target of [
        "/packages/npm/evil",
        "/packages/npm/evil/-/evil-1.0.0.tgz",
        "/packages/npm/@types%2f..%2fevil",
        "/packages/npm/@evil%2fnode",
        "/packages/pypi/simple/requests/",
        "/packages/cargo/index/se/rd/serde",
        "/packages/npm/-/v1/search?text=secret",
        "/packages/npm/%2e%2e/evil",
        "/packages/npm/..%2f..%2fevil",
        "/packages/npm/%252e%252e%252fevil",
        "/packages/npm/../npm/left-pad",
        "/packages/npm/left-pad%00",
        "/packages/npm//left-pad"
      ])
        assert.strictEqual((yield* gateway.get(target)).status, 403, target)
      assert.strictEqual((yield* gateway.get("/packages/npm/left-pad", { method: "POST" })).status, 405)
      assert.strictEqual((yield* gateway.get("/packages/npm/left-pad", { method: "PUT" })).status, 405)
      assert.deepStrictEqual(askedOf(gateway.registry), [])
      const refused = yield* gateway.get("/packages/npm/evil")
      const says =
        "npm:evil is not a package that this sandbox may install. It may install npm:left-pad, npm:@types/*"
      assert.strictEqual(errorOf(refused), says)
      assert.strictEqual(refused.reason, says)
      const { entries, traffic } = yield* auditOf(gateway)
      const entry = entries.find(({ type }) => type === "request.refused")
      assert.deepInclude(entry, { status: 403, code: "package_not_allowed", path: "/packages/npm/evil" })
      assert.notProperty(entry, "call")
      assert.deepInclude(traffic, { calls: [], callsTotal: 0, packagesTotal: 0 })
    })
  )

  it.live("takes a request for packages only by its plain path", () =>
    Effect.gen(function* () {
      const gateway = yield* make()
      gateway.registry.npm(leftPad)
      const targets = [
        "//packages/npm/left-pad",
        "/./packages/npm/left-pad",
        "/%70ackages/npm/left-pad",
        "http://localhost/packages/npm/left-pad"
      ]
      for (const target of targets) assert.strictEqual((yield* gateway.get(target)).status, 403, target)
      assert.deepStrictEqual(askedOf(gateway.registry), [])
      // They are refused as requests to the model, which has no such route.
      const { traffic } = yield* auditOf(gateway)
      assert.deepStrictEqual(
        traffic.calls.map(({ outcome, path: asked }) => [asked, outcome]),
        targets.map((target) => [target, "refused"])
      )
    })
  )

  it.live("audits a fetch before and after, and counts it", () =>
    Effect.gen(function* () {
      const gateway = yield* make()
      const tarball = gateway.registry.npm(leftPad)
      yield* gateway.get(leftPadFile)
      const { entries, traffic } = yield* auditOf(gateway)
      const asked = { registry: "npm", package: "left-pad", file: "left-pad-1.0.0.tgz" }
      assert.deepInclude(entries[0], { type: "run.opened", packages: ["npm:*", "npm:@*/*"] })
      assert.deepInclude(entries[1], { type: "package.started", ...asked })
      assert.deepInclude(entries[2], {
        type: "package.ended",
        ...asked,
        requestId: entries[1]!["requestId"],
        status: 200,
        outcome: "served",
        source: "registry",
        bytes: tarball.byteLength,
        digest: `sha512-${createHash("sha512").update(tarball).digest("hex")}`
      })
      assert.deepInclude(entries[3], { type: "run.closed", packagesTotal: 1, callsTotal: 0 })
      assert.strictEqual(traffic.packagesTotal, 1)
    })
  )

  it.live("never completes a file with other content than its registry describes, and never keeps it", () =>
    Effect.gen(function* () {
      const cacheDirectory = yield* Gateway.directory
      const gateway = yield* make({ mirror: { cacheDirectory } })
      const tarball = gateway.registry.npm({ ...leftPad, files: { "package/big": "x".repeat(400_000) } })
      const place = "/npm/left-pad/-/left-pad-1.0.0.tgz"
      const large = Buffer.concat([tarball, Buffer.alloc(3_000_000, "evil")])
      gateway.registry.answer(place, { body: Buffer.from("evil") })
      const small = yield* gateway.get(leftPadFile)
      assert.strictEqual(small.status, 502)
      assert.include(errorOf(small), "the file is not the one that its registry describes")
      gateway.registry.answer(place, { body: large })
      const cut = yield* gateway.get(leftPadFile)
      assert.isFalse(cut.isComplete)
      assert.isBelow(cut.body.byteLength, large.byteLength)
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(cacheDirectory)), [])
      // Another account gets the real file, and it is then kept.
      gateway.registry.answer(place, { body: tarball })
      const other = yield* Gateway.openRun(gateway.proxy, {
        request: { packages: ["npm:left-pad"] },
        llm: { identity: { billingAccountId: "other", attempt: 0 } }
      })
      const good = yield* get(other.socketPath, leftPadFile)
      assert.isTrue(good.body.equals(tarball))
      const { entries } = yield* auditOf(gateway)
      const outcomes = entries.flatMap(({ outcome, type }) => (type === "package.ended" ? [outcome] : []))
      assert.deepStrictEqual(outcomes, ["integrity_mismatch", "integrity_mismatch"])
    })
  )

  it.live("serves a kept file without its registry, and distrusts one that was changed", () =>
    Effect.gen(function* () {
      const cacheDirectory = yield* Gateway.directory
      const gateway = yield* make({ mirror: { cacheDirectory } })
      const tarball = gateway.registry.npm(leftPad)
      const name = keptAs("npm:left-pad", tarball)
      yield* gateway.get(leftPadFile)
      const again = yield* gateway.get(leftPadFile)
      assert.isTrue(again.body.equals(tarball))
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(cacheDirectory)), [name])
      const files = () => askedOf(gateway.registry).filter((asked) => asked.endsWith(".tgz")).length
      assert.strictEqual(files(), 1)
      yield* Effect.promise(() => fs.writeFile(path.join(cacheDirectory, name), "evil"))
      assert.strictEqual((yield* gateway.get(leftPadFile)).status, 502)
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(cacheDirectory)), [])
      assert.isTrue((yield* gateway.get(leftPadFile)).body.equals(tarball))
      assert.strictEqual(files(), 2)
      const { entries } = yield* auditOf(gateway)
      const sources = entries.flatMap(({ source, type }) => (type === "package.ended" ? [source] : []))
      assert.deepStrictEqual(sources, ["registry", "cache", undefined, "registry"])
    })
  )

  it.live("serves no file of another package that its metadata names by its hash", () =>
    Effect.gen(function* () {
      const cacheDirectory = yield* Gateway.directory
      const elsewhere = yield* PackageRegistry.acquire
      const gateway = yield* make({ mirror: { cacheDirectory } })
      const tarball = gateway.registry.npm({ name: "private", version: "1.0.0" })
      const got = yield* gateway.get("/packages/npm/private/-/private-1.0.0.tgz")
      assert.isTrue(got.body.equals(tarball))
      // The attacker knows the hash, such as from a lockfile, and publishes metadata that states it.
      const integrity = `sha512-${createHash("sha512").update(tarball).digest("base64")}`
      gateway.registry.npm({ name: "evil", version: "1.0.0", dist: { integrity } })
      const other = yield* Gateway.openRun(gateway.proxy, {
        request: { packages: ["npm:evil"] },
        llm: { identity: { billingAccountId: "other", attempt: 0 } }
      })
      const evil = yield* get(other.socketPath, "/packages/npm/evil/-/evil-1.0.0.tgz")
      assert.strictEqual(evil.status, 502)
      assert.include(errorOf(evil), "is not the one that its registry describes")
      // A kept file of an address that is not allowed is refused like one that is not kept.
      const moved = { integrity, tarball: `${elsewhere.origin}/private.tgz` }
      gateway.registry.npm({ name: "private", version: "1.0.1", dist: moved })
      yield* gateway.get("/packages/npm/private")
      const refused = yield* gateway.get("/packages/npm/private/-/private-1.0.1.tgz")
      assert.include(errorOf(refused), "which is not one of its origins")
    })
  )

  it.live(
    "keeps no more than a part of its limit in unfinished files, and serves what it does not keep",
    () =>
      Effect.gen(function* () {
        const cacheDirectory = yield* Gateway.directory
        // A quarter of it is less than two of the files.
        const gateway = yield* make({ mirror: { cacheDirectory, cacheBytesMax: 4 * 5_000_000 } })
        const sizes = [0, 1].map((version) => {
          const files = { "package/noise": randomText(8_000_000, version) }
          return gateway.registry.npm({ name: `slow${version}`, version: "1.0.0", files }).byteLength
        })
        const target = (version: number) => `/packages/npm/slow${version}/-/slow${version}-1.0.0.tgz`
        const stalled = yield* Effect.forEach([0, 1], (version) =>
          stalling(gateway.socketPath, target(version))
        )
        const unfinished = Effect.promise(async () => {
          const names = (await fs.readdir(cacheDirectory)).filter((name) => name.endsWith(".new"))
          const found = await Promise.all(
            names.map((name) => fs.stat(path.join(cacheDirectory, name)).catch(() => undefined))
          )
          return found.reduce((sum, stats) => sum + (stats?.size ?? 0), 0)
        })
        // Together they are more than the part, and neither is whole: each file has 6 MB.
        for (const { read } of stalled) yield* read(3_000_000)
        assert.isAtMost(yield* unfinished, 5_000_000)
        for (const [index, { rest }] of stalled.entries()) assert.strictEqual(yield* rest, sizes[index])
        // One gets its name or goes when its answer has ended, a moment after its last byte arrived here.
        yield* Await.until(
          "unfinished files are left",
          Effect.map(unfinished, (bytes) => bytes === 0)
        )
      })
  )

  it.live("keeps no more than its limit", () =>
    Effect.gen(function* () {
      const cacheDirectory = yield* Gateway.directory
      const gateway = yield* make({ mirror: { cacheDirectory, cacheBytesMax: 64 * 1024 } })
      for (let version = 0; version < 12; version++) {
        const noise = createHash("sha512").update(String(version)).digest("hex").repeat(4)
        gateway.registry.npm({
          name: "left-pad",
          version: `1.0.${version}`,
          dist: {},
          files: { "package/noise": Buffer.from(noise.repeat(16)).toString("base64").slice(0, 12_000) }
        })
        gateway.registry.npm({
          name: `p${version}`,
          version: "1.0.0",
          files: { "package/noise": randomText(10_000, version) }
        })
        const got = yield* gateway.get(`/packages/npm/p${version}/-/p${version}-1.0.0.tgz`)
        assert.strictEqual(got.status, 200)
      }
      const sizes = yield* Effect.promise(async () =>
        Promise.all(
          (await fs.readdir(cacheDirectory)).map(
            // The last eviction may still remove files.
            async (name) => (await fs.stat(path.join(cacheDirectory, name)).catch(() => undefined))?.size ?? 0
          )
        )
      )
      assert.isNotEmpty(sizes)
      assert.isAtMost(
        sizes.reduce((sum, size) => sum + size, 0),
        2 * 64 * 1024
      )
    })
  )

  it.live("refuses metadata about another package, and metadata that is not JSON", () =>
    Effect.gen(function* () {
      const gateway = yield* make()
      gateway.registry.npm(leftPad)
      gateway.registry.answer("/npm/@acme%2fleft-pad", {
        body: JSON.stringify({ name: "left-pad", versions: {} })
      })
      gateway.registry.answer("/npm/html", { body: "<html>" })
      const confused = yield* gateway.get("/packages/npm/@acme/left-pad")
      assert.strictEqual(confused.status, 502)
      assert.include(errorOf(confused), "is about another package")
      assert.include(
        errorOf(yield* gateway.get("/packages/npm/html")),
        "is not the metadata of an npm package"
      )
    })
  )

  it.live("bounds metadata, also if it is small while compressed", () =>
    Effect.gen(function* () {
      const gateway = yield* make({ mirror: { metadataBytesMax: 1024 * 1024 } })
      const huge = JSON.stringify({ name: "huge", versions: {}, padding: "x".repeat(2 * 1024 * 1024) })
      gateway.registry.answer("/npm/huge", { body: huge })
      gateway.registry.answer("/npm/bomb", {
        headers: { "content-encoding": "gzip" },
        body: gzipSync(Buffer.alloc(512 * 1024 * 1024))
      })
      gateway.registry.answer("/npm/odd", { headers: { "content-encoding": "br" }, body: "x" })
      for (const name of ["huge", "bomb"]) {
        const answer = yield* gateway.get(`/packages/npm/${name}`)
        assert.strictEqual(answer.status, 502, name)
        assert.include(errorOf(answer), "its metadata is larger than 1048576 bytes")
      }
      assert.include(errorOf(yield* gateway.get("/packages/npm/odd")), "an encoding that was not asked for")
    })
  )

  it.live("reads compressed metadata, and large metadata on another thread", () =>
    Effect.gen(function* () {
      const gateway = yield* make()
      const padding = "x".repeat(1024 * 1024)
      gateway.registry.answer("/npm/large", {
        headers: { "content-encoding": "gzip" },
        body: gzipSync(JSON.stringify({ name: "large", versions: {}, padding }))
      })
      const answer = yield* gateway.get("/packages/npm/large")
      assert.strictEqual(answer.status, 200)
      assert.strictEqual(JSON.parse(answer.body.toString()).padding, padding)
      assert.strictEqual((yield* gateway.get("/packages/npm/large", { method: "HEAD" })).body.byteLength, 0)
    })
  )

  it.live("bounds a file, and the bytes of a run", () =>
    Effect.gen(function* () {
      const files = { "package/noise": randomText(100_000, 1) }
      const small = yield* make({ mirror: { fileBytesMax: 10_000 } })
      small.registry.npm({ ...leftPad, files })
      const tooLarge = yield* small.get(leftPadFile)
      assert.strictEqual(tooLarge.status, 502)
      assert.include(errorOf(tooLarge), "the file is larger than 10000 bytes")
      const spent = yield* make({ mirror: { runBytesMax: 150_000 } })
      spent.registry.npm({ ...leftPad, files })
      const statuses: Array<number | undefined> = []
      for (let times = 0; times < 3; times++) statuses.push((yield* spent.get(leftPadFile)).status)
      assert.strictEqual(statuses[0], 200)
      assert.notStrictEqual(statuses[2], 200)
    })
  )

  it.live("bounds the speed of metadata, as that of files", () =>
    Effect.gen(function* () {
      const mebibyte = 1024 * 1024
      const gateway = yield* make({ mirror: { bytesPerSecondMax: mebibyte } })
      const padding = "x".repeat(3 * mebibyte)
      gateway.registry.answer("/npm/large", {
        body: JSON.stringify({ name: "large", versions: {}, padding })
      })
      const startedMillis = performance.now()
      assert.strictEqual((yield* gateway.get("/packages/npm/large")).status, 200)
      // The first mebibyte is a burst.
      assert.isAtLeast(performance.now() - startedMillis, 1800)
    })
  )

  it.live("tells an agent nothing about the network of its host, and the audit everything", () =>
    Effect.gen(function* () {
      // A port that no program gets by chance, unlike that of a registry that has closed.
      const gateway = yield* make({ mirror: { npm: { url: "http://127.0.0.1:1" } } })
      const answer = yield* gateway.get("/packages/npm/left-pad")
      assert.strictEqual(answer.status, 502)
      assert.strictEqual(errorOf(answer), "npm:left-pad: the registry cannot be reached")
      assert.notInclude(answer.reason, "127.0.0.1")
      const { entries } = yield* auditOf(gateway)
      const ended = entries.find(({ type }) => type === "package.ended")
      assert.strictEqual(ended?.["outcome"], "registry_unreachable")
      assert.include(String(ended?.["detail"]), "ECONNREFUSED")
    })
  )

  it.live("gives up a registry that is silent, and never passes a file that breaks off", () =>
    Effect.gen(function* () {
      const gateway = yield* make({ mirror: { silentSecondsMax: 1 } })
      gateway.registry.npm(leftPad)
      const file = "/npm/left-pad/-/left-pad-1.0.0.tgz"
      gateway.registry.answer("/npm/silent", { body: '{"name":"silent"}', silentAfter: 3 })
      gateway.registry.answer("/npm/cut", { body: '{"name":"cut"}', cutAfter: 3 })
      assert.include([502, 504], (yield* gateway.get("/packages/npm/silent")).status)
      assert.strictEqual((yield* gateway.get("/packages/npm/cut")).status, 502)
      gateway.registry.answer(file, { body: "x".repeat(100_000), cutAfter: 50_000 })
      const cut = yield* gateway.get(leftPadFile)
      assert.isTrue(cut.status === 502 || !cut.isComplete)
    })
  )

  it.live("follows a redirect within the origins of a registry, and no other", () =>
    Effect.gen(function* () {
      const elsewhere = yield* PackageRegistry.acquire
      const gateway = yield* make()
      gateway.registry.npm(leftPad)
      elsewhere.answer("/secret", { body: "secret" })
      const redirect = (location: string) => ({ status: 302, headers: { location } })
      gateway.registry.answer("/npm/moved", redirect("/npm/left-pad"))
      gateway.registry.answer("/npm/out", redirect(`${elsewhere.origin}/secret`))
      gateway.registry.answer("/npm/metadata", redirect("http://169.254.169.254/latest/meta-data/"))
      gateway.registry.answer("/npm/loop", redirect("/npm/loop"))
      gateway.registry.answer("/npm/file", redirect("file:///etc/passwd"))
      assert.include(errorOf(yield* gateway.get("/packages/npm/moved")), "about another package")
      for (const name of ["out", "metadata"])
        assert.include(
          errorOf(yield* gateway.get(`/packages/npm/${name}`)),
          "which is not one of its origins",
          name
        )
      assert.include(errorOf(yield* gateway.get("/packages/npm/loop")), "redirected more than 3 times")
      assert.include(errorOf(yield* gateway.get("/packages/npm/file")), "neither https nor http")
      assert.deepStrictEqual(askedOf(elsewhere), [])
    })
  )

  it.live("fetches no file from an origin that the operator did not name", () =>
    Effect.gen(function* () {
      const elsewhere = yield* PackageRegistry.acquire
      const gateway = yield* make()
      const url = `${elsewhere.origin}/left-pad.tgz`
      const tarball = gateway.registry.npm({ ...leftPad, dist: { tarball: url } })
      elsewhere.answer("/left-pad.tgz", { body: tarball })
      const refused = yield* gateway.get(leftPadFile)
      assert.strictEqual(refused.status, 502)
      assert.include(errorOf(refused), `a file at ${elsewhere.origin}, which is not one of its origins`)
      assert.deepStrictEqual(askedOf(elsewhere), [])
      const named = yield* make({
        mirror: { npm: { url: `${gateway.registry.origin}/npm`, fileOrigins: [elsewhere.origin] } }
      })
      assert.isTrue((yield* named.get(leftPadFile)).body.equals(tarball))
    })
  )

  it.live("detects canaries in paths and headers, and sends nothing", () =>
    Effect.gen(function* () {
      const secret = "Qm9vYmFyRm9vYmFyRm9vYmFyRm9vYmFyRm9vYmFy"
      const canaries = { policy: "stop", planted: [{ name: "aws_secret_access_key", secret }] } as const
      const gateway = yield* make({ request: { canaries } })
      for (const [target, headers] of [
        [`/packages/npm/${secret.toLowerCase()}`, {}],
        [`/packages/npm/left-pad?x=${secret}`, {}],
        [`/packages/npm/${[...secret].map((one) => `%${one.charCodeAt(0).toString(16)}`).join("")}`, {}],
        ["/packages/npm/left-pad", { "x-note": secret }]
      ] as const) {
        const answer = yield* gateway.get(target, { headers })
        assert.strictEqual(answer.status, 403, target)
        assert.include(errorOf(answer), "detected a secret of this sandbox")
      }
      assert.deepStrictEqual(askedOf(gateway.registry), [])
      yield* gateway.endpoint.finish
      const [first] = gateway.observed
      assert.isTrue(first?._tag === "ExfiltrationSuspected" && first.evidence.channel === "package")
      assert.notInclude(yield* gateway.audit, secret)
    })
  )

  it.live("serves projects of PyPI and crates", () =>
    Effect.gen(function* () {
      const gateway = yield* make({ packages: ["pypi:*", "cargo:*"] })
      const wheel = gateway.registry.pypi({ name: "requests", version: "2.0" })
      gateway.registry.pypi({ name: "from-html", version: "1.0" }, { html: true })
      const crate = gateway.registry.crate({ name: "serde", version: "1.0.0" })
      const index = JSON.parse((yield* gateway.get("/packages/pypi/simple/Requests/")).body.toString())
      const [file] = index.files
      assert.isTrue((yield* gateway.get(new URL(file.url).pathname)).body.equals(wheel))
      assert.include(
        (yield* gateway.get(`${new URL(file.url).pathname}.metadata`)).body.toString(),
        "Name: requests"
      )
      assert.strictEqual((yield* gateway.get("/packages/pypi/simple/from-html/")).status, 200)
      const config = JSON.parse((yield* gateway.get("/packages/cargo/index/config.json")).body.toString())
      assert.deepStrictEqual(config, { dl: "http://localhost:8080/packages/cargo/crates", api: null })
      const line = JSON.parse((yield* gateway.get("/packages/cargo/index/se/rd/serde")).body.toString())
      assert.strictEqual(line.cksum, createHash("sha256").update(crate).digest("hex"))
      assert.isTrue((yield* gateway.get("/packages/cargo/crates/serde/1.0.0/download")).body.equals(crate))
      gateway.registry.pypi({ name: "wrong", version: "1.0", sha256: "0".repeat(64) })
      gateway.registry.crate({ name: "wrong", version: "1.0.0", cksum: "0".repeat(64) })
      for (const target of [
        "/packages/pypi/files/wrong/wrong-1.0-py3-none-any.whl",
        "/packages/cargo/crates/wrong/1.0.0/download"
      ])
        assert.include(errorOf(yield* gateway.get(target)), "not the one that its registry describes", target)
    })
  )

  it.live("is closed for a run without packages, and on a host without registries", () =>
    Effect.gen(function* () {
      const none = yield* make({ packages: [] })
      none.registry.npm(leftPad)
      assert.deepInclude(yield* none.get("/packages/npm/left-pad"), { status: 403 })
      assert.deepStrictEqual(askedOf(none.registry), [])
      const gateway = yield* Gateway.make()
      assert.strictEqual((yield* get(gateway.socketPath, "/packages/npm/left-pad")).status, 403)
      assert.deepStrictEqual(gateway.proxy.capabilities.packages, [])
    })
  )

  it.live("gives a sandbox whose model the host calls a socket for packages alone", () =>
    Effect.gen(function* () {
      const gateway = yield* make({ llm: { caller: "host" } })
      const tarball = gateway.registry.npm(leftPad)
      const { hostSocketPath } = gateway.endpoint
      assert.notStrictEqual(hostSocketPath, gateway.socketPath)
      assert.isTrue((yield* gateway.get(leftPadFile)).body.equals(tarball))
      const models = yield* gateway.get("/v1/models")
      assert.strictEqual(models.status, 403)
      assert.include(models.body.toString(), "has no model")
      assert.strictEqual((yield* gateway.get("/tool/list")).status, 403)
      assert.strictEqual((yield* gateway.get("/health")).status, 200)
      assert.strictEqual((yield* get(hostSocketPath!, "/v1/models")).status, 200)
      assert.strictEqual((yield* get(hostSocketPath!, leftPadFile)).status, 403)
    })
  )

  it.live("serves packages without a model, and refuses a run with one", () =>
    Effect.gen(function* () {
      const registry = yield* PackageRegistry.acquire
      const tarball = registry.npm(leftPad)
      const directory = yield* Gateway.directory
      const runId = yield* RunId.generate
      const { llm: _, ...request } = LlmProxyContract.requestOf(runId, {
        directory,
        packages: ["npm:left-pad"]
      })
      yield* Effect.gen(function* () {
        const proxy = yield* LlmProxy
        assert.deepInclude(proxy.capabilities, { servesModel: false, packages: ["npm"] })
        const endpoint = yield* proxy.acquire(request)
        yield* endpoint.ready
        const socketPath = Gateway.socketOf(endpoint)
        assert.isTrue((yield* get(socketPath, leftPadFile)).body.equals(tarball))
        assert.strictEqual((yield* get(socketPath, "/v1/models")).status, 403)
        const traffic = yield* endpoint.finish
        assert.deepInclude(traffic, { upstream: "none", packagesTotal: 1, injectedHeaders: [] })
        assert.deepStrictEqual(
          traffic.calls.map(({ outcome, path: asked }) => [asked, outcome]),
          [["/v1/models", "refused"]]
        )
        const log = yield* Effect.promise(() => fs.readFile(path.join(directory, "audit", "audit.jsonl")))
        assert.strictEqual(
          AuditLog.verify(log, { runId, head: traffic.auditHead, ended: true })._tag,
          "Whole"
        )
        const refused = yield* Effect.flip(proxy.acquire(LlmProxyContract.requestOf(yield* RunId.generate)))
        assert.include(refused.message, "no model is configured")
      }).pipe(
        Effect.provide(
          GatewayLlmProxy.layerPackages({ packages: { npm: { url: `${registry.origin}/npm` } } }).pipe(
            Layer.provide(MemoryContainerRuntime.layer())
          )
        )
      )
    })
  )

  it.effect.each([
    ["https://user:secret@registry.example.com", "has a credential"],
    ["registry.example.com", "has no URL"],
    ["ftp://registry.example.com", "has no URL"],
    ["https://registry.example.com?token=secret", "has a query or a fragment"]
  ] as const)("refuses the registry %s once, when the layer is built", ([url, says]) =>
    Effect.gen(function* () {
      const layer = GatewayLlmProxy.layerPackages({ packages: { npm: { url } } })
      const error = yield* Effect.flip(
        Effect.scoped(Layer.build(Layer.provide(layer, MemoryContainerRuntime.layer())))
      )
      assert.strictEqual(error._tag, "Misconfigured")
      assert.include(error.message, says)
      assert.notInclude(error.message, "secret")
    })
  )
})

/** Name of a kept file. */
const keptAs = (of: string, content: Uint8Array): string => {
  const digest = createHash("sha512").update(content).digest("hex")
  return `sha512-${digest}-${createHash("sha256").update(of).digest("hex").slice(0, 32)}`
}

/** Text that does not compress well, the same for the same seed. */
const randomText = (bytes: number, seed: number): string => {
  let text = ""
  for (let block = 0; text.length < bytes; block++)
    text += createHash("sha512").update(`${seed} ${block}`).digest("base64")
  return text.slice(0, bytes)
}
