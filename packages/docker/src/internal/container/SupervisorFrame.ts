/**
 * The protocol between the host and the supervisor of an open sandbox: frames with a nine-byte header (length of the
 * payload, kind, ID of the command; big-endian) and a payload.
 *
 * Pure and incremental. The supervisor is `images/runtime/cogni-supervisor`. It runs inside the sandbox, so its frames
 * are untrusted: an invalid frame throws, and ends the sandbox.
 */
import type { ExecSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { Stream } from "effect"
import * as JoinedBytes from "./JoinedBytes.ts"

/** Maximum cost of a command's unread output, and maximum bytes of its unread streamed input: its flow-control windows. */
export const windowBytes = 256 * 1024

/** Minimum cost of an output frame in a window, so that frames of one byte are limited too. */
export const frameCostBytesMin = 256

/** Maximum payload of a frame from the supervisor, which reads as much output at a time. */
export const framePayloadBytesMax = 64 * 1024

/** Maximum payload of a frame with input. */
export const inputPieceBytesMax = 64 * 1024

const headerBytes = 9

const kind = {
  start: 1,
  stdin: 2,
  stdinEnd: 3,
  signal: 4,
  kill: 5,
  credit: 6,
  inputStream: 7,
  stdout: 17,
  stderr: 18,
  exited: 19,
  refused: 20,
  gone: 21,
  inputCredit: 22,
  inputOver: 23
} as const

/** An event of a command, as the supervisor reports it. */
export type Told =
  | { readonly _tag: "Output"; readonly channel: "stdout" | "stderr"; readonly bytes: Uint8Array }
  | {
      readonly _tag: "Exited"
      readonly exitCode: number
      /** Number of the signal that ended the command, or 0. */
      readonly signal: number
      readonly oomKilled: boolean
      readonly processesRefused: boolean
    }
  | { readonly _tag: "Refused"; readonly why: string }
  /** The command and all its children have ended. */
  | { readonly _tag: "Gone" }
  /** The host may send this many more bytes of streamed input. */
  | { readonly _tag: "InputAccepted"; readonly bytes: number }
  /** The command reads no more of its streamed input. */
  | { readonly _tag: "InputOver" }

export interface Frame {
  readonly id: number
  readonly told: Told
}

interface FrameDecoder {
  /** Returns the frames that these bytes complete, in order. Throws on an invalid frame. */
  readonly push: (bytes: Uint8Array) => ReadonlyArray<Frame>
}

const encoder = new TextEncoder()

const frame = (type: number, id: number, payload: Uint8Array = new Uint8Array(0)): Uint8Array => {
  const bytes = new Uint8Array(headerBytes + payload.byteLength)
  const view = new DataView(bytes.buffer)
  view.setUint32(0, payload.byteLength)
  view.setUint8(4, type)
  view.setUint32(5, id)
  bytes.set(payload, headerBytes)
  return bytes
}

const strings = (all: ReadonlyArray<string>): Uint8Array =>
  JoinedBytes.of(
    all.flatMap((text) => {
      const bytes = encoder.encode(text)
      const length = new Uint8Array(4)
      new DataView(length.buffer).setUint32(0, bytes.byteLength)
      return [length, bytes]
    })
  )

/** Encodes the start of a command, with all its standard input or the announcement of a stream. */
export const start = (id: number, command: ExecSpec, workingDirectory: string): Uint8Array => {
  const { argv, env, stdin = new Uint8Array(0) } = command
  const asked = strings([
    command.workingDirectory ?? workingDirectory,
    String(argv.length),
    ...argv,
    ...Object.entries(env).map(([name, value]) => `${name}=${value}`)
  ])
  const begin = frame(kind.start, id, asked)
  return Stream.isStream(stdin)
    ? JoinedBytes.of([begin, frame(kind.inputStream, id)])
    : JoinedBytes.of([begin, ...inputPieces(stdin).map((piece) => input(id, piece)), inputEnd(id)])
}

/** Splits input into payloads of frames. */
export const inputPieces = (bytes: Uint8Array): ReadonlyArray<Uint8Array> =>
  Array.from({ length: Math.ceil(bytes.byteLength / inputPieceBytesMax) }, (_, index) =>
    bytes.subarray(index * inputPieceBytesMax, (index + 1) * inputPieceBytesMax)
  )

/** Encodes a piece of standard input, of at most {@link inputPieceBytesMax} bytes. */
export const input = (id: number, piece: Uint8Array): Uint8Array => frame(kind.stdin, id, piece)

/** Encodes the end of standard input. */
export const inputEnd = (id: number): Uint8Array => frame(kind.stdinEnd, id)

/** Encodes a signal, by the kernel's number. */
export const signal = (id: number, number: number): Uint8Array =>
  frame(kind.signal, id, encoder.encode(String(number)))

/** Encodes a kill of a command and all its children. The supervisor answers with `Gone`. */
export const kill = (id: number): Uint8Array => frame(kind.kill, id)

/** Encodes credit: the cost of output that was read. */
export const credit = (id: number, bytes: number): Uint8Array => {
  const payload = new Uint8Array(4)
  new DataView(payload.buffer).setUint32(0, bytes)
  return frame(kind.credit, id, payload)
}

/** Returns the cost of output in its command's window. */
export const costOf = (output: Uint8Array): number => Math.max(output.byteLength, frameCostBytesMin)

/** Copies output that is a small part of what it came with: the whole would be kept until the output is read. */
const alone = (payload: Uint8Array): Uint8Array =>
  4 * payload.byteLength < payload.buffer.byteLength ? JoinedBytes.of([payload]) : payload

const told = (type: number, payload: Uint8Array): Told => {
  switch (type) {
    case kind.stdout:
      return { _tag: "Output", channel: "stdout", bytes: alone(payload) }
    case kind.stderr:
      return { _tag: "Output", channel: "stderr", bytes: alone(payload) }
    case kind.exited: {
      if (payload.byteLength !== 16) break
      const view = new DataView(payload.buffer, payload.byteOffset)
      return {
        _tag: "Exited",
        exitCode: view.getUint32(0) & 0xff,
        signal: view.getUint32(4) & 0x7f,
        oomKilled: view.getUint32(8) !== 0,
        processesRefused: view.getUint32(12) !== 0
      }
    }
    case kind.refused:
      return { _tag: "Refused", why: new TextDecoder().decode(payload).slice(0, 200) }
    case kind.gone:
      return { _tag: "Gone" }
    case kind.inputCredit:
      if (payload.byteLength !== 4) break
      return {
        _tag: "InputAccepted",
        bytes: new DataView(payload.buffer, payload.byteOffset).getUint32(0)
      }
    case kind.inputOver:
      return { _tag: "InputOver" }
  }
  throw new Error(`invalid supervisor frame: kind ${type} with ${payload.byteLength} bytes`)
}

export const makeDecoder = (): FrameDecoder => {
  // Joined once they contain a whole frame: joining each piece on arrival would take quadratic time.
  let pending: Array<Uint8Array> = []
  let pendingBytes = 0
  let neededBytes = headerBytes
  return {
    push: (bytes) => {
      pending.push(bytes)
      pendingBytes += bytes.byteLength
      if (pendingBytes < neededBytes) return []
      const joined = pending.length === 1 ? bytes : JoinedBytes.of(pending)
      const view = new DataView(joined.buffer, joined.byteOffset, joined.byteLength)
      const frames: Array<Frame> = []
      let at = 0
      neededBytes = headerBytes
      while (joined.byteLength - at >= headerBytes) {
        const length = view.getUint32(at)
        if (length > framePayloadBytesMax) throw new Error(`invalid supervisor frame: ${length} bytes`)
        const end = at + headerBytes + length
        if (end > joined.byteLength) {
          neededBytes = headerBytes + length
          break
        }
        const payload = joined.subarray(at + headerBytes, end)
        frames.push({ id: view.getUint32(at + 5), told: told(view.getUint8(at + 4), payload) })
        at = end
      }
      pendingBytes = joined.byteLength - at
      pending = pendingBytes === 0 ? [] : [joined.slice(at)]
      return frames
    }
  }
}
