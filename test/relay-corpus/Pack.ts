/** Hand-written packs that git would not write. */
import { createHash } from "node:crypto"
import { deflateSync } from "node:zlib"

const types = {
  none: 0,
  commit: 1,
  tree: 2,
  blob: 3,
  tag: 4,
  reserved: 5,
  "ofs-delta": 6,
  "ref-delta": 7
} as const

export interface Packed {
  readonly type: keyof typeof types
  readonly body: Uint8Array
  /** For a `ref-delta`: the ID of its base. For an `ofs-delta`: the encoded offset of its base. */
  readonly base?: string | Uint8Array
  /** False size, instead of the body's. */
  readonly size?: number
  /** Stores the body uncompressed, which is faster. */
  readonly stored?: true
}

/** Encodes the type and the size of an object: four bits of the size first, then seven per byte. */
export const packedHeader = (type: Packed["type"], size: number): Buffer => {
  const bytes = [(types[type] << 4) | (size % 16)]
  for (let rest = Math.floor(size / 16); rest > 0; rest = Math.floor(rest / 128)) {
    bytes[bytes.length - 1]! |= 0x80
    bytes.push(rest % 128)
  }
  return Buffer.from(bytes)
}

/** Encodes a size in a delta: seven bits per byte, lowest first. */
export const varint = (value: number): Buffer => {
  const bytes = [value % 128]
  for (let rest = Math.floor(value / 128); rest > 0; rest = Math.floor(rest / 128)) {
    bytes[bytes.length - 1]! |= 0x80
    bytes.push(rest % 128)
  }
  return Buffer.from(bytes)
}

/** Encodes the distance to the base of an `ofs-delta`. */
export const offset = (distance: number): Buffer => {
  const bytes = [distance % 128]
  for (let rest = Math.floor(distance / 128); rest > 0; rest = Math.floor(rest / 128)) {
    rest -= 1
    bytes.unshift(0x80 | (rest % 128))
  }
  return Buffer.from(bytes)
}

const adler = (body: Uint8Array): Buffer => {
  let [a, b] = [1, 0]
  for (const byte of body) {
    a = (a + byte) % 65_521
    b = (b + a) % 65_521
  }
  const sum = Buffer.alloc(4)
  sum.writeUInt32BE(((b << 16) | a) >>> 0)
  return sum
}

/** Encodes a zlib stream of one uncompressed block. */
export const stored = (body: Uint8Array): Buffer => {
  const head = Buffer.from([0x78, 0x01, 0x01, 0, 0, 0, 0])
  head.writeUInt16LE(body.length, 3)
  head.writeUInt16LE(body.length ^ 0xffff, 5)
  return Buffer.concat([head, body, adler(body)])
}

export const packedObject = (packed: Packed): Buffer =>
  Buffer.concat([
    packedHeader(packed.type, packed.size ?? packed.body.length),
    packed.base === undefined
      ? Buffer.alloc(0)
      : typeof packed.base === "string"
        ? Buffer.from(packed.base, "hex")
        : packed.base,
    packed.stored === true ? stored(packed.body) : deflateSync(packed.body)
  ])

/** Encodes the header of a pack: "PACK", the version and the number of objects. */
export const packStart = (count: number, version = 2): Buffer => {
  const head = Buffer.from("PACK\0\0\0\0\0\0\0\0")
  head.writeUInt32BE(version, 4)
  head.writeUInt32BE(count, 8)
  return head
}

/** Appends the checksum. */
export const sealed = (bytes: Uint8Array): Buffer =>
  Buffer.concat([bytes, createHash("sha1").update(bytes).digest()])

/** Encodes a complete pack. `says` overrides the values of its header. */
export const pack = (
  objects: ReadonlyArray<Packed>,
  says: { readonly count?: number; readonly version?: number } = {}
): Buffer =>
  sealed(Buffer.concat([packStart(says.count ?? objects.length, says.version), ...objects.map(packedObject)]))

/** Generates a large pack piece by piece. */
export function* packPieces(count: number, objects: Iterable<Uint8Array>): Iterable<Uint8Array> {
  const digest = createHash("sha1")
  let held: Array<Uint8Array> = [packStart(count)]
  let bytes = 0
  for (const one of objects) {
    held.push(one)
    bytes += one.length
    if (bytes < 1 << 18) continue
    const piece = Buffer.concat(held)
    held = []
    bytes = 0
    digest.update(piece)
    yield piece
  }
  const last = Buffer.concat(held)
  yield last
  yield digest.update(last).digest()
}

/** Encodes a delta that repeats its complete base up to the size `to`. */
export const copies = (from: number, to: number): Buffer => {
  // One instruction copies up to 64 KiB from the beginning. A missing size means 0x10000.
  const instruction = from === 0x10000 ? Buffer.from([0x80]) : Buffer.from([0xb0, from & 0xff, from >> 8])
  const repeated = Buffer.alloc(Math.floor(to / from) * instruction.length, instruction)
  return Buffer.concat([varint(from), varint(to), repeated])
}

/** Generates incompressible bytes, always the same for a seed. */
export const varied = (seed: number, length: number): Buffer => {
  const pieces: Array<Buffer> = []
  for (let index = 0; index * 32 < length; index++) {
    pieces.push(createHash("sha256").update(`${seed} ${index}`).digest())
  }
  return Buffer.concat(pieces).subarray(0, length)
}
