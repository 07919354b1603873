/** Parts of hostile streams: headers, packs, and bytes that are slow or endless. */
import { encode } from "./Making.ts"
import { pack } from "./Pack.ts"

export interface StreamContext {
  readonly branch: string
  readonly base: string
  readonly tip: string
  /** `git bundle create - BRANCH ^BASE`, with `tip` as the branch. */
  readonly goodBundle: Buffer
}

export interface HostileStream {
  readonly name: string
  readonly bytes: (context: StreamContext) => AsyncIterable<Uint8Array> | Uint8Array
  /** Exit code of the writing program; 0 by default. */
  readonly exitCode?: number
  readonly stderr?: string
  /** The stream contains the complete tip, which may remain as an object after a refusal. */
  readonly bringsTip?: true
  /** `unharmed`: may be accepted, because it is a valid bundle with something added. */
  readonly wants: "refused" | "delivered" | "unharmed"
}

export type Bytes = HostileStream["bytes"]

export const refused = (name: string, bytes: Bytes, more: Partial<HostileStream> = {}): HostileStream => ({
  name,
  bytes,
  wants: "refused",
  ...more
})

const never = () => new Promise<never>(() => {})

/** Yields some bytes, and then neither more bytes nor an end. */
export async function* stalled(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  yield bytes
  await never()
}

/** Yields a beginning, and then the same piece without end. */
export async function* endless(
  piece: Uint8Array,
  beginning: Uint8Array = new Uint8Array(0)
): AsyncIterable<Uint8Array> {
  yield beginning
  for (;;) {
    yield piece
    // Yields to the reader.
    await new Promise((resolve) => setImmediate(resolve))
  }
}

export async function* pieces(parts: Iterable<Uint8Array>): AsyncIterable<Uint8Array> {
  for (const part of parts) {
    yield part
    await new Promise((resolve) => setImmediate(resolve))
  }
}

interface Header {
  readonly signature?: string
  readonly prerequisites?: ReadonlyArray<string>
  readonly refs?: ReadonlyArray<string>
}

/** Builds the header of a bundle. Omitted parts are valid. */
export const header = (
  { base, branch, tip }: StreamContext,
  {
    prerequisites = [`-${base}`],
    refs = [`${tip} refs/heads/${branch}`],
    signature = "# v2 git bundle"
  }: Header = {}
): Buffer => Buffer.from([signature, ...prerequisites, ...refs, "", ""].join("\n"), "latin1")

export const packOf = ({ goodBundle }: StreamContext): Buffer =>
  goodBundle.subarray(goodBundle.indexOf("\n\nPACK") + 2)

export const join = (...parts: ReadonlyArray<Uint8Array>): Buffer => Buffer.concat(parts)

/** Defines a stream with a modified header before the valid pack. */
export const headed = (name: string, of: (context: StreamContext) => Header): HostileStream =>
  refused(name, (context) => join(header(context, of(context)), packOf(context)))

/** Defines a stream with the valid header before another pack. */
export const packed = (
  name: string,
  make: (context: StreamContext) => Uint8Array,
  more: Partial<HostileStream> = {}
): HostileStream => refused(name, (context) => join(header(context), make(context)), more)

/** Defines a bundle whose ref points to one of its own objects. */
export const tipped = (
  name: string,
  type: "blob" | "tree" | "tag",
  body: (context: StreamContext) => Buffer
) =>
  refused(name, (context) => {
    const { id } = encode(type, body(context))
    return join(
      header(context, { refs: [`${id} refs/heads/${context.branch}`] }),
      pack([{ type, body: body(context) }])
    )
  })
