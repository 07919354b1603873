/** Tells public addresses from those of private networks, of this host, and of tests. Pure. */
import * as net from "node:net"

/** Whether a text is a unicast address on the public internet. */
export const isPublic = (text: string): boolean => {
  switch (net.isIP(text)) {
    case 4:
      return !special4.check(text, "ipv4")
    case 6:
      // A zone, as in fe80::1%eth0, belongs to an address of one link.
      return !text.includes("%") && globalUnicast6.check(text, "ipv6") && !special6.check(text, "ipv6")
    default:
      return false
  }
}

const networks = (family: "ipv4" | "ipv6", ...texts: ReadonlyArray<string>): net.BlockList => {
  const list = new net.BlockList()
  for (const text of texts) {
    const [address = "", length] = text.split("/")
    list.addSubnet(address, Number(length), family)
  }
  return list
}

/** IANA's special-purpose IPv4 ranges, and a host's agent: unspecified, private, shared, loopback, link-local, tests. */
const special4 = networks(
  "ipv4",
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  // The agent of the host on virtual machines of Azure.
  "168.63.129.16/32",
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
const globalUnicast6 = networks("ipv6", "2000::/3")

/** Ranges of it that lead to IPv4 (Teredo, 6to4), and ranges for tests and protocols. */
const special6 = networks("ipv6", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
