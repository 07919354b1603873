/** Clones a remote origin into a repository of the relay: git on the host lists its references and fetches. */
import { Effect } from "effect"
import * as HostRepository from "../git/HostRepository.ts"
import { originAt, RelayContext } from "../steps/RelayContext.ts"
import type { Begin, CloneTarget } from "./PathClone.ts"
import * as RemoteOrigin from "./RemoteOrigin.ts"

/** Fetches through the cache if a mirror is available in time, and directly otherwise. */
export const read = Effect.fnUntraced(function* (target: CloneTarget, begin: Begin) {
  const { cache } = yield* RelayContext
  const { baseBranch, baseCommit, depth, gitDirectory, url } = target
  const origin = yield* originAt(url)
  const wanted = baseBranch === undefined ? [] : [`refs/heads/${baseBranch}`]
  const advertised = yield* RemoteOrigin.advertised(origin, ["HEAD", ...wanted])
  const base = yield* begin(advertised)
  const { objectFormat } = advertised
  const source = baseCommit ?? `refs/heads/${base.branch}`
  const into = HostRepository.refs.base
  const mirror =
    cache === undefined ? undefined : yield* cache.fetched(origin, { source, depth, objectFormat })
  if (mirror === undefined) yield* RemoteOrigin.fetch(origin, { gitDirectory, source, depth, into })
  else {
    yield* HostRepository.transplant(mirror, gitDirectory, "link")
    yield* HostRepository.setRef(gitDirectory, into, yield* HostRepository.commitAt(mirror, into))
  }
  return { base, objectFormat }
}, Effect.scoped)
