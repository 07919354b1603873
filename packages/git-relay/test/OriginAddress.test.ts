/** Addresses that an origin may have, and servers that callers may name. */
import * as OriginAddress from "@cogni/sandbox-git-relay/OriginAddress"
import { assert, describe, it } from "@effect/vitest"

const url = "https://git.example.com/acme/app"

describe("OriginAddress", () => {
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
