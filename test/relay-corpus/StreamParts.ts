/** What hostile streams are put together from: headers, packs, and bytes that come slowly or without an end. */
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
  /** Of the program that writes it; 0 when left out. */
  readonly exitCode?: number
  readonly stderr?: string
  /** It brings the tip, whole: what is refused of it may stay behind as an object. */
  readonly bringsTip?: true
  /** `unharmed`: it may be taken for what it is, a bundle with something added. */
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

/** Some bytes, and then nothing: neither more, nor an end. */
export async function* stalled(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  yield bytes
  await never()
}

/** The same piece for ever, after a beginning. */
export async function* endless(
  piece: Uint8Array,
  beginning: Uint8Array = new Uint8Array(0)
): AsyncIterable<Uint8Array> {
  yield beginning
  for (;;) {
    yield piece
    // Whoever reads it has to have a turn.
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

/** The header of a bundle; what is left out is right. */
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

/** The good pack under another header. */
export const headed = (name: string, of: (context: StreamContext) => Header): HostileStream =>
  refused(name, (context) => join(header(context, of(context)), packOf(context)))

/** A good header before other packs. */
export const packed = (
  name: string,
  make: (context: StreamContext) => Uint8Array,
  more: Partial<HostileStream> = {}
): HostileStream => refused(name, (context) => join(header(context), make(context)), more)

/** A bundle whose ref is one of the objects it brings. */
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
