/**
 * What the proxy container says: the line that tells it is ready, and the end of what it complained about.
 *
 * Both are bounded, and the key is taken out of what is kept.
 */
import { Deferred, Effect } from "effect"
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import { scrub, type UpstreamKey } from "../../KeyInjection.ts"

const headCharactersMax = 4096
const tailCharactersMax = 4096

/** What a message shows of it. */
const shownCharactersMax = 600

export const make = Effect.fnUntraced(function* (key: UpstreamKey) {
  const ready = yield* Deferred.make<void, ProxyFailed>()
  const decoder = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  let head = ""
  let tail = ""

  /** Cut where the key cannot be cut in two: it is taken out first. */
  const shown = () => {
    const text = scrub(tail, key).trim().replaceAll(/\s+/gu, " ")
    return text === "" ? "" : `: ${text.slice(-shownCharactersMax)}`
  }

  return {
    /** Settles with the entrypoint's verdict. */
    ready: Deferred.await(ready),
    /** For the end of a message: empty, or a colon and the last words on stderr. */
    tail: shown,
    add: (chunk: OutputChunk): Effect.Effect<void> =>
      Effect.suspend(() => {
        const text = decoder[chunk.channel].decode(chunk.bytes, { stream: true })
        if (chunk.channel === "stderr") {
          // Never between two halves of a key: what is dropped ends at the end of a line.
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
                remedy: "Rebuild the proxy image (./dev images), and report this if it stays"
              })
            )
      })
  }
})
