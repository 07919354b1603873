/**
 * Decides which servers callers may name, and which addresses an origin may have. Pure.
 *
 * An origin's name is resolved once. All of its addresses must be public, unless private ones are allowed, and git
 * connects only to these, so DNS rebinding has no effect.
 */
import { isPublic } from "@cogni/sandbox-host-files/PublicAddress"
import { Result } from "effect"
import { NetAddress } from "effect/net"

/** A server whose repositories callers may name. It is reached over https. */
export interface ForgeHost {
  /** `git.example.com`, or `git.example.com:8443` if its port is not 443. */
  readonly host: string
  /**
   * Whether its addresses may be private or belong to this host. A caller who may name its repositories then reaches
   * any service at those addresses that speaks TLS under that name.
   */
  readonly allowPrivateAddresses?: boolean | undefined
}

/**
 * Servers, as {@link serverHost} returns them, whose addresses may be private; `any` if the caller is this host's user.
 */
export type PrivateServers = "any" | ReadonlyArray<string>

export const defaultForges: ReadonlyArray<ForgeHost> = [{ host: "github.com" }, { host: "gitlab.com" }]

/** Maximum number of addresses to use per name. */
export const addressesMax = 16

/** Returns the host of a URL in lower case, with the port unless it is 443. */
export const serverHost = (url: string): string => new URL(url).host

/** Returns the forge whose repository a URL names, or `undefined` if it is not one of these. */
export const forgeOf = (url: string, forges: ReadonlyArray<ForgeHost>): ForgeHost | undefined => {
  if (!url.startsWith("https://") || !URL.canParse(url)) return undefined
  return forges.find(({ host }) => serverHost(url) === serverHost(`https://${host}`))
}

/** Whether a text is a loopback address. */
export const isLoopback = (text: string): boolean => {
  const address = Result.getOrUndefined(NetAddress.ipFromString(text))
  return address !== undefined && NetAddress.isLoopback(address)
}

/**
 * Returns the addresses to connect to. Returns `undefined` if the list is empty or any of them is not allowed, because
 * the relay cannot control which one a connection uses.
 */
export const allowed = (
  url: string,
  addresses: ReadonlyArray<string>,
  own: ReadonlyArray<string>,
  privateServers: PrivateServers
): ReadonlyArray<string> | undefined => {
  if (addresses.length === 0) return undefined
  // Plain http may reach only this host, whatever the name resolves to.
  if (url.startsWith("http://")) return addresses.every(isLoopback) ? addresses : undefined
  const mayBePrivate = privateServers === "any" || privateServers.includes(serverHost(url))
  const isAllowed = (address: string) => mayBePrivate || (isPublic(address) && !own.includes(address))
  return addresses.every(isAllowed) ? addresses.slice(0, addressesMax) : undefined
}

/** Returns the value of `http.curloptResolve`, which tells git's curl the addresses of a server. */
export const resolveOption = (url: string, addresses: ReadonlyArray<string>): string => {
  const { hostname, port, protocol } = new URL(url)
  const bracketed = addresses.map((address) => (address.includes(":") ? `[${address}]` : address))
  return `${hostname}:${port === "" ? (protocol === "https:" ? 443 : 80) : port}:${bracketed.join(",")}`
}

/** Whether a host is reached without the proxy, as curl reads `NO_PROXY`. */
export const isDirect = (hostname: string, noProxy: string | undefined): boolean =>
  (noProxy ?? "")
    .toLowerCase()
    .split(/[\s,]+/u)
    .map((name) => name.replace(/^\./u, ""))
    .some((name) => name === "*" || (name !== "" && (hostname === name || hostname.endsWith(`.${name}`))))
