/** Addresses that the package mirror may fetch from. */
import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import * as FetchRule from "../src/internal/packages/FetchRule.ts"

const place: FetchRule.Place = {
  url: "https://registry.example.com/npm",
  origins: ["https://registry.example.com", "https://files.example.com", "http://plain.example.com"],
  allowPrivateAddresses: false
}

const told = (result: Result.Result<URL, string>): string =>
  Result.match(result, { onFailure: (detail) => `refused: ${detail}`, onSuccess: ({ href }) => href })

const rows: ReadonlyArray<readonly [address: string, says: string]> = [
  ["https://registry.example.com/a", "https://registry.example.com/a"],
  ["https://files.example.com/a?sig=1#x", "https://files.example.com/a?sig=1"],
  ["https://FILES.example.com:443/a", "https://files.example.com/a"],
  [
    "https://files.example.com:8443/a",
    "refused: the registry named a file at https://files.example.com:8443, which is not one of its origins"
  ],
  [
    "http://registry.example.com/a",
    "refused: the registry named a file at http://registry.example.com, which is not one of its origins"
  ],
  [
    "https://files.example.com.evil.example/a",
    "refused: the registry named a file at https://files.example.com.evil.example, which is not one of its origins"
  ],
  ["https://user:pw@files.example.com/a", "refused: the registry named an address that holds a credential"],
  ["file:///etc/passwd", "refused: the registry named an address that is neither https nor http"],
  [
    "http://169.254.169.254/latest/meta-data/",
    "refused: the registry named a file at http://169.254.169.254, which is not one of its origins"
  ],
  ["not a url", "refused: the registry named an address that is not a URL"]
]

describe("FetchRule", () => {
  it.each(rows)("%s: %s", (address, says) => {
    assert.strictEqual(told(FetchRule.allowed(place, address)), says)
  })

  it("refuses a private address even if it is named as an origin", () => {
    for (const host of [
      "169.254.169.254",
      "10.0.0.1",
      "127.0.0.1",
      "[::1]",
      "[fe80::1]",
      "[::ffff:10.0.0.1]"
    ]) {
      const named = { ...place, origins: [new URL(`http://${host}`).origin] }
      assert.include(told(FetchRule.allowed(named, `http://${host}/`)), "private address", host)
      assert.isTrue(
        Result.isSuccess(FetchRule.allowed({ ...named, allowPrivateAddresses: true }, `http://${host}/`))
      )
    }
  })

  it("connects only if all addresses of a name are public", () => {
    assert.isTrue(FetchRule.mayConnect(place, ["1.1.1.1"]))
    assert.isFalse(FetchRule.mayConnect(place, ["1.1.1.1", "10.0.0.1"]))
    assert.isFalse(FetchRule.mayConnect(place, ["169.254.169.254"]))
    assert.isFalse(FetchRule.mayConnect(place, []))
    assert.isTrue(FetchRule.mayConnect({ allowPrivateAddresses: true }, ["10.0.0.1"]))
  })

  it("follows a redirect to an allowed origin, and never from https to http", () => {
    const from = new URL("https://registry.example.com/a")
    const redirect = (location: string | undefined, status = 302) =>
      FetchRule.redirect(place, from, { status, location })
    assert.isUndefined(redirect(undefined, 200))
    assert.strictEqual(told(redirect("/b")!), "https://registry.example.com/b")
    assert.strictEqual(told(redirect("https://files.example.com/b", 307)!), "https://files.example.com/b")
    assert.include(told(redirect("http://plain.example.com/b")!), "from https to http")
    assert.include(told(redirect("http://169.254.169.254/")!), "not one of its origins")
    assert.include(told(redirect(undefined)!), "without an address")
  })

  it.prop("no address outside the named origins is ever fetched", [Schema.String], ([text]) => {
    for (const address of [text, `https://${text}`, `//${text}`, `https://files.example.com${text}`]) {
      const found = FetchRule.allowed(place, address, "https://registry.example.com/a")
      if (Result.isSuccess(found)) assert.include(place.origins, found.success.origin)
    }
  })
})
