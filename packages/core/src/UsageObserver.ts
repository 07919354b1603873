/**
 * Observer of what the model calls of each run used: the place to bill an account.
 *
 *     run, open sandbox, host-side loop ─► the proxy's socket … finish ─► the observer, once
 *
 * A proxy with a key requires one when it is built. A composition without an observer does not compile, and one that
 * needs none says `layerNone`. The observer hears a run when its socket closes, on every path, also that of a sandbox
 * from `open`, which has no result. A killed process tells nothing: a ledger settles its runs (`LedgerLlmProxy` of
 * `@cogni/sandbox-ledger`).
 */
import { Context, Effect, Layer } from "effect"
import { LlmProxy } from "./LlmProxy.ts"
import type { LlmTraffic } from "./RunFigures.ts"
import type { RunId } from "./RunId.ts"
import type { LlmIdentity } from "./SpecFields.ts"

/** How long the end of a run waits for its observer, in seconds. */
const observeSecondsMax = 30

/** Usage of a run with a model. */
export interface ObservedUsage {
  readonly runId: RunId
  /** Names the account that pays. */
  readonly identity: LlmIdentity
  readonly model: string
  /** Its calls, the sum of their usage, and its audit. A proxy that reads no answers reports no usage. */
  readonly traffic: LlmTraffic
}

/**
 * Called once for each run with a model, before the resources of the run are released. The end of the run waits for it,
 * at most 30 seconds. A failure or a defect is logged and does not change the run.
 */
type Observe = (usage: ObservedUsage) => Effect.Effect<void, unknown>

export class UsageObserver extends Context.Service<
  UsageObserver,
  {
    /** Absent if usage is only in the results and the records of runs. */
    readonly observe?: Observe | undefined
  }
>()("@cogni/sandbox-core/UsageObserver") {}

/** Calls `observe` at the end of every run with a model. */
export const layer = (observe: Observe): Layer.Layer<UsageObserver> =>
  Layer.succeed(UsageObserver, { observe })

/** No observer: usage is only in the results and the records of runs, or in a ledger around the proxy. */
export const layerNone: Layer.Layer<UsageObserver> = Layer.succeed(UsageObserver, {})

/** Wraps a proxy, so that the observer hears each of its runs. For proxies of your own: ours do it themselves. */
export const observed = (
  proxy: LlmProxy["Service"]
): Effect.Effect<LlmProxy["Service"], never, UsageObserver> =>
  Effect.map(UsageObserver, ({ observe }) =>
    observe === undefined ? proxy : LlmProxy.of({ ...proxy, acquire: acquireWith(proxy, observe) })
  )

const acquireWith = (proxy: LlmProxy["Service"], observe: Observe): LlmProxy["Service"]["acquire"] =>
  Effect.fnUntraced(function* (request) {
    const endpoint = yield* proxy.acquire(request)
    const { llm, runId } = request
    if (llm === undefined) return endpoint
    const { identity, model } = llm
    let told = false
    const tell = (traffic: LlmTraffic) =>
      Effect.suspend(() => {
        if (told) return Effect.void
        told = true
        return Effect.interruptible(observe({ runId, identity, model, traffic }))
      }).pipe(
        Effect.timeout(`${observeSecondsMax} seconds`),
        Effect.catchCause((cause) =>
          Effect.logWarning(`the observer of usage failed for run ${runId}${auditOf(traffic)}`, cause)
        ),
        Effect.uninterruptible
      )
    const finish = Effect.tap(endpoint.finish, tell)
    // Finalizers run in reverse order: the proxy still knows its calls.
    yield* Effect.addFinalizer(() =>
      Effect.suspend(() => (told ? Effect.void : finish)).pipe(
        Effect.catch(({ message }) =>
          Effect.logWarning(
            `the observer of usage does not hear run ${runId}: its calls are unknown. ${message}`
          )
        )
      )
    )
    return { ...endpoint, finish }
  })

const auditOf = ({ auditPath }: LlmTraffic): string =>
  auditPath === undefined ? "" : `. Its calls are in ${auditPath}`
