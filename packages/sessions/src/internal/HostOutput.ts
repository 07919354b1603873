/**
 * What a command of the host's writes, at the pace of whoever reads it.
 *
 * It ends with the command's own process, not with the last that holds its pipes: what is in the pipes then is all of
 * the command's, and is read to the end. From there on what comes is read and dropped, so that children which were left
 * running neither wait for a reader nor die for want of one.
 */
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import { Effect, Stream } from "effect"
import { readSync } from "node:fs"
import { Socket } from "node:net"
import type * as HostPipes from "./HostPipes.ts"

export interface HostOutput {
  /** For one reader. */
  readonly stream: Stream.Stream<OutputChunk>
  /** The command's own process has ended. */
  readonly exited: () => void
  /** Nobody reads it any more, and what still comes is dropped. */
  readonly drop: () => void
  /** Nobody is left to write. */
  readonly close: () => void
}

/** What a pipe holds at most for an ordinary user (`/proc/sys/fs/pipe-max-size`). */
const pipeBytesMax = 1024 * 1024

const pieceBytes = 64 * 1024

type Channel = OutputChunk["channel"]

/** One end, read only when somebody asks. */
const makeEnd = (channel: Channel, descriptor: number, changed: () => void) => {
  const socket = new Socket({ fd: descriptor, readable: true, writable: false })
  let isOver = false
  let isDropped = false
  let lateBytes = 0
  const over = () => {
    isOver = true
    changed()
  }
  for (const event of ["end", "close", "error"] as const) socket.on(event, over)
  socket.on("readable", changed)

  /** Straight from the pipe: what was written before the end is there, whether the loop has seen it or not. */
  const rest = (): Uint8Array | undefined => {
    const buffer = new Uint8Array(pieceBytes)
    try {
      const bytes = readSync(descriptor, buffer)
      if (bytes > 0) return buffer.subarray(0, bytes)
    } catch {
      // Nothing is in it (EAGAIN).
    }
    return undefined
  }

  return {
    channel,
    isOver: () => isOver,
    take: (hasExited: boolean): Uint8Array | undefined => {
      if (isOver) return undefined
      const piece: Buffer | null = socket.read()
      const bytes = piece ?? (hasExited && !socket.destroyed ? rest() : undefined)
      if (!hasExited) return bytes
      lateBytes += bytes?.byteLength ?? 0
      // A child that goes on writing would never let it end.
      if (bytes === undefined || lateBytes > pipeBytesMax + 2 * pieceBytes) isOver = true
      return bytes
    },
    drop: () => {
      isOver = true
      if (isDropped) return
      isDropped = true
      socket.removeAllListeners("readable")
      // Whoever listens keeps it flowing; `resume` alone is undone by the removal.
      socket.on("data", () => undefined)
      socket.unref()
    },
    close: () => {
      isOver = true
      socket.destroy()
    }
  }
}

/** Takes the descriptors over. */
export const make = (pipes: Pick<HostPipes.CommandPipes, "stdout" | "stderr">): HostOutput => {
  let changes = 0
  let hasExited = false
  let wake: (() => void) | undefined
  const changed = () => {
    changes++
    wake?.()
  }
  const ends = [makeEnd("stdout", pipes.stdout.mine, changed), makeEnd("stderr", pipes.stderr.mine, changed)]

  const drop = () => {
    for (const end of ends) end.drop()
    changed()
  }

  const take = (): OutputChunk | undefined => {
    for (const end of ends) {
      const bytes = end.take(hasExited)
      if (bytes === undefined) continue
      // The other one is asked first next time.
      ends.reverse()
      return { channel: end.channel, bytes }
    }
    return undefined
  }

  const changedSince = (seen: number) =>
    Effect.callback<void>((resume) => {
      if (changes !== seen) return resume(Effect.void)
      wake = () => resume(Effect.void)
      return Effect.sync(() => {
        wake = undefined
      })
    })

  const next: Effect.Effect<OutputChunk | undefined> = Effect.suspend(() => {
    const seen = changes
    const chunk = take()
    if (chunk !== undefined) return Effect.succeed(chunk)
    if (ends.every((end) => end.isOver())) {
      drop()
      return Effect.succeed(undefined)
    }
    return Effect.andThen(changedSince(seen), next)
  })

  return {
    stream: Stream.unfold(undefined, () =>
      Effect.map(next, (chunk) => (chunk === undefined ? undefined : ([chunk, undefined] as const)))
    ),
    exited: () => {
      hasExited = true
      changed()
    },
    drop,
    close: () => {
      for (const end of ends) end.close()
      changed()
    }
  }
}
