/** Checks the options of a proxy that is an nginx, for one run or for many. */
import { enforcedInBodies, type LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import type { User } from "@cogni/sandbox-core/Posture"
import { named } from "@cogni/sandbox-core/Remedy"
import { Misconfigured, ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import type { LlmAccess } from "@cogni/sandbox-core/SpecFields"
import { Result } from "effect"
import type * as EgressProxy from "../../EgressProxy.ts"
import type * as KeyInjection from "../../KeyInjection.ts"
import type * as Upstream from "../../Upstream.ts"
import * as UpstreamProfile from "../../UpstreamProfile.ts"
import * as UpstreamOptions from "../UpstreamOptions.ts"

interface Options extends Upstream.ProfileOptions {
  readonly upstream: Upstream.Upstream
  readonly key: KeyInjection.UpstreamKey
  readonly identitySecret?: KeyInjection.UpstreamKey | undefined
  readonly egressProxy?: EgressProxy.EgressProxy | undefined
}

/** Names of the options, as the proxy calls them. */
interface Names extends UpstreamOptions.Names {
  readonly key: string
}

/** Parses the upstream, and refuses what only the gateway can do. */
export const resolve = (
  options: Options,
  names: Names
): Result.Result<Upstream.ResolvedUpstream, Misconfigured> =>
  Result.gen(function* () {
    const resolved = yield* UpstreamOptions.resolve(options.upstream, options, names)
    const needed = needsBodies(resolved.profile, options)
    if (needed !== undefined)
      return yield* Result.fail(
        new Misconfigured({
          option: names.profile,
          detail: `${needed}, and nginx does not read bodies`,
          remedy: `Use ${named("GatewayLlmProxy")}`
        })
      )
    const proxyUrl = yield* UpstreamOptions.egressProxy(options.egressProxy, resolved.address, names)
    if (proxyUrl !== undefined)
      return yield* Result.fail(
        new Misconfigured({
          option: names.egressProxy,
          detail: `is needed for ${resolved.address.display}, and nginx cannot use it`,
          remedy: `Use ${named("GatewayLlmProxy")}, or list the upstream in NO_PROXY`
        })
      )
    yield* UpstreamOptions.checkKey(options.key, names.key)
    return resolved
  })

/** Returns why only the gateway, which reads bodies, can serve a profile. */
const needsBodies = (
  profile: UpstreamProfile.UpstreamProfile,
  { identitySecret }: Options
): string | undefined =>
  UpstreamProfile.namesModel(profile)
    ? "puts the model into the path"
    : UpstreamProfile.isOpen(profile, "embeddings")
      ? "opens embeddings"
      : Object.values(profile.bodyFields).some((fields) => Object.keys(fields).length > 0)
        ? "opens body fields"
        : identitySecret !== undefined
          ? "comes with a secret for pseudonyms"
          : undefined

/**
 * Returns the model access of a run. Refuses a run whose limits nginx could not enforce, because a caller may come here
 * without a runner, which refuses such a run too.
 */
export const served = (
  { canaries, llm }: Pick<LlmRequest, "canaries" | "llm">,
  proxy: string
): Result.Result<LlmAccess, Misconfigured | ProxyFailed> => {
  if (llm === undefined) return Result.fail(onlyModels)
  const unread = enforcedInBodies({ canaries: canaries.policy, llm })
  return unread.length === 0
    ? Result.succeed(llm)
    : Result.fail(
        new Misconfigured({
          option: proxy,
          detail: `cannot enforce ${unread.join(", ")}, because nginx does not read bodies`,
          remedy: `Use ${named("GatewayLlmProxy")}, or leave out what it cannot enforce`
        })
      )
}

/** A run without a model. */
const onlyModels = new ProxyFailed({
  detail: "nginx serves only models, and the run has none",
  remedy: `Use ${named("GatewayLlmProxy")}`
})

/** The image's own user if the host process is root, else the host process's user, because both share files. */
export const proxyUser = (): User => {
  const userId = process.getuid?.() ?? 0
  return userId === 0 ? { userId: 999, groupId: 999 } : { userId, groupId: process.getgid?.() ?? userId }
}
