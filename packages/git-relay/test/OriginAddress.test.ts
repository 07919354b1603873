/** Addresses that an origin may have, and servers that callers may name. */
import * as OriginAddress from "@cogni/sandbox-git-relay/OriginAddress"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"

const forbidden = [
  "0.0.0.0",
  "10.0.0.1",
  "100.64.0.1",
  "127.0.0.1",
  "127.255.255.254",
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

const url = "https://git.example.com/acme/app"

describe("OriginAddress", () => {
  it("loopback, private, multicast and other special addresses are not public", () => {
    for (const address of forbidden) assert.isFalse(OriginAddress.isPublic(address), address)
    for (const address of open) assert.isTrue(OriginAddress.isPublic(address), address)
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
        assert.isFalse(OriginAddress.isPublic(address), address)
    }
  )

  it("refuses all addresses of an origin if one of them is not allowed", () => {
    const own = ["140.82.121.3"]
    const { allowed } = OriginAddress
    assert.deepStrictEqual(allowed(url, ["1.1.1.1"], own, []), ["1.1.1.1"])
    assert.isUndefined(allowed(url, ["1.1.1.1", "10.0.0.1"], own, []))
    assert.isUndefined(allowed(url, ["1.1.1.1", "140.82.121.3"], own, []), "this host's own, though public")
    assert.isUndefined(allowed(url, [], own, "any"))
    assert.deepStrictEqual(allowed(url, ["10.0.0.1"], own, ["git.example.com"]), ["10.0.0.1"])
    assert.isUndefined(allowed(url, ["10.0.0.1"], own, ["git.example.com:8443", "example.com"]))
    assert.deepStrictEqual(allowed("http://localhost:1/a/b", ["127.0.0.1", "::1"], own, []), [
      "127.0.0.1",
      "::1"
    ])
    assert.isUndefined(allowed("http://localhost:1/a/b", ["1.1.1.1"], own, "any"))
  })

  it("matches a forge by its host, and by its port unless that is 443", () => {
    const forges = [{ host: "github.com" }, { host: "Git.example.com:8443" }]
    const known = (text: string) => OriginAddress.forgeOf(text, forges) !== undefined
    for (const text of [
      "https://github.com/a/b",
      "https://GitHub.com:443/a/b",
      "https://git.example.com:8443/a/b"
    ])
      assert.isTrue(known(text), text)
    for (const text of [
      "https://github.com:8443/a/b",
      "https://git.example.com/a/b",
      "https://github.com.evil.example/a/b",
      "https://evil-github.com/a/b",
      "http://github.com/a/b",
      "https://github.com@10.0.0.1/a/b",
      "/srv/app"
    ])
      assert.isFalse(known(text), text)
  })

  it("reads NO_PROXY as curl does", () => {
    const { isDirect } = OriginAddress
    assert.isTrue(isDirect("git.example.com", "a.b, .example.com"))
    assert.isTrue(isDirect("example.com", "example.com"))
    assert.isTrue(isDirect("anything", "*"))
    assert.isFalse(isDirect("badexample.com", "example.com"))
    assert.isFalse(isDirect("git.example.com", undefined))
  })
})
