/** Metadata of registries, as the sandbox gets it and as the mirror remembers it. */
import { assert, describe, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import { Schema } from "effect"
import * as CargoCrate from "../src/internal/packages/CargoCrate.ts"
import * as FileHash from "../src/internal/packages/FileHash.ts"
import { filesMax, type MetadataRequest } from "../src/internal/packages/Metadata.ts"
import * as MetadataRewrite from "../src/internal/packages/MetadataRewrite.ts"
import * as PackageIndex from "../src/internal/packages/PackageIndex.ts"

const sha512 = createHash("sha512").update("x").digest()
const sha256 = createHash("sha256").update("x").digest("hex")
const sha1 = createHash("sha1").update("x").digest("hex")

const request = (over: Partial<MetadataRequest> & { readonly text: string }): MetadataRequest => {
  const { text, ...rest } = over
  return {
    registry: "npm",
    name: "left-pad",
    base: "http://localhost:8080/packages/npm",
    from: "https://registry.example.com/left-pad",
    contentType: "application/json",
    body: new TextEncoder().encode(text),
    ...rest
  }
}

const rewritten = (given: MetadataRequest) => {
  const outcome = MetadataRewrite.rewrite(given)
  assert.strictEqual(outcome._tag, "Rewritten", JSON.stringify(outcome))
  if (outcome._tag !== "Rewritten") throw new Error("not rewritten")
  return { ...outcome, text: new TextDecoder().decode(outcome.body), files: new Map(outcome.files) }
}

const refused = (given: MetadataRequest): string => {
  const outcome = MetadataRewrite.rewrite(given)
  return outcome._tag === "Unreadable" ? outcome.detail : outcome._tag
}

describe("FileHash", () => {
  it("reads the strongest hash that a registry states", () => {
    const both = `sha1-${Buffer.from(sha1, "hex").toString("base64")} sha512-${sha512.toString("base64")}`
    assert.deepStrictEqual(FileHash.ofIntegrity(both), { algorithm: "sha512", hex: sha512.toString("hex") })
    assert.deepStrictEqual(FileHash.ofRecord({ md5: "0", sha256: sha256.toUpperCase() }), {
      algorithm: "sha256",
      hex: sha256
    })
  })

  it.each([
    "",
    "sha512-",
    "sha512-AAAA",
    "md5-AAAA",
    "sha512-../../etc/passwd",
    7,
    null,
    `sha512-${"A".repeat(5000)}`
  ])("takes %s for no hash", (text) => {
    assert.isUndefined(FileHash.ofIntegrity(text))
  })

  it("keeps no file under a SHA-1", () => {
    assert.isFalse(FileHash.isCacheable({ algorithm: "sha1", hex: sha1 }))
    assert.isTrue(FileHash.isCacheable({ algorithm: "sha256", hex: sha256 }))
  })

  it.prop("a hash is a plain name of a file", [Schema.String], ([text]) => {
    for (const hash of [FileHash.ofIntegrity(text), FileHash.ofHex("sha256", text)])
      if (hash !== undefined) assert.match(FileHash.format(hash), /^sha\d+-[0-9a-f]+$/u)
  })
})

describe("npm metadata", () => {
  const packument = {
    name: "left-pad",
    "dist-tags": { latest: "1.0.0" },
    time: { "1.0.0": "2020" },
    versions: {
      "1.0.0": {
        name: "left-pad",
        dependencies: { a: "1" },
        dist: {
          tarball: "https://files.example.com/odd/place.tgz",
          integrity: `sha512-${sha512.toString("base64")}`,
          shasum: sha1
        }
      },
      "0.9.0": { dist: { tarball: "https://files.example.com/old.tgz", shasum: sha1 } },
      "0.8.0": { dist: {} },
      "../../0.7.0": { dist: { tarball: "https://files.example.com/x.tgz" } }
    }
  }

  it("leads every file to the mirror, and remembers where it is", () => {
    const { files, text } = rewritten(request({ text: JSON.stringify(packument) }))
    const base = "http://localhost:8080/packages/npm/left-pad/-"
    assert.deepStrictEqual(JSON.parse(text), {
      ...packument,
      versions: {
        "1.0.0": {
          ...packument.versions["1.0.0"],
          dist: { ...packument.versions["1.0.0"].dist, tarball: `${base}/left-pad-1.0.0.tgz` }
        },
        "0.9.0": { dist: { tarball: `${base}/left-pad-0.9.0.tgz`, shasum: sha1 } }
      }
    })
    assert.deepStrictEqual(
      [...files],
      [
        [
          "left-pad-1.0.0.tgz",
          {
            url: "https://files.example.com/odd/place.tgz",
            hash: { algorithm: "sha512", hex: sha512.toString("hex") }
          }
        ],
        [
          "left-pad-0.9.0.tgz",
          { url: "https://files.example.com/old.tgz", hash: { algorithm: "sha1", hex: sha1 } }
        ]
      ]
    )
  })

  it("names the file of a scoped package without its scope", () => {
    const scoped = { ...packument, name: "@acme/left-pad" }
    const { files, text } = rewritten(request({ name: "@acme/left-pad", text: JSON.stringify(scoped) }))
    assert.isTrue(files.has("left-pad-1.0.0.tgz"))
    assert.include(text, "http://localhost:8080/packages/npm/@acme/left-pad/-/left-pad-1.0.0.tgz")
  })

  it("refuses metadata of another package", () => {
    const about = "the registry's answer is about another package"
    assert.strictEqual(refused(request({ name: "@acme/left-pad", text: JSON.stringify(packument) })), about)
    assert.strictEqual(refused(request({ text: JSON.stringify({ ...packument, name: undefined }) })), about)
  })

  it.each(["", "[]", "null", "{}", "<html>", '{"versions":7}', "[".repeat(100_000)])(
    "refuses an answer that is not metadata",
    (text) => {
      assert.strictEqual(
        refused(request({ text })),
        "the registry's answer is not the metadata of an npm package"
      )
    }
  )
})

describe("PyPI metadata", () => {
  const pypi = { registry: "pypi", name: "requests", base: "http://localhost:8080/packages/pypi" } as const
  const from = "https://pypi.example.com/simple/requests/"
  const expected = {
    meta: { "api-version": "1.0" },
    name: "requests",
    files: [
      {
        filename: "requests-2.0-py3-none-any.whl",
        url: "http://localhost:8080/packages/pypi/files/requests/requests-2.0-py3-none-any.whl",
        hashes: { sha256 },
        "requires-python": ">=3.8",
        yanked: "broken",
        "core-metadata": { sha256 }
      }
    ]
  }
  const url = "https://files.example.com/ab/requests-2.0-py3-none-any.whl"

  it("is rebuilt from JSON", () => {
    const text = JSON.stringify({
      name: "requests",
      files: [
        {
          filename: "requests-2.0-py3-none-any.whl",
          url,
          hashes: { sha256 },
          "requires-python": ">=3.8",
          yanked: "broken",
          "core-metadata": { sha256 },
          provenance: "https://evil.example"
        },
        { filename: "../../evil.whl", url, hashes: {} },
        { filename: "x.whl.metadata", url, hashes: {} }
      ]
    })
    const { files, text: said } = rewritten(
      request({ ...pypi, from, text, contentType: "application/vnd.pypi.simple.v1+json" })
    )
    assert.deepStrictEqual(JSON.parse(said), expected)
    assert.deepStrictEqual(
      [...files.keys()],
      ["requests-2.0-py3-none-any.whl", "requests-2.0-py3-none-any.whl.metadata"]
    )
    assert.strictEqual(files.get("requests-2.0-py3-none-any.whl.metadata")?.url, `${url}.metadata`)
  })

  it("is rebuilt from HTML, with relative links", () => {
    const text = `<!DOCTYPE html><html><body>
      <a href="../../ab/requests-2.0-py3-none-any.whl#sha256=${sha256}" data-requires-python="&gt;=3.8"
         data-yanked="broken" data-dist-info-metadata="sha256=${sha256}">requests-2.0-py3-none-any.whl</a>
      <script>alert(1)</script></body></html>`
    const { files, text: said } = rewritten(
      request({ ...pypi, from, text, contentType: "text/html; charset=utf-8" })
    )
    assert.deepStrictEqual(JSON.parse(said), expected)
    assert.strictEqual(
      files.get("requests-2.0-py3-none-any.whl")?.url,
      "https://pypi.example.com/ab/requests-2.0-py3-none-any.whl"
    )
  })

  it("reads HTML in time proportional to its length", () => {
    const text = `<html>${"<a ".repeat(200_000)}`
    const beganMillis = process.cpuUsage().user
    rewritten(request({ ...pypi, from, text, contentType: "text/html" }))
    assert.isBelow((process.cpuUsage().user - beganMillis) / 1000, 10_000)
  })
})

describe("cargo metadata", () => {
  const cargo = {
    registry: "cargo",
    name: "serde",
    base: "http://localhost:8080/packages/cargo",
    contentType: ""
  } as const
  const line = (over: object = {}) =>
    JSON.stringify({ name: "serde", vers: "1.0.0", cksum: sha256, deps: [], ...over })

  it("keeps the lines about the crate, and makes addresses from the registry's template", () => {
    const text = [
      line(),
      line({ name: "other" }),
      line({ cksum: "x" }),
      line({ vers: "../1" }),
      "{",
      ""
    ].join("\n")
    const plain = rewritten(request({ ...cargo, text, downloads: "https://files.example.com/crates" }))
    assert.strictEqual(plain.text, `${line()}\n`)
    assert.deepStrictEqual(
      [...plain.files],
      [
        [
          "1.0.0",
          {
            url: "https://files.example.com/crates/serde/1.0.0/download",
            hash: { algorithm: "sha256", hex: sha256 }
          }
        ]
      ]
    )
    const template = "https://files.example.com/{prefix}/{lowerprefix}/{crate}-{version}/{sha256-checksum}"
    const filled = rewritten(request({ ...cargo, text, downloads: template }))
    assert.strictEqual(
      filled.files.get("1.0.0")?.url,
      `https://files.example.com/se/rd/se/rd/serde-1.0.0/${sha256}`
    )
  })

  it("refuses an index without a line about the crate", () => {
    for (const text of ["", "<html>", line({ name: "other" })])
      assert.strictEqual(
        refused(request({ ...cargo, text, downloads: "https://files.example.com" })),
        "the registry's answer is not the index of this crate"
      )
  })

  it.each([
    ["a", "1/a"],
    ["ab", "2/ab"],
    ["log", "3/l/log"],
    ["Serde_JSON", "se/rd/serde_json"]
  ])("the index has %s at %s", (name, path) => {
    assert.strictEqual(CargoCrate.indexPath(name), path)
  })
})

describe("metadata of a hostile registry", () => {
  const many = (unit: (index: number) => string, separator = ",") =>
    Array.from({ length: filesMax + 1 }, (_, index) => unit(index)).join(separator)
  const line = (index: number) =>
    JSON.stringify({ name: "serde", vers: `${index}.0.0`, deps: [], cksum: sha256, features: {} })

  it.each([
    [
      "npm",
      `{"name":"left-pad","versions":{${many((index) => `"${index}.0.0":{"dist":{"tarball":"/a"}}`)}}}`
    ],
    ["pypi", `{"files":[${many((index) => `{"filename":"a-${index}.whl","url":"/a"}`)}]}`],
    ["cargo", many(line, "\n")],
    ["cargo", "\n".repeat(60_000)]
  ] as const)("from %s is refused if it has too many files to remember", (registry, text) => {
    const downloads = "https://crates.example.com"
    assert.match(
      refused(request({ registry, name: registry === "cargo" ? "serde" : "left-pad", text, downloads })),
      /has more than 50000/u
    )
  })

  it("is refused if it is a page of too many links", () => {
    const text = `<html>${many(() => '<a href="a">a</a>', "")}`
    const contentType = "text/html"
    assert.strictEqual(
      refused(request({ registry: "pypi", text, contentType })),
      "the registry's answer is not a simple index"
    )
    const attributes = `<html><a href="a.whl" ${"a ".repeat(20_000)}>a.whl</a><a href="b.whl">b.whl</a>`
    assert.deepStrictEqual(
      [...rewritten(request({ registry: "pypi", text: attributes, contentType })).files.keys()],
      ["b.whl"]
    )
  })

  it("is refused if its addresses are too long to remember", () => {
    const tarball = `/${"a".repeat(17 * 1024 * 1024)}`
    const text = JSON.stringify({ name: "left-pad", versions: { "1.0.0": { dist: { tarball } } } })
    assert.include(refused(request({ text })), "the addresses of its files have more than")
  })

  it.each(["[[[[]]]],", '{"999":0},', '{"a":[]},'])(
    "is refused if it is 60 MiB of %s, whose values take many times the memory of their text",
    (unit) => {
      const text = `{"name":"left-pad","versions":{},"x":[${unit.repeat((60 * 1024 * 1024) / unit.length)}0]}`
      const before = process.memoryUsage().rss
      assert.include(refused(request({ text })), "not the metadata of an npm package")
      assert.isBelow(process.memoryUsage().rss - before, 256 * 1024 * 1024)
    }
  )

  it("does not keep more in memory than a part of its thread's heap", () => {
    const index = PackageIndex.make(10_000)
    const files = (characters: number) => [["a.tgz", { url: "a".repeat(characters) }]] as const
    for (const name of ["a", "b", "c"]) index.put("npm", name, files(4000), 0)
    assert.isUndefined(index.find("npm", "a", "a.tgz", 1))
    for (const name of ["b", "c"]) assert.isDefined(index.find("npm", name, "a.tgz", 1))
    // The newest package stays in any case: it is being installed.
    index.put("npm", "d", files(20_000), 2)
    assert.isUndefined(index.find("npm", "c", "a.tgz", 3))
    assert.isDefined(index.find("npm", "d", "a.tgz", 3))
    index.put("npm", "d", files(1), 4)
    index.put("npm", "e", files(9000), 5)
    assert.isDefined(index.find("npm", "d", "a.tgz", 6))
  })
})
