/** The header of a hostile stream: anything but the exact format is refused, in pieces of any size. */
import { assert, describe, it } from "@effect/vitest"
import * as Bundle from "../src/internal/git/Bundle.ts"
import { Result, Schema } from "effect"

const base = "a".repeat(40)
const tip = "b".repeat(40)
const ref = "refs/heads/sandbox/run-000000000001"
const expected: Bundle.BundleExpectation = {
  objectFormat: "sha1",
  ref,
  prerequisites: new Set([base]),
  objectsMax: 10
}

const pack = (objects = 3, version = 2, magic = "PACK") => {
  const bytes = Buffer.alloc(12)
  bytes.write(magic, "latin1")
  bytes.writeUInt32BE(version, 4)
  bytes.writeUInt32BE(objects, 8)
  return bytes
}
const bundle = (header: string, after: Uint8Array = pack()) =>
  Buffer.concat([Buffer.from(header, "latin1"), after, Buffer.from("the pack goes on")])
const good = bundle(`# v2 git bundle\n-${base} first\n${tip} ${ref}\n\n`)

/** Any bytes, and the sizes of their pieces. */
const Bytes = Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 })))
const Sizes = Schema.Array(Schema.Int)

/** Reads in pieces of these sizes, or whole without sizes. */
const read = (bytes: Uint8Array, sizes: ReadonlyArray<number> = [], of = expected) => {
  const reader = Bundle.makeReader(of)
  let at = 0
  for (let index = 0; at < bytes.byteLength; index++) {
    const size = sizes.length === 0 ? bytes.byteLength : 1 + (Math.abs(sizes[index % sizes.length]!) % 60)
    const answer = reader.push(bytes.subarray(at, at + size))
    if (answer !== undefined) return answer
    at += size
  }
  return Result.fail(reader.end())
}

/** Both are refused, with any message, or both are read as the same header. */
const assertSame = (one: ReturnType<typeof read>, other: ReturnType<typeof read>, name = "") => {
  if (Result.isSuccess(one)) assert.deepStrictEqual(one, other, name)
  else assert.isTrue(Result.isFailure(other), name)
}

describe("Bundle", () => {
  it("reads a valid bundle", () => {
    assert.deepStrictEqual(
      read(good),
      Result.succeed({ tip, objects: 3, packOffset: good.indexOf("PACK") }) as never
    )
    assert.isTrue(Result.isSuccess(read(bundle(`# v2 git bundle\n${tip} ${ref}\n\n`))))
  })

  it("requires a different header for SHA-256", () => {
    const [b, t] = ["c".repeat(64), "d".repeat(64)]
    const of = { ...expected, objectFormat: "sha256" as const, prerequisites: new Set([b]) }
    const text = `# v3 git bundle\n@object-format=sha256\n-${b}\n${t} ${ref}\n\n`
    assert.isTrue(Result.isSuccess(read(bundle(text), [], of)))
    assert.isTrue(Result.isFailure(read(bundle(text))))
    assert.isTrue(Result.isFailure(read(good, [], of)))
  })

  const refusals: ReadonlyArray<readonly [string, Uint8Array, string]> = [
    ["an empty stream", Buffer.alloc(0), "is empty"],
    ["garbage", Buffer.from("garbage"), "not a git bundle"],
    ["zeros", Buffer.alloc(100_000), "not a git bundle"],
    ["version 1", bundle(`# v1 git bundle\n${tip} ${ref}\n\n`), "not a git bundle"],
    ["version 3", bundle(`# v3 git bundle\n@filter=blob:none\n${tip} ${ref}\n\n`), "not a git bundle"],
    ["a capability", bundle(`# v2 git bundle\n@filter=blob:none\n${tip} ${ref}\n\n`), "an invalid line"],
    ["a header without an end", Buffer.from(`# v2 git bundle\n${"x".repeat(10_000)}`), "longer than 4096"],
    [
      "a long header",
      bundle(`# v2 git bundle\n${`-${base} x\n`.repeat(100)}${tip} ${ref}\n\n`),
      "longer than 4096"
    ],
    ["a missing reference", bundle(`# v2 git bundle\n-${base} x\n\n`), "no reference"],
    ["two references", bundle(`# v2 git bundle\n${tip} ${ref}\n${tip} ${ref}\n\n`), "more than one"],
    ["a different reference", bundle(`# v2 git bundle\n${tip} refs/heads/main\n\n`), "reference other than"],
    ["text after a reference", bundle(`# v2 git bundle\n${tip} ${ref} x\n\n`), "reference other than"],
    ["a CR after a reference", bundle(`# v2 git bundle\n${tip} ${ref}\r\n\n`), "reference other than"],
    ["a NUL after a reference", bundle(`# v2 git bundle\n${tip} ${ref}\0\n\n`), "reference other than"],
    ["an unknown prerequisite", bundle(`# v2 git bundle\n-${tip} x\n${tip} ${ref}\n\n`), "does not have"],
    [
      "a prerequisite that is too long",
      bundle(`# v2 git bundle\n-${base}0\n${tip} ${ref}\n\n`),
      "invalid line"
    ],
    ["a late prerequisite", bundle(`# v2 git bundle\n${tip} ${ref}\n-${base} x\n\n`), "after a reference"],
    ["a short ID", bundle(`# v2 git bundle\n${tip.slice(1)} ${ref}\n\n`), "invalid line"],
    ["an ID in capitals", bundle(`# v2 git bundle\n${tip.toUpperCase()} ${ref}\n\n`), "invalid line"],
    ["a missing pack", bundle(`# v2 git bundle\n${tip} ${ref}\n\n`, pack(1, 2, "KCAP")), "no pack"],
    ["a pack of version 3", bundle(`# v2 git bundle\n${tip} ${ref}\n\n`, pack(1, 3)), "version 3"],
    ["too many objects", bundle(`# v2 git bundle\n${tip} ${ref}\n\n`, pack(11)), "11 objects"],
    ["4e9 objects", bundle(`# v2 git bundle\n${tip} ${ref}\n\n`, pack(4_294_967_295)), "4294967295 objects"],
    ["a truncated header", good.subarray(0, 40), "ends before"],
    ["a truncated pack header", good.subarray(0, good.indexOf("PACK") + 11), "ends before"]
  ]

  it.each(refusals)("refuses %s", (_, bytes, why) => {
    const answer = read(bytes)
    assert.isTrue(Result.isFailure(answer))
    if (Result.isFailure(answer)) assert.include(answer.failure, why)
  })

  it.prop("gives the same result for pieces of any size", [Sizes], ([sizes]) => {
    assert.deepStrictEqual(read(good, sizes), read(good))
    for (const [name, bytes] of refusals) assertSame(read(bytes, sizes), read(bytes), name)
  })

  it.prop("never throws, for any bytes at any position and in any pieces", [Bytes, Sizes], ([any, sizes]) => {
    const bytes = Buffer.from(any)
    const text = bytes.toString("latin1")
    for (const hostile of [
      bytes,
      bundle(`# v2 git bundle\n${text}`),
      bundle(`# v2 git bundle\n-${base}${text}\n${tip} ${ref}\n\n`),
      bundle(`# v2 git bundle\n${tip} ${ref}${text}\n\n`),
      bundle(`# v2 git bundle\n${tip} ${ref}\n\n`, Buffer.concat([bytes, pack()]))
    ]) {
      const answer = read(hostile, sizes)
      assertSame(answer, read(hostile))
      // If it is accepted, everything that counts is unchanged.
      if (Result.isSuccess(answer)) {
        assert.strictEqual(answer.success.tip, tip)
        assert.strictEqual(hostile.toString("latin1", answer.success.packOffset).slice(0, 4), "PACK")
        assert.isAtMost(answer.success.objects, expected.objectsMax)
      }
    }
  })

  it("refuses or reports every changed byte of the header, except in the text of a prerequisite", () => {
    const end = good.indexOf("PACK") + 12
    for (let at = 0; at < end; at++) {
      for (const flip of [1, 0x20, 0x80]) {
        const changed = Buffer.from(good)
        changed[at]! ^= flip
        const answer = read(changed)
        // The text after a prerequisite's ID is only for people. index-pack detects a wrong number of objects.
        if (Result.isSuccess(answer)) {
          const harmless = good.subarray(0, at).includes(`-${base} `) && at < good.indexOf(tip)
          assert.isTrue(harmless || answer.success.tip !== tip || answer.success.objects !== 3, String(at))
          assert.strictEqual(answer.success.packOffset, good.indexOf("PACK"))
        }
      }
    }
  })
})
