import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import * as Upstream from "../src/Upstream.ts"

const host = (url: string) => Upstream.address({ type: "host", url })

describe("Upstream", () => {
  it.each([
    [
      "http://127.0.0.1:4000",
      { secure: false, host: "127.0.0.1", port: 4000, authority: "127.0.0.1:4000", basePath: "" }
    ],
    ["http://localhost/", { port: 80, authority: "localhost", basePath: "" }],
    ["https://api.example.com/v1", { secure: true, port: 443, authority: "api.example.com", basePath: "" }],
    ["https://api.example.com/v1/", { basePath: "" }],
    ["https://host/proxy/v1", { basePath: "/proxy" }],
    ["https://host:8443/litellm", { port: 8443, basePath: "/litellm", display: "https://host:8443/litellm" }],
    ["http://[::1]:4000/", { host: "::1", port: 4000, authority: "[::1]:4000" }]
  ])("parses %s", (url, expected) => {
    assert.deepInclude(Result.getOrThrow(host(url)), expected)
  })

  it.each([
    ["", "is not a URL"],
    ["127.0.0.1:4000", "is not a URL"],
    ["localhost:4000", "is neither http nor https"],
    ["ftp://x", "is neither http nor https"],
    ["http://user:secret@host", "holds a credential"],
    ["http://host/?key=secret", "has a query or a fragment"],
    ["http://host/a;b", "has a path with characters other than"],
    ["http://host/$uri", "has a path with characters other than"],
    ["http://host/a%20b", "has a path with characters other than"],
    ["http://host//x", "has a path with characters other than"]
  ])("refuses %s and says why, without the secret", (url, problem) => {
    const refused = host(url)
    assert.isTrue(Result.isFailure(refused))
    if (!Result.isFailure(refused)) return
    assert.include(refused.failure.message, problem)
    assert.notInclude(`${refused.failure} ${JSON.stringify(refused.failure)}`, "secret")
  })

  it("refuses TLS inside an internal network", () => {
    assert.isTrue(
      Result.isFailure(Upstream.address({ type: "container", url: "https://litellm:4000", networkName: "n" }))
    )
    assert.isTrue(
      Result.isSuccess(Upstream.address({ type: "container", url: "http://litellm:4000", networkName: "n" }))
    )
  })

  it.prop("accepts only paths and authorities with few characters", [Schema.String], ([text]) => {
    for (const url of [text, `http://${text}`, `http://host/${text}`]) {
      const parsed = host(url)
      if (Result.isFailure(parsed)) continue
      assert.match(parsed.success.basePath, /^[A-Za-z0-9._~/-]*$/u)
      assert.match(parsed.success.authority, /^[A-Za-z0-9._:[\]-]+$/u)
    }
  })
})
