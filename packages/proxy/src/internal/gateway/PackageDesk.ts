/**
 * Answers a run's requests for packages: allows or refuses them, audits them, and passes what the mirror found.
 *
 * A name is audited before it leaves the host. The last piece of a file is withheld until its hash is checked, so a
 * client never gets a complete file with other content.
 */
import { createHash } from "node:crypto"
import * as Canary from "@cogni/sandbox-core/Canary"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Scope from "effect/Scope"
import { format } from "../packages/FileHash.ts"
import * as CargoCrate from "../packages/CargoCrate.ts"
import * as Mirror from "../packages/Mirror.ts"
import * as PackageRoute from "../packages/PackageRoute.ts"
import type { Rewritten } from "../packages/Metadata.ts"
import { RegistryFailed } from "../packages/RegistryClient.ts"
import type { RunPackages } from "../packages/RunPackages.ts"
import * as Exchange from "./Exchange.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import type { GatewayRun } from "./GatewayRun.ts"
import { shortened } from "./RequestRefused.ts"
import * as RunShare from "./RunShare.ts"

/** Context of a request: the run, its permissions, and the mirror. */
interface Desk {
  readonly run: GatewayRun
  readonly own: RunPackages
  readonly mirror: Mirror.Mirror
  readonly exchange: Exchange.Exchange
}

export const isPackagePath = (path: string): boolean => path.startsWith(PackageRoute.prefix)

export const serve = (run: GatewayRun, exchange: Exchange.Exchange): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { packages: own } = run
    const { mirror } = run.shared
    if (own === undefined || mirror === undefined)
      return refuse(run, exchange, {
        status: 403,
        code: "packages_closed",
        message: "this sandbox may not install packages"
      })
    return Effect.sleep(own.requestWaitMillis(performance.now())).pipe(
      Effect.andThen(own.turns.withPermit(admitted({ run, own, mirror, exchange }))),
      interruptedByClient(exchange)
    )
  })

const admitted = (desk: Desk): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { exchange, mirror, own, run } = desk
    const { method, request, requestId } = exchange
    const target = request.url ?? ""
    const sightings = Canary.look(run.canaries.planted, Buffer.from(seen(target, request.rawHeaders), "utf8"))
    for (const sighting of sightings) run.suspect({ ...sighting, channel: "package", requestId })
    if (sightings.length > 0 && run.canaries.policy === "stop")
      return refuse(run, exchange, { ...GatewayAnswers.exfiltration })
    const accept = request.headers.accept ?? ""
    const decision = PackageRoute.decide({ method, target, accept, patterns: own.patterns })
    if (decision._tag === "Refused") return refuse(run, exchange, decision)
    if (decision._tag === "CargoConfig") {
      const body = CargoCrate.config(`${mirror.config.baseUrl}/cargo`)
      return mirror.config.places.cargo === undefined
        ? refuse(run, exchange, {
            status: 403,
            code: "package_not_allowed",
            message: "this host has no cargo registry"
          })
        : Effect.sync(() => sendWhole(exchange, "application/json", Buffer.from(body)))
    }
    return passed(desk, decision.ask)
  })

/** The part of a request that the agent chose, as it is and decoded. */
const seen = (target: string, headers: ReadonlyArray<string>): string => {
  const text = [target, ...headers].join("\n")
  try {
    return `${text}\n${decodeURIComponent(target)}`
  } catch {
    return text
  }
}

/** How a request ended. */
interface PackageEnd {
  readonly status: number
  readonly outcome: "served" | RegistryFailed["outcome"] | "client_aborted"
  readonly source?: "cache" | "registry" | undefined
  readonly digest?: string | undefined
  readonly detail?: string | undefined
}

const passed = (desk: Desk, ask: PackageRoute.PackageAsk): Effect.Effect<void> => {
  const { exchange, run } = desk
  const { requestId } = exchange
  const { file, name, registry } = ask
  const asked = { requestId, registry, package: name, ...(file === undefined ? {} : { file }) }
  let bytes = 0
  const count = (piece: number) => {
    bytes += piece
  }
  return Effect.flatMap(run.audit.append({ type: "package.started", ...asked }), (isWritten) => {
    // A name that cannot be audited must not leave the host.
    if (!isWritten) return refuse(run, exchange, GatewayAnswers.busy)
    const answered: Effect.Effect<PackageEnd, RegistryFailed, Scope.Scope> =
      file === undefined ? passMetadata(desk, ask, count) : passFile(desk, { ...ask, file }, count)
    return answered.pipe(
      Effect.scoped,
      Effect.catchTag("RegistryFailed", (failed) => Effect.sync(() => fail(desk, ask, failed))),
      Effect.onExit((exit) =>
        Effect.sync(() => {
          const { response } = exchange
          const end: PackageEnd = Exit.isSuccess(exit)
            ? exit.value
            : { status: response.headersSent ? response.statusCode : statusGone, outcome: "client_aborted" }
          if (Exit.isFailure(exit)) response.destroy()
          run.traffic.add({ packagesTotal: 1 })
          run.audit.note({
            type: "package.ended",
            ...asked,
            ...end,
            bytes,
            durationMs: Exchange.millisSince(exchange.startedMs)
          })
        })
      ),
      Effect.asVoid
    )
  })
}

/** Status of a request whose client disconnected. Never sent. */
const statusGone = 499

const fetchingOf = ({ own, run }: Desk) =>
  Effect.acquireRelease(
    Effect.sync(() => RunShare.holding(run.reading.share)),
    (held) => Effect.sync(held.release)
  ).pipe(
    Effect.map((held): Mirror.Fetching => ({
      runId: run.runId,
      gate: run.gate,
      held,
      take: own.take,
      waitMillis: own.waitMillis,
      onPiece: run.reading.onPiece
    }))
  )

const passMetadata = Effect.fnUntraced(function* (
  desk: Desk,
  ask: PackageRoute.PackageAsk,
  count: (bytes: number) => void
) {
  const { exchange, mirror } = desk
  const fetching = yield* fetchingOf(desk)
  const { body, contentType }: Rewritten = yield* mirror.metadata(ask, fetching)
  if (!fetching.held.take(body.byteLength))
    return yield* new RegistryFailed({ outcome: "no_room", detail: "the gateway is at capacity" })
  count(body.byteLength)
  sendWhole(exchange, contentType, body)
  yield* sent(exchange)
  return { status: 200, outcome: "served", source: "registry" } satisfies PackageEnd
})

const sendWhole = (
  { method, request, requestId, response }: Exchange.Exchange,
  contentType: string,
  body: Uint8Array
) => {
  response.writeHead(200, {
    "content-type": contentType,
    "content-length": String(body.byteLength),
    "x-request-id": requestId
  })
  response.end(method === "HEAD" ? undefined : body)
  request.resume()
}

/** Waits until an answer is handed to the system, because its memory counts until then. */
const sent = ({ response }: Exchange.Exchange): Effect.Effect<void> =>
  Effect.callback((resume) => {
    const done = () => resume(Effect.void)
    if (response.writableFinished || response.destroyed) return done()
    response.once("finish", done)
    response.once("close", done)
  })

const passFile = Effect.fnUntraced(function* (
  desk: Desk,
  ask: PackageRoute.PackageAsk & { readonly file: string },
  count: (bytes: number) => void
) {
  const { exchange, mirror, run } = desk
  const fetching = yield* fetchingOf(desk)
  const file = yield* mirror.open(ask, fetching)
  const { hash } = file.published
  const digest = hash === undefined ? {} : { digest: format(hash) }
  if (exchange.method !== "HEAD")
    yield* Effect.tryPromise({
      try: () => streamed(desk, file, count),
      catch: Mirror.failureOf
    }).pipe(
      Effect.tapError((failed) =>
        failed.outcome === "integrity_mismatch" && file.from === "cache"
          ? mirror.distrust(ask, file.published)
          : Effect.void
      )
    )
  else sendWhole(exchange, fileType, new Uint8Array(0))
  run.reading.onPiece()
  return { status: 200, outcome: "served", source: file.from, ...digest } satisfies PackageEnd
})

const fileType = "application/octet-stream"

/** Passes a file piece by piece. The last piece is sent when the hash of all of them is checked. */
const streamed = async (
  { exchange, mirror, own, run }: Desk,
  { body, bytes: stated, draft, published }: Mirror.OpenFile,
  count: (bytes: number) => void
): Promise<void> => {
  const { fileBytesMax } = mirror.config
  const { request, requestId, response } = exchange
  const tooLarge = () =>
    new RegistryFailed({ outcome: "too_large", detail: `the file is larger than ${fileBytesMax} bytes` })
  if ((stated ?? 0) > fileBytesMax) throw tooLarge()
  const hasher = published.hash === undefined ? undefined : createHash(published.hash.algorithm)
  const begin = () => {
    if (response.headersSent) return
    response.writeHead(200, {
      "content-type": fileType,
      ...(stated === undefined ? {} : { "content-length": String(stated) }),
      "x-request-id": requestId
    })
    request.resume()
  }
  let withheld: Uint8Array | undefined
  let bytes = 0
  for await (const piece of body) {
    run.reading.onPiece()
    bytes += piece.byteLength
    count(piece.byteLength)
    if (bytes > fileBytesMax) throw tooLarge()
    if (!own.take(piece.byteLength))
      throw new RegistryFailed({
        outcome: "run_limit",
        detail: `this sandbox has fetched ${mirror.config.runBytesMax} bytes, which is its limit`
      })
    hasher?.update(piece)
    await draft?.write(piece)
    if (withheld !== undefined) {
      begin()
      await written(response, withheld)
    }
    withheld = piece
    await Mirror.pause(own.waitMillis(performance.now()))
  }
  if (hasher !== undefined && hasher.digest("hex") !== published.hash?.hex)
    throw new RegistryFailed({
      outcome: "integrity_mismatch",
      detail: "the file is not the one that its registry describes"
    })
  await draft?.commit()
  begin()
  response.end(withheld)
}

/** Writes a piece, and waits until the client reads. */
const written = async (response: Exchange.Exchange["response"], piece: Uint8Array): Promise<void> => {
  if (response.destroyed)
    throw new RegistryFailed({ outcome: "registry_cut", detail: "the client disconnected" })
  if (response.write(piece)) return
  await new Promise<void>((resolve) => {
    const done = () => {
      response.off("drain", done)
      response.off("close", done)
      resolve()
    }
    response.once("drain", done)
    response.once("close", done)
  })
}

const statuses: Readonly<Record<RegistryFailed["outcome"], number>> = {
  not_found: 404,
  run_limit: 403,
  no_room: 503,
  registry_timeout: 504,
  registry_unreachable: 502,
  registry_cut: 502,
  registry_refused: 502,
  too_large: 502,
  integrity_mismatch: 502
}

/** Texts for an agent in place of those that can have addresses of the host's network. The audit has both. */
const said: Readonly<Partial<Record<RegistryFailed["outcome"], string>>> = {
  registry_unreachable: "the registry cannot be reached",
  registry_cut: "the registry's answer broke off",
  no_room: "the gateway is at capacity"
}

/** Answers a failure. An answer that has begun is broken off, so that its client sees that it is not complete. */
const fail = (
  { exchange }: Desk,
  { name, registry }: PackageRoute.PackageAsk,
  failed: RegistryFailed
): PackageEnd => {
  const status = statuses[failed.outcome]
  const { detail, outcome } = failed
  if (exchange.response.headersSent) {
    exchange.response.destroy()
    return { status: exchange.response.statusCode, outcome, detail }
  }
  respond(exchange, status, `${registry}:${name}: ${said[outcome] ?? detail}`)
  return { status, outcome, detail }
}

const refuse = (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  { code, message, status }: Pick<GatewayAnswers.GatewayError, "code" | "message" | "status">
): Effect.Effect<void> =>
  Effect.sync(() => {
    const { method, path, requestId } = exchange
    respond(exchange, status, message)
    run.refuse({ requestId, method, path: shortened(path), status, code, detail: message })
  })

/** Explains a refusal where package managers show it: npm in the body, pip and pnpm in the status line. */
const respond = (exchange: Exchange.Exchange, status: number, message: string): void => {
  if (exchange.response.headersSent || exchange.response.destroyed) return
  exchange.response.statusMessage = message.replaceAll(/[^\x20-\x7e]/gu, "?").slice(0, reasonCharactersMax)
  Exchange.answer(exchange, GatewayAnswers.json(status, { error: message }))
}

const reasonCharactersMax = 300

/** Interrupts a request when its client disconnects. */
const interruptedByClient =
  ({ response }: Exchange.Exchange) =>
  (served: Effect.Effect<void>): Effect.Effect<void> =>
    Effect.withFiber((fiber) => {
      response.once("close", () => {
        if (!response.writableFinished) fiber.interruptUnsafe()
      })
      return served
    })
