/**
 * Decides which addresses the mirror may fetch from. Pure.
 *
 * Only origins that the host's operator named, also after a redirect and for addresses in a registry's metadata. A name
 * must not resolve to a private address, unless the operator allows it for this registry.
 */
import * as PublicAddress from "@cogni/sandbox-host-files/PublicAddress"
import * as Result from "effect/Result"

/** A registry, as the host reaches it. */
export interface Place {
  /** Without a slash at its end. */
  readonly url: string
  /** Origins of the registry and of its files. */
  readonly origins: ReadonlyArray<string>
  readonly allowPrivateAddresses: boolean
}

/** Redirects of one fetch. */
export const redirectsMax = 3

/** Returns the URL to fetch, or why it must not be fetched. */
export const allowed = (place: Place, address: string, from?: string): Result.Result<URL, string> => {
  const url = URL.parse(address, from)
  if (url === null) return Result.fail("the registry named an address that is not a URL")
  if (url.username !== "" || url.password !== "")
    return Result.fail("the registry named an address that holds a credential")
  if (url.protocol !== "https:" && url.protocol !== "http:")
    return Result.fail("the registry named an address that is neither https nor http")
  if (!place.origins.includes(url.origin))
    return Result.fail(`the registry named a file at ${url.origin}, which is not one of its origins`)
  const host = url.hostname.replace(/^\[|\]$/gu, "")
  if (isLiteral(host) && !mayConnect(place, [host]))
    return Result.fail(`the registry named the private address ${host}`)
  url.hash = ""
  return Result.succeed(url)
}

/** Returns where a redirect leads; `undefined` if the answer is no redirect. */
export const redirect = (
  place: Place,
  from: URL,
  answer: { readonly status: number; readonly location: string | undefined }
): Result.Result<URL, string> | undefined => {
  if (![301, 302, 303, 307, 308].includes(answer.status)) return undefined
  if (answer.location === undefined) return Result.fail("the registry redirected without an address")
  const next = allowed(place, answer.location, from.href)
  return Result.isSuccess(next) && from.protocol === "https:" && next.success.protocol !== "https:"
    ? Result.fail("the registry redirected from https to http")
    : next
}

/** Whether a connection may be made to the addresses that a name resolved to. All of them count. */
export const mayConnect = (
  place: Pick<Place, "allowPrivateAddresses">,
  addresses: ReadonlyArray<string>
): boolean => addresses.length > 0 && (place.allowPrivateAddresses || addresses.every(PublicAddress.isPublic))

const isLiteral = (host: string): boolean => /^[0-9.]+$|:/u.test(host)
