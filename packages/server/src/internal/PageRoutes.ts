/**
 * The routes of the page: its built files, which need no grant, under a policy that runs and loads nothing else.
 *
 * Text from an agent can contain any markup. The page renders it as text, and the policy is the second wall: no inline
 * script or style, no other host, no string that becomes code.
 */
import { Effect, FileSystem, Path } from "effect"
import {
  HttpRouter,
  HttpServerRequest,
  HttpServerRespondable,
  HttpServerResponse,
  HttpStaticServer
} from "effect/http"
import * as Problem from "./Problem.ts"

/** Where browsers find the page. */
export const prefix = "/sandbox"

/** The policy of the page. */
export const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; " +
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
  "require-trusted-types-for 'script'; trusted-types 'none'"

const secured = HttpServerResponse.setHeaders({
  "content-security-policy": policy,
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
})

/** Statuses of answers with a file, or that the browser has the file. */
const fileStatuses = new Set([200, 206, 304])

/**
 * A file below `assets/` has its hash in its name. The others are checked at each visit. A missing file is never
 * cached: during an update, another server may have it already.
 */
const cached = (isAsset: boolean) => (response: HttpServerResponse.HttpServerResponse) =>
  HttpServerResponse.setHeader(
    response,
    "cache-control",
    !fileStatuses.has(response.status)
      ? "no-store"
      : isAsset
        ? "public, max-age=31536000, immutable"
        : "no-cache"
  )

const notBuilt = Problem.toResponse(
  Problem.make(
    "unavailable",
    "PageNotBuilt",
    "this checkout has no built page. Run: ./dev page, or start the server with: ./dev cli serve"
  )
)

/** Serves the files of a directory, which Vite makes of the package `page`. */
export const layer = (directory: string) =>
  HttpRouter.use((router) =>
    Effect.gen(function* () {
      const fileSystem = yield* FileSystem.FileSystem
      const index = (yield* Path.Path).join(directory, "index.html")
      const filesOf = (spa: boolean) => Effect.orDie(HttpStaticServer.make({ root: directory, spa }))
      const assets = yield* filesOf(false)
      const pages = yield* filesOf(true)
      const answer = Effect.gen(function* () {
        // At each request, because a checkout can be built while its server runs.
        const isBuilt = yield* Effect.orElseSucceed(fileSystem.exists(index), () => false)
        if (!isBuilt) return notBuilt
        const { url } = yield* HttpServerRequest.HttpServerRequest
        const isAsset = url.startsWith("/assets/")
        const found = yield* (isAsset ? assets : pages).pipe(Effect.catch(HttpServerRespondable.toResponse))
        return cached(isAsset)(found)
      })
      yield* router.prefixed(prefix).add("GET", "/*", Effect.map(answer, secured))
    })
  )
