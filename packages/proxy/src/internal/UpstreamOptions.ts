/** Checks the options that lead to the upstream. An invalid option is a fault of the host's operator. */
import { Misconfigured } from "@cogni/sandbox-core/SandboxError"
import { Result } from "effect"
import * as KeyInjection from "../KeyInjection.ts"
import * as Upstream from "../Upstream.ts"
import type { Header } from "./policy/RoutePolicy.ts"

/** Parses the upstream's URL. `option` is the name of the option that sets it. */
export const address = (
  upstream: Upstream.Upstream,
  option: string
): Result.Result<Upstream.Address, Misconfigured> =>
  Result.mapError(
    Upstream.address(upstream),
    ({ problem, remedy }) => new Misconfigured({ option, detail: problem, remedy })
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
    option: subject === "key" ? option : "llm.identity.billingAccountId",
    detail: `${problem}, so no header can carry it`,
    remedy
  })
