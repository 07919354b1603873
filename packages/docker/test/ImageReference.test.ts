/** Only a reference that names its content can be pulled. */
import { assert, describe, it } from "@effect/vitest"
import { parse } from "../src/internal/registry/ImageReference.ts"

const digest = `sha256:${"ab".repeat(32)}`

describe("image reference", () => {
  it("has a registry, a repository and a digest", () => {
    assert.deepStrictEqual(parse(`ghcr.io/acme/agent@${digest}`), {
      name: "ghcr.io/acme/agent",
      origin: "https://ghcr.io",
      repository: "acme/agent",
      digest
    })
    assert.deepStrictEqual(parse(`registry.acme.example:5000/agent:1.2@${digest}`), {
      name: "registry.acme.example:5000/agent",
      origin: "https://registry.acme.example:5000",
      repository: "agent",
      digest
    })
  })

  it("is of Docker Hub without a registry", () => {
    assert.strictEqual(parse(`debian@${digest}`)?.repository, "library/debian")
    assert.strictEqual(parse(`docker.io/acme/agent@${digest}`)?.origin, "https://registry-1.docker.io")
  })

  it("is read over plain HTTP only from this host", () => {
    for (const host of ["localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"])
      assert.strictEqual(parse(`${host}/agent@${digest}`)?.origin, `http://${host}`)
    for (const host of ["localhost.acme.example", "128.0.0.1:5000", "127.0.0.1.acme.example"])
      assert.strictEqual(parse(`${host}/agent@${digest}`)?.origin, `https://${host}`)
  })

  it("without a digest is refused, and so is a path that leaves the repository", () => {
    for (const reference of [
      "",
      "debian",
      "debian:bookworm",
      `debian@sha256:${"ab".repeat(31)}`,
      `debian@sha256:${"AB".repeat(32)}`,
      `debian@sha512:${"ab".repeat(32)}`,
      `ghcr.io/../agent@${digest}`,
      `ghcr.io/acme/../agent@${digest}`,
      `ghcr.io/acme//agent@${digest}`,
      `https://ghcr.io/agent@${digest}`,
      `user:pass@ghcr.io/agent@${digest}`,
      `ghcr.io/agent?x=1@${digest}`,
      ` ghcr.io/agent@${digest}`,
      `${"a/".repeat(300)}b@${digest}`
    ])
      assert.isUndefined(parse(reference), reference)
  })
})
