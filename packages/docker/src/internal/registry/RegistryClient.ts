/**
 * Reads manifests and blobs of a registry, over the OCI distribution API, without credentials.
 *
 * Reads only what the check of a signature needs: small documents, each with a limit in bytes and time. A registry may
 * require an anonymous token first.
 */
import { ContainerFailed } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Option, Schema } from "effect"
import type { ImageReference } from "./ImageReference.ts"

/** Timeout of one request in seconds. */
const requestSecondsMax = 30

/** Largest document. A manifest of signatures has a few kilobytes. */
const documentBytesMax = 1024 * 1024

const manifestTypes =
  "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"

const Token = Schema.fromJsonString(
  Schema.Struct({ token: Schema.optional(Schema.String), access_token: Schema.optional(Schema.String) })
)

export interface RegistryClient {
  /** Returns a document by its path below the repository, or `undefined` if the registry does not have it. */
  readonly read: (path: string) => Effect.Effect<Uint8Array | undefined, ContainerFailed>
}

export const make = (reference: ImageReference): RegistryClient => {
  let token: string | undefined
  const get = async (path: string, signal: AbortSignal) => {
    const url = `${reference.origin}/v2/${reference.repository}/${path}`
    const first = await request(url, token, signal)
    if (first.status !== 401 || token !== undefined) return first
    token = await tokenOf(first, reference, signal)
    return token === undefined ? first : request(url, token, signal)
  }
  return {
    read: (path) =>
      Effect.tryPromise({
        try: async (signal) => {
          const response = await get(
            path,
            AbortSignal.any([signal, AbortSignal.timeout(requestSecondsMax * 1000)])
          )
          if (response.status === 404) return undefined
          if (!response.ok) throw new Error(`it answered ${response.status}`)
          return await limited(response)
        },
        catch: (thrown) =>
          new ContainerFailed({
            operation: "pull",
            detail: `the registry ${reference.origin} cannot be read: ${messageOf(thrown)}`,
            remedy:
              "Check the address. Signatures are read without credentials: pull an image of a private registry yourself (docker pull)"
          })
      })
  }
}

/** Redirects of one request: a registry may have its blobs on other hosts. */
const redirectsMax = 5

/**
 * Returns where a redirect leads; `undefined` if the answer is no redirect. Only https is followed from https: services
 * that answer every program of a host, such as a cloud's metadata, have http.
 */
export const redirectOf = (
  from: URL,
  { location, status }: { readonly status: number; readonly location: string | null }
): URL | undefined => {
  if (![301, 302, 303, 307, 308].includes(status)) return undefined
  const next = location === null ? null : URL.parse(location, from.href)
  if (next === null) throw new Error("it redirected without an address")
  if (next.protocol !== "https:" && next.protocol !== from.protocol)
    throw new Error(`it redirected from ${from.protocol}// to ${next.protocol}//`)
  return next
}

const request = async (
  address: string | URL,
  token: string | undefined,
  signal: AbortSignal
): Promise<Response> => {
  const first = new URL(address)
  let url = first
  for (let redirects = 0; redirects <= redirectsMax; redirects++) {
    // A token is only for the registry itself.
    const authorization =
      token === undefined || url.origin !== first.origin ? {} : { authorization: `Bearer ${token}` }
    const response = await fetch(url, {
      signal,
      redirect: "manual",
      headers: { accept: manifestTypes, ...authorization }
    })
    const { headers, status } = response
    const next = redirectOf(url, { status, location: headers.get("location") })
    if (next === undefined) return response
    await response.body?.cancel()
    url = next
  }
  throw new Error(`it redirected more than ${redirectsMax} times`)
}

/** Asks for the token that a registry requires of anonymous readers, if it names a server for it. */
const tokenOf = async (
  { headers }: Response,
  { origin, repository }: ImageReference,
  signal: AbortSignal
): Promise<string | undefined> => {
  const challenge = headers.get("www-authenticate") ?? ""
  const parameter = (name: string) => new RegExp(`\\b${name}="([^"]*)"`, "u").exec(challenge)?.[1]
  const realm = parameter("realm")
  if (!/^bearer /iu.test(challenge) || realm === undefined || !URL.canParse(realm)) return undefined
  const url = new URL(realm)
  if (url.protocol !== "https:" && !origin.startsWith("http:")) return undefined
  const service = parameter("service")
  if (service !== undefined) url.searchParams.set("service", service)
  url.searchParams.set("scope", `repository:${repository}:pull`)
  const response = await request(url, undefined, signal)
  if (!response.ok) throw new Error(`its token server answered ${response.status}`)
  const decoded = Schema.decodeUnknownOption(Token)(new TextDecoder().decode(await limited(response)))
  return Option.isNone(decoded) ? undefined : (decoded.value.token ?? decoded.value.access_token)
}

const limited = async (response: Response): Promise<Uint8Array> => {
  const pieces: Array<Uint8Array> = []
  let bytes = 0
  for await (const piece of response.body ?? []) {
    bytes += piece.byteLength
    if (bytes > documentBytesMax) throw new Error(`its document is larger than ${documentBytesMax} bytes`)
    pieces.push(piece)
  }
  return Buffer.concat(pieces)
}

const messageOf = (thrown: unknown): string => {
  const { cause, message } = thrown as Error & { readonly cause?: { readonly message?: string } }
  return (cause?.message ?? message ?? String(thrown)).slice(0, 300)
}
