/** Answers of a hostile registry of images. */
import { assert, describe, it } from "@effect/vitest"
import * as RegistryClient from "../src/internal/registry/RegistryClient.ts"

describe("redirectOf", () => {
  const from = new URL("https://registry.example.com/v2/a/blobs/x")
  const of = (location: string | null, status = 302) => RegistryClient.redirectOf(from, { location, status })

  it("leads to other hosts with https, which have the blobs of many registries", () => {
    assert.strictEqual(of("https://blobs.example.com/x")?.href, "https://blobs.example.com/x")
    assert.strictEqual(of("/y")?.href, "https://registry.example.com/y")
    assert.isUndefined(of("https://blobs.example.com/x", 200))
    const local = new URL("http://localhost:5000/v2/")
    assert.isDefined(RegistryClient.redirectOf(local, { status: 307, location: "/x" }))
  })

  it.each([
    "http://169.254.169.254/latest/meta-data/",
    "http://registry.example.com/",
    "file:///etc/passwd",
    null
  ])("refuses %s", (location) => {
    assert.throws(() => of(location), "it redirected")
  })
})
