/**
 * The mirror of one shard: fetches metadata, remembers where files are, and finds files in the cache or at a registry.
 *
 *     sandbox ── name ──► allowed? ──► metadata of the registry ── address, hash ──► cache or registry ──► bytes
 *
 * Addresses and hashes come only from registries, so a request of a sandbox selects a file but never says where it is.
 */
import type { Registry } from "@cogni/sandbox-core/PackagePattern"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import type { Inspected, Inspector } from "../gateway/Inspector.ts"
import type { Held } from "../gateway/RunShare.ts"
import * as CargoCrate from "./CargoCrate.ts"
import * as FetchRule from "./FetchRule.ts"
import * as FileCache from "./FileCache.ts"
import { type FileHash, isCacheable } from "./FileHash.ts"
import type { MetadataOutcome, Published, Rewritten } from "./Metadata.ts"
import type { MirrorConfig } from "./MirrorConfig.ts"
import * as PackageIndex from "./PackageIndex.ts"
import type { PackageAsk } from "./PackageRoute.ts"
import * as PypiProject from "./PypiProject.ts"
import * as RegistryClient from "./RegistryClient.ts"

/** How a request pays for what is fetched for it. */
export interface Fetching extends Inspected {
  readonly held: Held
  /** Counts bytes of the run; false if it has fetched more than it may. */
  readonly take: (bytes: number) => boolean
  /** Returns how long the run must wait for its next piece. */
  readonly waitMillis: (nowMillis: number) => number
  readonly onPiece: () => void
}

/** Content of a file, whose hash its reader checks. */
export interface OpenFile {
  readonly from: "cache" | "registry"
  readonly published: Published
  readonly bytes: number | undefined
  readonly body: AsyncIterable<Uint8Array>
  /** Keeps the file, if it is committed. */
  readonly draft: FileCache.Draft | undefined
}

export interface Mirror {
  readonly config: MirrorConfig
  readonly metadata: (
    ask: PackageAsk,
    fetching: Fetching
  ) => Effect.Effect<Rewritten, RegistryClient.RegistryFailed>
  /** Opens a file. Closing the scope closes it, and removes an unfinished draft. */
  readonly open: (
    ask: PackageAsk & { readonly file: string },
    fetching: Fetching
  ) => Effect.Effect<OpenFile, RegistryClient.RegistryFailed, Scope.Scope>
  /** Forgets a file whose content is not what it should be. */
  readonly distrust: (ask: PackageAsk, published: Published) => Effect.Effect<void>
}

interface MirrorOptions {
  readonly config: MirrorConfig
  readonly connectSecondsMax: number
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
  readonly inspector: Pick<Inspector, "rewrite">
}

const accepts: Readonly<Record<Registry, string>> = {
  npm: "application/json",
  pypi: `${PypiProject.contentType}, text/html;q=0.1`,
  cargo: "*/*"
}

const abbreviated = "application/vnd.npm.install-v1+json"

/** Size of a registry's `config.json`. */
const cargoConfigBytesMax = 64 * 1024

const failed = (outcome: RegistryClient.RegistryFailed["outcome"], detail: string) =>
  Effect.fail(new RegistryClient.RegistryFailed({ outcome, detail }))

export const make = ({ config, inspector, ...options }: MirrorOptions): Mirror => {
  const client = RegistryClient.make({ ...options, ...config })
  const index = PackageIndex.make()
  const { cacheBytesMax, cacheDirectory } = config
  const cache =
    cacheDirectory === undefined
      ? undefined
      : FileCache.make({ directory: cacheDirectory, bytesMax: cacheBytesMax })
  let cargoDownloads: string | undefined

  const placeOf = (registry: Registry) => {
    const place = config.places[registry]
    return place === undefined
      ? failed("registry_refused", `this host has no registry of ${registry}`)
      : Effect.succeed(place)
  }

  const addressOf = (place: FetchRule.Place, address: string) =>
    Result.match(FetchRule.allowed(place, address), {
      onFailure: (detail) => failed("registry_refused", detail),
      onSuccess: (url) => Effect.succeed(url)
    })

  const fetched = (request: RegistryClient.FetchRequest) =>
    Effect.acquireRelease(client.fetch(request), ({ close }) => Effect.sync(close), { interruptible: true })

  /** Reads a whole answer into memory that counts for the run. */
  const read = (
    place: FetchRule.Place,
    {
      accept,
      address,
      bytesMax
    }: { readonly address: string; readonly accept: string; readonly bytesMax: number },
    fetching: Fetching
  ) =>
    Effect.gen(function* () {
      const url = yield* addressOf(place, address)
      const answer = yield* fetched({ place, url, accept, isCompressible: true })
      return yield* Effect.tryPromise({
        try: async () => ({ ...answer, bytes: await collected(answer.body, bytesMax, fetching) }),
        catch: failureOf
      })
    }).pipe(Effect.scoped)

  /** Where cargo's registry has its files, which it says once. */
  const downloads = (place: FetchRule.Place, fetching: Fetching) =>
    Effect.gen(function* () {
      if (cargoDownloads !== undefined) return cargoDownloads
      const address = `${place.url}/config.json`
      const { bytes } = yield* read(
        place,
        { address, accept: "*/*", bytesMax: cargoConfigBytesMax },
        fetching
      )
      cargoDownloads = CargoCrate.downloadsOf(bytes)
      return cargoDownloads
    })

  const metadata: Mirror["metadata"] = Effect.fnUntraced(function* (ask, fetching) {
    const { isAbbreviated, name, registry } = ask
    const place = yield* placeOf(registry)
    const address = addressOfMetadata(place, ask)
    const accept = isAbbreviated ? `${abbreviated}, ${accepts[registry]};q=0.5` : accepts[registry]
    const found = yield* read(place, { address, accept, bytesMax: config.metadataBytesMax }, fetching)
    const { bytes: body, contentType, url: from } = found
    const outcome: MetadataOutcome = yield* inspector
      .rewrite(fetching, {
        registry,
        name,
        base: `${config.baseUrl}/${registry}`,
        from,
        contentType,
        body,
        ...(registry === "cargo" ? { downloads: yield* downloads(place, fetching) } : {})
      })
      .pipe(
        Effect.catchTags({
          InspectionFailed: ({ detail }) => failed("registry_refused", detail),
          InspectorMissing: ({ detail }) => failed("no_room", detail)
        })
      )
    if (outcome._tag === "Unreadable") return yield* failed("registry_refused", outcome.detail)
    index.put(registry, name, outcome.files, performance.now())
    return outcome
  })

  const locate = Effect.fnUntraced(function* (
    ask: PackageAsk & { readonly file: string },
    fetching: Fetching
  ) {
    const { file, name, registry } = ask
    const known = index.find(registry, name, file, performance.now())
    if (known !== undefined) return known
    const { files } = yield* metadata({ ...ask, isAbbreviated: registry === "npm" }, fetching)
    const found = files.find(([own]) => own === file)
    return found === undefined
      ? yield* failed("not_found", `the registry has no file ${file} of ${name}`)
      : found[1]
  })

  const isKept = (published: Published): published is Published & { readonly hash: FileHash } =>
    published.hash !== undefined && isCacheable(published.hash)

  const fromCache = Effect.fnUntraced(function* ({ name, registry }: PackageAsk, published: Published) {
    if (cache === undefined || !isKept(published)) return undefined
    const { hash } = published
    const kept = yield* Effect.acquireRelease(cache.find({ registry, name, hash }), (found) =>
      Effect.promise(async () => found?.close())
    )
    if (kept === undefined) return undefined
    const { body, bytes } = kept
    return { from: "cache", published, bytes, body, draft: undefined } satisfies OpenFile
  })

  const fromRegistry = Effect.fnUntraced(function* (
    { name, registry }: PackageAsk,
    place: FetchRule.Place,
    url: URL,
    published: Published
  ) {
    const { body, bytes } = yield* fetched({ place, url, accept: "*/*", isCompressible: false })
    const draft =
      cache === undefined || !isKept(published)
        ? undefined
        : yield* Effect.acquireRelease(cache.draft({ registry, name, hash: published.hash }), (begun) =>
            Effect.promise(async () => begun?.drop())
          )
    return { from: "registry", published, bytes, body, draft } satisfies OpenFile
  })

  return {
    config,
    metadata,
    open: Effect.fnUntraced(function* (ask, fetching) {
      const published = yield* locate(ask, fetching)
      const place = yield* placeOf(ask.registry)
      // Also for a kept file, so that what others have fetched makes no difference.
      const url = yield* addressOf(place, published.url)
      return (yield* fromCache(ask, published)) ?? (yield* fromRegistry(ask, place, url, published))
    }),
    distrust: ({ name, registry }, { hash }) =>
      cache === undefined || hash === undefined ? Effect.void : cache.remove({ registry, name, hash })
  }
}

const addressOfMetadata = ({ url }: FetchRule.Place, { name, registry }: PackageAsk): string => {
  switch (registry) {
    case "npm":
      return `${url}/${name.replace("/", "%2f")}`
    case "pypi":
      return `${url}/${name}/`
    case "cargo":
      return `${url}/${CargoCrate.indexPath(name)}`
  }
}

/** Collects pieces in one buffer of its own, which can be transferred to another thread. */
const collected = async (
  body: AsyncIterable<Uint8Array>,
  bytesMax: number,
  { held, onPiece, take, waitMillis }: Fetching
): Promise<Uint8Array> => {
  const pieces: Array<Uint8Array> = []
  let bytes = 0
  for await (const piece of body) {
    onPiece()
    bytes += piece.byteLength
    if (bytes > bytesMax) throw limit("too_large", `its metadata is larger than ${bytesMax} bytes`)
    if (!take(piece.byteLength)) throw limit("run_limit", "the run has fetched all the bytes that it may")
    if (!held.take(piece.byteLength)) throw limit("no_room", "the gateway is at capacity")
    pieces.push(piece)
    await pause(waitMillis(performance.now()))
  }
  const whole = new Uint8Array(bytes)
  let at = 0
  for (const piece of pieces) {
    whole.set(piece, at)
    at += piece.byteLength
  }
  return whole
}

/** Waits until a run may have its next piece. */
export const pause = async (millis: number): Promise<void> => {
  if (millis <= 0) return
  await new Promise((resolve) => {
    setTimeout(resolve, millis)
  })
}

const limit = (outcome: RegistryClient.RegistryFailed["outcome"], detail: string) =>
  new RegistryClient.RegistryFailed({ outcome, detail })

/** The failure that a reader of an answer threw, or that the connection had. */
export const failureOf = (thrown: unknown): RegistryClient.RegistryFailed =>
  thrown instanceof RegistryClient.RegistryFailed
    ? thrown
    : limit("registry_cut", thrown instanceof Error ? thrown.message : String(thrown))
