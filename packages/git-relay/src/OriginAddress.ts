/**
 * Decides which servers callers may name, and which addresses an origin may have. Pure.
 *
 * An origin's name is resolved once. All of its addresses must be public, unless private ones are allowed, and git
 * connects only to these, so DNS rebinding has no effect.
 */
import { Result } from "effect"
import { IpNetwork, NetAddress } from "effect/net"

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

/** Whether a text is a unicast address on the public internet. */
export const isPublic = (text: string): boolean => {
  const address = Result.getOrUndefined(NetAddress.ipFromString(text))
  return (
    address !== undefined &&
    (NetAddress.isIpv4Address(address)
      ? !within(special4, address)
      : within([globalUnicast6], address) && !within(special6, address))
  )
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

const networks = (...texts: ReadonlyArray<string>) => texts.map((text) => IpNetwork.fromStringUnsafe(text))

const within = (ranges: ReadonlyArray<IpNetwork.IpNetwork>, address: NetAddress.IpAddress): boolean =>
  ranges.some((range) => IpNetwork.contains(range as never, address as never))

/** IANA's special-purpose IPv4 ranges: unspecified, private, shared, loopback, link-local, tests, multicast. */
const special4 = networks(
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.31.196.0/24",
  "192.52.193.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "192.175.48.0/24",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4"
)

/**
 * Allocated global unicast IPv6. Mapped, translated, unique local, link-local and multicast addresses are outside it.
 */
const globalUnicast6 = IpNetwork.fromStringUnsafe("2000::/3")

/** Ranges of it that lead to IPv4 (Teredo, 6to4), and ranges for tests and protocols. */
const special6 = networks("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
