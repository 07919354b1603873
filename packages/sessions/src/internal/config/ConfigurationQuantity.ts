/**
 * Sizes, processors and networks as they are written in a configuration, within what a sandbox can be given.
 *
 * Pure. What is refused is refused with what is expected and why.
 */
import { Limits, type Network } from "@cogni/sandbox-core/SandboxSpec"
import { Schema } from "effect"

/** As docker has it: a number, and a unit that is a power of 1024. */
export const sizePattern = /^\d{1,15}(?:\.\d{1,6})?(?:[bB]|[kKmMgG](?:[iI]?[bB])?)?$/u

export const sizeExpected = "a size such as 512m or 1g (b, k, m, g: powers of 1024), or a number of bytes"

const units: Readonly<Record<string, number>> = { "": 1, b: 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30 }

/** Of what {@link sizePattern} takes. */
export const bytesOf = (size: string | number): number => {
  if (typeof size === "number") return size
  const [, amount = "", unit = ""] = /^([\d.]+)([a-z]?)/iu.exec(size) ?? []
  return Number(amount) * (units[unit.toLowerCase()] ?? Number.NaN)
}

/** What a sandbox can have, which core alone knows. */
const isMemoryBytes = Schema.is(Limits.fields.memoryBytesMax)

const isCpusCount = Schema.is(Limits.fields.cpusMax)

export const isMemory = Schema.makeFilter((size: string | number) =>
  (typeof size === "string" && !sizePattern.test(size)) || isMemoryBytes(bytesOf(size))
    ? undefined
    : `Expected a size from 6m to 1024g, in whole bytes, got ${size}`
)

export const cpusPattern = /^\d{1,4}(?:\.\d{1,9})?$/u

export const cpusExpected = 'a number of processors, such as 0.5 or "1.0"'

/** Of what {@link cpusPattern} takes. */
export const cpusOf = (cpus: string | number): number => Number(cpus)

export const isCpus = Schema.makeFilter((cpus: string | number) =>
  (typeof cpus === "string" && !cpusPattern.test(cpus)) || isCpusCount(cpusOf(cpus))
    ? undefined
    : `Expected from 0.01 to 1024 processors, got ${cpus}`
)

const encoder = new TextEncoder()

export const isAtMostBytes = (bytesMax: number) =>
  Schema.makeFilter((text: string) =>
    encoder.encode(text).byteLength > bytesMax ? `Expected at most ${bytesMax} bytes` : undefined
  )

export const networkPattern = /^(?:none|internal:[A-Za-z0-9][A-Za-z0-9_.-]{0,62})$/u

/** Also says why of those that docker has and a sandbox has not. */
export const networkExpected =
  "Expected none, or internal:NAME for an internal docker network. " +
  "Neither bridge (a way out past the proxy) nor host (no isolation at all) can be had, whatever is allowed"

/** Of what the file's schema takes. */
export const networkOf = (network: string): Network =>
  network.startsWith("internal:")
    ? { mode: "internal", networkName: network.slice("internal:".length) }
    : { mode: "none" }
