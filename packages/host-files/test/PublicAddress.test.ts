/** Public and private addresses. */
import * as PublicAddress from "@cogni/sandbox-host-files/PublicAddress"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"

const forbidden = [
  "0.0.0.0",
  "10.0.0.1",
  "100.64.0.1",
  "127.0.0.1",
  "127.255.255.254",
  "168.63.129.16",
  "169.254.169.254",
  "172.16.0.1",
  "172.31.255.255",
  "192.0.0.1",
  "192.168.1.1",
  "198.18.0.1",
  "224.0.0.1",
  "255.255.255.255",
  "::",
  "::1",
  "::ffff:10.0.0.1",
  "::ffff:8.8.8.8",
  "::127.0.0.1",
  "64:ff9b::a00:1",
  "2001::1",
  "2001:db8::1",
  "2002:7f00:1::",
  "fc00::1",
  "fd12:3456::1",
  "fe80::1",
  "fe80::1%eth0",
  "ff02::1",
  "not an address",
  "",
  "2130706433",
  "127.1"
]

const open = ["140.82.121.3", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:50c0:8000::153", "2a00:1450::1"]

describe("PublicAddress", () => {
  it("loopback, private, multicast and other special addresses are not public", () => {
    for (const address of forbidden) assert.isFalse(PublicAddress.isPublic(address), address)
    for (const address of open) assert.isTrue(PublicAddress.isPublic(address), address)
  })

  const Octet = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 }))

  it.prop(
    "no address of a private network is public, whatever its last octets",
    [Octet, Octet, Octet],
    ([a, b, c]) => {
      for (const address of [
        `10.${a}.${b}.${c}`,
        `127.${a}.${b}.${c}`,
        `192.168.${b}.${c}`,
        `169.254.${b}.${c}`,
        `172.${16 + (a % 16)}.${b}.${c}`,
        `100.${64 + (a % 64)}.${b}.${c}`,
        `${224 + (a % 32)}.${a}.${b}.${c}`,
        `::ffff:${a}.${b}.${c}.1`,
        `fd${a.toString(16).padStart(2, "0")}::${b.toString(16)}`
      ])
        assert.isFalse(PublicAddress.isPublic(address), address)
    }
  )
})
