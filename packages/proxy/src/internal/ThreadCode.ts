/**
 * The programs of the gateway's threads. In this repository they are files.
 *
 * The published package carries them as texts instead: a bundler moves this code away from the files, but a text moves
 * with it. `packages/proxy/pack` makes the texts. This module gives a bundler no pattern of a worker to rewrite.
 */
import { Worker, type WorkerOptions } from "node:worker_threads"

/** Plain data, so that one thread can pass it to the next. */
export type ThreadCode = { readonly file: string } | { readonly text: string }

interface ThreadCodes {
  readonly shard: ThreadCode
  readonly inspection: ThreadCode
  /** Relays of an nginx for many runs. */
  readonly relay: ThreadCode
}

/** Loads the programs. A gateway that is never used does not load their texts. */
export const load = async (): Promise<ThreadCodes> => {
  const { texts } = await import("./ThreadText.ts")
  return texts === undefined
    ? {
        shard: besideThis("shards/ShardWorker"),
        inspection: besideThis("gateway/InspectionWorker"),
        relay: besideThis("nginx/RelayWorker")
      }
    : { shard: { text: texts.shard }, inspection: { text: texts.inspection }, relay: { text: texts.relay } }
}

/** A file next to this one. A bundle has no such file, and some bundles do not know their own place. */
const besideThis = (module: string): ThreadCode => {
  const self = String(import.meta.url)
  return { file: `${self.slice(0, self.lastIndexOf("/") + 1)}${module}${self.slice(self.lastIndexOf("."))}` }
}

export const start = (code: ThreadCode, options: WorkerOptions): Worker =>
  "text" in code
    ? new Worker(code.text, { ...options, eval: true })
    : new Worker(new URL(code.file), { ...options, eval: false })

/** Returns whether a thread ended because its program does not exist. */
export const isMissing = (error: unknown): boolean =>
  ["ERR_MODULE_NOT_FOUND", "MODULE_NOT_FOUND", "ERR_INVALID_URL"].includes(
    String((error as NodeJS.ErrnoException).code)
  )

/** Remedy for a program that does not exist. */
export const missingRemedy =
  "Bundle the published @cogni/sandbox-proxy, or leave all packages out of the bundle (docs/guides/bundlers.md)"
