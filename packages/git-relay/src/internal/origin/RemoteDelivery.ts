/** Delivers one commit to one branch of a remote origin, never by force. Idempotent. */
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Effect, Option } from "effect"
import type { RelayFailed } from "../../GitRelayError.ts"
import * as HostRepository from "../git/HostRepository.ts"
import { originAt } from "../steps/RelayContext.ts"
import * as OriginAnswers from "./OriginAnswers.ts"
import type { PathDelivery } from "./PathDelivery.ts"
import { type Delivered, exists, ofOrigin, PushRefusal } from "./PushRefusal.ts"
import * as RemoteOrigin from "./RemoteOrigin.ts"

export const deliver = Effect.fnUntraced(function* ({ clone, pushedTip, tip }: PathDelivery) {
  const { branch } = clone
  const gitDirectory = relayPaths(clone.directory).repository
  const origin = yield* originAt(clone.request.url)
  const ref = `refs/heads/${branch}`
  const standing = Effect.map(RemoteOrigin.advertised(origin, [ref], "push"), ({ refs }) => refs.get(ref))
  const there = yield* Effect.catchTag(standing, "OriginUnavailable", (error) => Effect.fail(ofOrigin(error)))
  if (there !== undefined) {
    if (there === tip || (yield* hasSameFiles(origin, { gitDirectory, ref, tip })))
      return { at: there, unchanged: true } satisfies Delivered
    const isOurs = there === pushedTip && (yield* HostRepository.isAncestor(gitDirectory, there, tip))
    if (!isOurs) return yield* exists(there)
  }
  const answer = yield* RemoteOrigin.push(origin, { gitDirectory, branch, tip, expected: there ?? "" }).pipe(
    Effect.map(({ access, said, taken }) => ({ taken, refusal: refusalOf(said, access) })),
    Effect.catchTag("RelayFailed", (error) => Effect.succeed({ taken: false, refusal: ofOwnGit(error) }))
  )
  // A push whose connection broke may have arrived, so ask the origin.
  const isThere = answer.taken || Option.getOrUndefined(yield* Effect.option(standing)) === tip
  if (isThere) return { at: tip, unchanged: false } satisfies Delivered
  return yield* answer.refusal
})

const refusalOf = (said: string, access: OriginAnswers.OriginAccess) =>
  new PushRefusal({
    detail: said === "" ? "git gave no reason" : said,
    ...OriginAnswers.pushFaultOf(said, access)
  })

/** The host's git failed. It may succeed later only if it took too long. */
const ofOwnGit = ({ detail, isRetryable, remedy }: RelayFailed) =>
  new PushRefusal({ fault: isRetryable ? "timeout" : "rejected", detail, remedy, isRetryable })

/** Whether the branch has the same files at another commit. A delivery that is repeated then changes nothing. */
const hasSameFiles = Effect.fnUntraced(function* (
  origin: RemoteOrigin.OriginOptions,
  { gitDirectory, ref, tip }: { readonly gitDirectory: string; readonly ref: string; readonly tip: string }
) {
  const { there } = HostRepository.refs
  const fetched = yield* Effect.option(
    RemoteOrigin.fetch(origin, { gitDirectory, source: ref, depth: 1, into: there })
  )
  if (Option.isNone(fetched)) return false
  const theirs = yield* HostRepository.objectAt(gitDirectory, `${there}^{tree}`)
  return theirs !== undefined && theirs === (yield* HostRepository.objectAt(gitDirectory, `${tip}^{tree}`))
})
