/** Checks the options that lead to the upstream. An invalid option is a fault of the host's operator. */
import { Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import { Result } from "effect"
import * as EgressProxy from "../EgressProxy.ts"
import * as KeyInjection from "../KeyInjection.ts"
import * as Upstream from "../Upstream.ts"
import type { Header } from "./policy/RoutePolicy.ts"

/** Names of the options, as a proxy calls them. */
export interface Names {
  readonly url: string
  readonly profile: string
  readonly egressProxy: string
}

/** Parses the upstream's URL, and selects its profile. */
export const resolve = (
  upstream: Upstream.Upstream,
  options: Upstream.ProfileOptions,
  names: Names
): Result.Result<Upstream.ResolvedUpstream, Misconfigured> =>
  Result.mapError(
    Upstream.resolve(upstream, options),
    ({ _tag, problem, remedy }) =>
      new Misconfigured({
        option: _tag === "ProfileRefused" ? names.profile : names.url,
        detail: problem,
        remedy
      })
  )

/** Returns the URL of the HTTP proxy if the upstream is reached through it. */
export const egressProxy = (
  proxy: EgressProxy.EgressProxy | undefined,
  address: Upstream.Address,
  names: Names
): Result.Result<string | undefined, Misconfigured> =>
  Result.mapError(
    EgressProxy.resolve(proxy, address),
    ({ problem, remedy }) => new Misconfigured({ option: names.egressProxy, detail: problem, remedy })
  )

export const checkKey = (key: KeyInjection.UpstreamKey, option: string): Result.Result<void, Misconfigured> =>
  Result.mapError(KeyInjection.check(key), (error) => unusable(error, option))

/** Builds the headers of a run. Fails if its identity cannot be a header. */
export const headers = (
  injection: KeyInjection.Injection,
  option: string
): Result.Result<ReadonlyArray<Header>, Misconfigured> =>
  Result.mapError(KeyInjection.inject(injection), (error) => unusable(error, option))

const unusable = ({ problem, remedy, subject }: KeyInjection.UnusableHeader, option: string) =>
  new Misconfigured({
    option: subject === "billing account" ? "llm.identity.billingAccountId" : option,
    detail: `${problem}, so no header can carry it`,
    remedy
  })
