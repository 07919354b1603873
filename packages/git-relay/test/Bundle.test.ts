/** The first bytes of a hostile stream: what is not exactly as it must be is refused, in whatever pieces it comes. */
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

/** Any bytes, and where they are cut. */
const Bytes = Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 })))
const Sizes = Schema.Array(Schema.Int)

/** In pieces of these lengths; whole where there are none. */
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

/** Refused both, in whatever words, or read as the same. */
const assertSame = (one: ReturnType<typeof read>, other: ReturnType<typeof read>, name = "") => {
  if (Result.isSuccess(one)) assert.deepStrictEqual(one, other, name)
  else assert.isTrue(Result.isFailure(other), name)
}

describe("Bundle", () => {
  it("an honest one is read", () => {
    assert.deepStrictEqual(
      read(good),
      Result.succeed({ tip, objects: 3, packOffset: good.indexOf("PACK") }) as never
    )
    assert.isTrue(Result.isSuccess(read(bundle(`# v2 git bundle\n${tip} ${ref}\n\n`))))
  })

  it("one of SHA-256 has a header of its own", () => {
    const [b, t] = ["c".repeat(64), "d".repeat(64)]
    const of = { ...expected, objectFormat: "sha256" as const, prerequisites: new Set([b]) }
    const text = `# v3 git bundle\n@object-format=sha256\n-${b}\n${t} ${ref}\n\n`
    assert.isTrue(Result.isSuccess(read(bundle(text), [], of)))
    assert.isTrue(Result.isFailure(read(bundle(text))))
    assert.isTrue(Result.isFailure(read(good, [], of)))
  })

  const refusals: ReadonlyArray<readonly [string, Uint8Array, string]> = [
    ["nothing", Buffer.alloc(0), "nothing in it"],
    ["garbage", Buffer.from("garbage"), "no git bundle"],
    ["zeros", Buffer.alloc(100_000), "no git bundle"],
    ["version 1", bundle(`# v1 git bundle\n${tip} ${ref}\n\n`), "no git bundle"],
    ["version 3", bundle(`# v3 git bundle\n@filter=blob:none\n${tip} ${ref}\n\n`), "no git bundle"],
    ["a capability", bundle(`# v2 git bundle\n@filter=blob:none\n${tip} ${ref}\n\n`), "a line that is none"],
    ["no end of the header", Buffer.from(`# v2 git bundle\n${"x".repeat(10_000)}`), "longer than 4096"],
    [
      "a long header",
      bundle(`# v2 git bundle\n${`-${base} x\n`.repeat(100)}${tip} ${ref}\n\n`),
      "longer than 4096"
    ],
    ["no reference", bundle(`# v2 git bundle\n-${base} x\n\n`), "no reference"],
    ["two references", bundle(`# v2 git bundle\n${tip} ${ref}\n${tip} ${ref}\n\n`), "more than one"],
    ["another reference", bundle(`# v2 git bundle\n${tip} refs/heads/main\n\n`), "another reference"],
    ["a reference and more", bundle(`# v2 git bundle\n${tip} ${ref} x\n\n`), "another reference"],
    ["a reference and CR", bundle(`# v2 git bundle\n${tip} ${ref}\r\n\n`), "another reference"],
    ["a reference and NUL", bundle(`# v2 git bundle\n${tip} ${ref}\0\n\n`), "another reference"],
    ["another prerequisite", bundle(`# v2 git bundle\n-${tip} x\n${tip} ${ref}\n\n`), "does not have"],
    [
      "a prerequisite that goes on",
      bundle(`# v2 git bundle\n-${base}0\n${tip} ${ref}\n\n`),
      "line that is none"
    ],
    ["a late prerequisite", bundle(`# v2 git bundle\n${tip} ${ref}\n-${base} x\n\n`), "after a reference"],
    ["a short id", bundle(`# v2 git bundle\n${tip.slice(1)} ${ref}\n\n`), "line that is none"],
    ["an id in capitals", bundle(`# v2 git bundle\n${tip.toUpperCase()} ${ref}\n\n`), "line that is none"],
    ["no pack", bundle(`# v2 git bundle\n${tip} ${ref}\n\n`, pack(1, 2, "KCAP")), "no pack"],
    ["a pack of version 3", bundle(`# v2 git bundle\n${tip} ${ref}\n\n`, pack(1, 3)), "version 3"],
    ["many objects", bundle(`# v2 git bundle\n${tip} ${ref}\n\n`, pack(11)), "11 objects"],
    ["4e9 objects", bundle(`# v2 git bundle\n${tip} ${ref}\n\n`, pack(4_294_967_295)), "4294967295 objects"],
    ["cut in the header", good.subarray(0, 40), "ends before"],
    ["cut in the pack's header", good.subarray(0, good.indexOf("PACK") + 11), "ends before"]
  ]

  it.each(refusals)("%s is refused", (_, bytes, why) => {
    const answer = read(bytes)
    assert.isTrue(Result.isFailure(answer))
    if (Result.isFailure(answer)) assert.include(answer.failure, why)
  })

  it.prop("in whatever pieces it comes, it is the same", [Sizes], ([sizes]) => {
    assert.deepStrictEqual(read(good, sizes), read(good))
    for (const [name, bytes] of refusals) assertSame(read(bytes, sizes), read(bytes), name)
  })

  it.prop(
    "no bytes make it throw, wherever they stand and however they are cut",
    [Bytes, Sizes],
    ([any, sizes]) => {
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
        // Of what passes, all that counts is as it was.
        if (Result.isSuccess(answer)) {
          assert.strictEqual(answer.success.tip, tip)
          assert.strictEqual(hostile.toString("latin1", answer.success.packOffset).slice(0, 4), "PACK")
          assert.isAtMost(answer.success.objects, expected.objectsMax)
        }
      }
    }
  )

  it("no change of one byte of the header says something else", () => {
    const end = good.indexOf("PACK") + 12
    for (let at = 0; at < end; at++) {
      for (const flip of [1, 0x20, 0x80]) {
        const changed = Buffer.from(good)
        changed[at]! ^= flip
        const answer = read(changed)
        // What follows a prerequisite's id is for people; fewer objects than there are is for index-pack to find.
        if (Result.isSuccess(answer)) {
          const harmless = good.subarray(0, at).includes(`-${base} `) && at < good.indexOf(tip)
          assert.isTrue(harmless || answer.success.tip !== tip || answer.success.objects !== 3, String(at))
          assert.strictEqual(answer.success.packOffset, good.indexOf("PACK"))
        }
      }
    }
  })
})
