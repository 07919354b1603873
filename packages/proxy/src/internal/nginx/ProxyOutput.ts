/**
 * Reads the output of an nginx container: the line that reports readiness, the report of a lost worker process, and the
 * end of its stderr.
 *
 * All are bounded, and the key is removed from the stored text.
 */
import { Deferred, Effect } from "effect"
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import { scrub, type UpstreamKey } from "../../KeyInjection.ts"
import { makeRows } from "../ByteRows.ts"

const headCharactersMax = 4096
const tailCharactersMax = 4096

/** Maximum length of the part that an error message shows. */
const shownCharactersMax = 600

/** Maximum size of a row in which nginx reports a lost worker. nginx bounds its rows to 2048 bytes. */
const rowBytesMax = 2048

/** Reads how a worker process ended from a row of nginx. A request cannot forge it, because nginx escapes line feeds. */
const lostWorker = (row: string): string | undefined =>
  /^\S+ \S+ \[alert\] \d+#\d+: worker process \d+ (exited .{1,60})$/u.exec(row)?.[1]

/** `subject` is the subject of errors, such as `the proxy`. */
export const make = Effect.fnUntraced(function* (subject: string, key: UpstreamKey) {
  const ready = yield* Deferred.make<void, ProxyFailed>()
  const workerLost = yield* Deferred.make<never, ProxyFailed>()
  const decoder = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  let head = ""
  let tail = ""
  const rows = makeRows(rowBytesMax, ({ bytes }) => {
    const how = bytes === undefined ? undefined : lostWorker(Buffer.from(bytes).toString("latin1"))
    if (how === undefined) return
    Deferred.doneUnsafe(
      workerLost,
      Effect.fail(
        new ProxyFailed({
          detail: `the worker process of ${subject} ${how}, so calls in progress are not in the log`,
          remedy: "Run again, and report this if it happens again: nginx crashed, or its memory ran out"
        })
      )
    )
  })

  /** Removes the key before it shortens the text, so that no part of the key remains. */
  const shown = () => {
    const text = scrub(tail, key).trim().replaceAll(/\s+/gu, " ")
    return text === "" ? "" : `: ${text.slice(-shownCharactersMax)}`
  }

  return {
    /** Succeeds or fails as the entrypoint reports. */
    ready: Deferred.await(ready),
    /** Never succeeds. Fails when nginx has lost a worker process, which it would replace in silence. */
    workerLost: Deferred.await(workerLost),
    /** Suffix for an error message: empty, or a colon and the end of stderr. */
    tail: shown,
    add: (chunk: OutputChunk): Effect.Effect<void> =>
      Effect.suspend(() => {
        const text = decoder[chunk.channel].decode(chunk.bytes, { stream: true })
        if (chunk.channel === "stderr") {
          rows.push(chunk.bytes)
          // Drop only whole lines, so that no half of a key remains.
          tail += text
          if (tail.length > tailCharactersMax)
            tail = tail.slice(tail.indexOf("\n", tail.length - tailCharactersMax) + 1)
          if (tail.length > 4 * tailCharactersMax) tail = ""
          return Effect.void
        }
        if (head.length >= headCharactersMax) return Effect.void
        head = (head + text).slice(0, headCharactersMax)
        const verdict = /^cogni-proxy (ready|failed ?.*)$/mu.exec(
          head.slice(0, head.lastIndexOf("\n") + 1)
        )?.[1]
        if (verdict === undefined) return Effect.void
        return verdict === "ready"
          ? Deferred.succeed(ready, undefined)
          : Deferred.fail(
              ready,
              new ProxyFailed({
                detail: `${subject} did not become ready (${scrub(verdict, key)})${shown()}`,
                remedy: "Build the proxy image again, and report this if it happens again"
              })
            )
      })
  }
})
