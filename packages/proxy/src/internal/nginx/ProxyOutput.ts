/**
 * Reads the output of the proxy container: the line that reports readiness, and the end of its stderr.
 *
 * Both are bounded, and the key is removed from the stored text.
 */
import { Deferred, Effect } from "effect"
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import { scrub, type UpstreamKey } from "../../KeyInjection.ts"

const headCharactersMax = 4096
const tailCharactersMax = 4096

/** Maximum length of the part that an error message shows. */
const shownCharactersMax = 600

export const make = Effect.fnUntraced(function* (key: UpstreamKey) {
  const ready = yield* Deferred.make<void, ProxyFailed>()
  const decoder = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  let head = ""
  let tail = ""

  /** Removes the key before it shortens the text, so that no part of the key remains. */
  const shown = () => {
    const text = scrub(tail, key).trim().replaceAll(/\s+/gu, " ")
    return text === "" ? "" : `: ${text.slice(-shownCharactersMax)}`
  }

  return {
    /** Succeeds or fails as the entrypoint reports. */
    ready: Deferred.await(ready),
    /** Suffix for an error message: empty, or a colon and the end of stderr. */
    tail: shown,
    add: (chunk: OutputChunk): Effect.Effect<void> =>
      Effect.suspend(() => {
        const text = decoder[chunk.channel].decode(chunk.bytes, { stream: true })
        if (chunk.channel === "stderr") {
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
                detail: `the proxy did not become ready (${scrub(verdict, key)})${shown()}`,
                remedy: "Build the proxy image again, and report this if it happens again"
              })
            )
      })
  }
})
