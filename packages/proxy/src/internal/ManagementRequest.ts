/**
 * Sends a request to an upstream's management API, and reads its answer up to a size.
 *
 * Redirects are not followed, so that the key reaches only this address.
 */
import * as KeyInjection from "../KeyInjection.ts"

export interface ManagementRequest {
  readonly url: string
  readonly key: KeyInjection.UpstreamKey
  readonly signal: AbortSignal
  readonly method?: "GET" | "POST" | undefined
  /** Sent as JSON. */
  readonly body?: unknown
  readonly answerBytesMax: number
}

/** Returns the status and the text of the answer. The text is absent if it is too long. */
export const send = async ({ answerBytesMax, body, key, method, signal, url }: ManagementRequest) => {
  const response = await fetch(url, {
    method: method ?? "GET",
    redirect: "manual",
    signal,
    headers: {
      authorization: KeyInjection.bearer(key),
      accept: "application/json",
      ...(body === undefined ? {} : { "content-type": "application/json" })
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) })
  })
  return { status: response.status, text: await textOf(response, answerBytesMax) }
}

const textOf = async ({ body }: Response, bytesMax: number): Promise<string | undefined> => {
  const pieces: Array<Uint8Array> = []
  let bytes = 0
  for await (const piece of body ?? []) {
    bytes += (piece as Uint8Array).byteLength
    if (bytes > bytesMax) return undefined
    pieces.push(piece as Uint8Array)
  }
  return Buffer.concat(pieces).toString("utf8")
}
