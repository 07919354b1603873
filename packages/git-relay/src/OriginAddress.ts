/**
 * Which servers a relay may be asked to speak to by somebody else, and which addresses an origin may have. Pure.
 *
 * An origin's name is resolved once, every address that it has must be one of the public internet, and git connects to
 * those addresses and to no others: a name that changes its address afterwards changes nothing.
 */
import { Result } from "effect"
import { IpNetwork, NetAddress } from "effect/net"

/** A server with repositories that callers may name. Reached over https. */
export interface ForgeHost {
  /** `git.example.com`, or `git.example.com:8443` where it is not port 443. */
  readonly host: string
  /**
   * Its addresses may be private, or this host's own. Whoever may name its repositories reaches whatever listens at
   * those addresses, as far as it speaks TLS under that name.
   */
  readonly allowPrivateAddresses?: boolean | undefined
}

/** Servers, as {@link serverHost} has them, whose addresses may be private; `any` where the caller is this host's user. */
export type PrivateServers = "any" | ReadonlyArray<string>

export const defaultForges: ReadonlyArray<ForgeHost> = [{ host: "github.com" }, { host: "gitlab.com" }]

/** How many addresses of one name are used. */
export const addressesMax = 16

/** Host of a URL in lower case, with the port unless it is 443. */
export const serverHost = (url: string): string => new URL(url).host

/** The forge whose repository a URL names, if it is one of these. */
export const forgeOf = (url: string, forges: ReadonlyArray<ForgeHost>): ForgeHost | undefined => {
  if (!url.startsWith("https://") || !URL.canParse(url)) return undefined
  return forges.find(({ host }) => serverHost(url) === serverHost(`https://${host}`))
}

/** Whether a text is an address of the public internet that one machine can have. */
export const isPublic = (text: string): boolean => {
  const address = Result.getOrUndefined(NetAddress.ipFromString(text))
  return (
    address !== undefined &&
    (NetAddress.isIpv4Address(address)
      ? !within(special4, address)
      : within([globalUnicast6], address) && !within(special6, address))
  )
}

/** Whether a text is an address of this host's loopback. */
export const isLoopback = (text: string): boolean => {
  const address = Result.getOrUndefined(NetAddress.ipFromString(text))
  return address !== undefined && NetAddress.isLoopback(address)
}

/**
 * The addresses to connect to, if an origin may have all of them. One that it may not have refuses all: which of them
 * a connection would use is not ours to say.
 */
export const allowed = (
  url: string,
  addresses: ReadonlyArray<string>,
  own: ReadonlyArray<string>,
  privateServers: PrivateServers
): ReadonlyArray<string> | undefined => {
  if (addresses.length === 0) return undefined
  // Plain http is for this host only, whatever its names lead to.
  if (url.startsWith("http://")) return addresses.every(isLoopback) ? addresses : undefined
  const mayBePrivate = privateServers === "any" || privateServers.includes(serverHost(url))
  const isAllowed = (address: string) => mayBePrivate || (isPublic(address) && !own.includes(address))
  return addresses.every(isAllowed) ? addresses.slice(0, addressesMax) : undefined
}

/** What tells git's curl where a server is: `http.curloptResolve`. */
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

/** IANA's registry of special IPv4 addresses: unspecified, private, shared, loopback, link-local, tests, multicast. */
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

/** All that is given out of IPv6: mapped, translated, unique local, link-local and multicast addresses are outside. */
const globalUnicast6 = IpNetwork.fromStringUnsafe("2000::/3")

/** Of that, what leads into IPv4 (Teredo, 6to4), and what is for tests and protocols. */
const special6 = networks("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
