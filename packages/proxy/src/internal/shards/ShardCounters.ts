/**
 * Counters in memory that all shards and the main thread share: each shard's heartbeat, and what its runs hold of the
 * resources that are limited for all runs together.
 *
 * A shard writes only its own counters. When it ends, the main thread sets them to 0, so a crashed shard frees what it
 * held.
 */

export const fields = ["beats", "heldKiB", "connections"] as const

export type Field = (typeof fields)[number]

export interface ShardCounters {
  readonly buffer: SharedArrayBuffer
  readonly add: (slot: number, field: Field, amount: number) => void
  readonly read: (slot: number, field: Field) => number
  /** Sum over all shards. */
  readonly total: (field: Field) => number
  readonly clear: (slot: number) => void
}

const bytesPerNumber = 4

export const make = (slots: number): ShardCounters =>
  over(new SharedArrayBuffer(slots * fields.length * bytesPerNumber))

/** Opens the same counters, for example in another thread. */
export const over = (buffer: SharedArrayBuffer): ShardCounters => {
  const numbers = new Int32Array(buffer)
  const at = (slot: number, field: Field) => slot * fields.length + fields.indexOf(field)
  return {
    buffer,
    add: (slot, field, amount) => void Atomics.add(numbers, at(slot, field), amount),
    read: (slot, field) => Atomics.load(numbers, at(slot, field)),
    total: (field) => {
      let sum = 0
      for (let index = fields.indexOf(field); index < numbers.length; index += fields.length)
        sum += Atomics.load(numbers, index)
      return sum
    },
    clear: (slot) => {
      for (const field of fields) Atomics.store(numbers, at(slot, field), 0)
    }
  }
}
