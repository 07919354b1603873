/**
 * An origin like GitHub Enterprise: repositories, the API, and a GitHub App with an installation for each owner. git is
 * refused without a token that the App was issued for that repository and that is still valid.
 */
import { Effect } from "effect"
import { generateKeyPairSync } from "node:crypto"
import type { ServerResponse } from "node:http"
import { connect } from "node:net"
import { join } from "node:path"
import { createServer } from "node:tls"
import { certify } from "../relay-corpus/Collector.ts"
import * as GitHubDouble from "./GitHubDouble.ts"
import * as GitOrigin from "./GitOrigin.ts"

export interface GitHubOrigin {
  readonly origin: GitOrigin.GitOrigin
  readonly api: GitHubDouble.GitHubDouble
}

/** Owners of the installations, by ID. */
export const installations = { 77: "acme", 78: "beta" } as const

export const acquire = Effect.gen(function* () {
  const api = yield* GitHubDouble.make({ prefix: "/api/v3", installations })
  const origin = yield* GitOrigin.acquire()
  origin.extra = (request, response) =>
    api.handle(request, response) || refuses(api, request.url ?? "", request.headers.authorization, response)
  return { origin, api } satisfies GitHubOrigin
})

/** Serves an origin over TLS as well, with a certificate of its own. Its files are written to a directory. */
export const secured = Effect.fnUntraced(function* ({ url }: GitOrigin.GitOrigin, directory: string) {
  const certificate = yield* Effect.promise(() => certify(directory))
  const server = yield* Effect.acquireRelease(
    Effect.callback<{ readonly url: string; readonly close: Effect.Effect<void> }>((resume) => {
      const open = new Set<() => void>()
      const listener = createServer(certificate, (secure) => {
        const plain = connect(Number(new URL(url).port), "127.0.0.1")
        const end = () => {
          secure.destroy()
          plain.destroy()
          open.delete(end)
        }
        open.add(end)
        secure.on("error", end).on("close", end)
        plain.on("error", end).on("close", end)
        secure.pipe(plain).pipe(secure)
      }).listen(0, "127.0.0.1", () => {
        const address = listener.address()
        const close = Effect.callback<void>((closed) => {
          for (const end of open) end()
          listener.close(() => closed(Effect.void))
        })
        resume(
          Effect.succeed({
            url: `https://127.0.0.1:${typeof address === "object" ? address?.port : 0}`,
            close
          })
        )
      })
    }),
    ({ close }) => close
  )
  return { url: server.url, authorityFile: join(directory, "cert.pem") }
})

/** The App's private key, PEM-encoded. The double accepts any. */
export const { privateKey } = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  publicKeyEncoding: { type: "spki", format: "pem" },
  privateKeyEncoding: { type: "pkcs8", format: "pem" }
})

/** Tokens with which git asked for the repositories of an owner. */
export const tokensOfGit = ({ api, origin }: GitHubOrigin, owner: string) =>
  origin.received
    .filter(({ path }) => path.startsWith(`/${owner}/`))
    .flatMap(({ authorization }) => tokenOf(api, authorization) ?? [])

/** Refuses a request of git without a valid token for the repository. */
const refuses = (
  api: GitHubDouble.GitHubDouble,
  url: string,
  authorization: string | undefined,
  response: ServerResponse
): boolean => {
  const [, repository] = /^\/([^/]+\/[^/]+)\.git\//u.exec(url) ?? []
  const used = tokenOf(api, authorization)
  if (used !== undefined && !used.revoked && used.repositories.includes(repository ?? "")) return false
  response.writeHead(401, { "www-authenticate": 'Basic realm="origin"' }).end()
  return true
}

const tokenOf = (api: GitHubDouble.GitHubDouble, authorization = "") => {
  const [, password = ""] = Buffer.from(authorization.replace("Basic ", ""), "base64")
    .toString()
    .split(/:(.*)/u)
  return api.tokens.find(({ token }) => token === password)
}
