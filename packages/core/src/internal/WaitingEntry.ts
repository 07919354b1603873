/** One waiting sandbox of a pool: how it is started, and how it is removed with its directories. */
import { Effect, Exit, Scope } from "effect"
import * as MonotonicTime from "../MonotonicTime.ts"
import type { ContainerError, ContainerRuntime } from "../ContainerRuntime.ts"
import type { Waiting } from "../PoolPolicy.ts"
import { RunId } from "../RunId.ts"
import {
  type HostFailed,
  type PostureMismatch,
  RuntimeUnavailable,
  type WorkspaceFailed
} from "../SandboxReason.ts"
import type { SandboxShape } from "../SandboxShape.ts"
import {
  loadSecondsMax,
  type PreparedDirectories,
  type WaitingContainer,
  type WaitingSpec
} from "../WaitingSandbox.ts"
import type { Workspace } from "../Workspace.ts"
import * as Release from "./Release.ts"
import { stepSecondsMax, within } from "./RunLife.ts"

/** Why a sandbox does not wait. */
type Failure = ContainerError | HostFailed | PostureMismatch | WorkspaceFailed | { readonly message: string }

/** A shape, and the limits that its next sandbox is created with. */
export interface Plan {
  readonly key: string
  readonly shape: SandboxShape
  readonly limits: WaitingSpec["limits"]
  readonly waitSecondsMax: number
}

export interface WaitingEntry extends Waiting, Plan {
  readonly prepared: PreparedDirectories
  readonly container: WaitingContainer
  /** Whether no process is left in it, so that no run needs to wait for its removal. */
  isEmpty: boolean
  /** How long it took to be ready. */
  readonly startMillis: number
  /** Removes the container. Does nothing if that was done before. */
  readonly removeContainer: Effect.Effect<void>
  /** Removes the container, then its directories. */
  readonly remove: Effect.Effect<void>
}

/** Operations of the ports that make waiting sandboxes. */
export interface Makers {
  readonly sharesHost: ContainerRuntime["Service"]["sharesHost"]
  readonly prepareContainer: NonNullable<ContainerRuntime["Service"]["prepare"]>
  readonly prepareDirectories: NonNullable<Workspace["Service"]["prepare"]>
}

/** A random ID, which is never that of a run. */
const waitingId: Effect.Effect<RunId> = Effect.sync(() =>
  RunId.make(`waiting-${crypto.randomUUID().replaceAll("-", "")}`)
)

const closing = (name: string, scope: Scope.Closeable) =>
  Release.bounded(`release of ${name}`, Scope.close(scope, Exit.void))

const elsewhere = new RuntimeUnavailable({
  detail: "cannot mount directories of this host, which every waiting sandbox needs",
  remedy: "Use an engine on this host, or turn the pool off",
  isPermanent: true
})

const tooSlow = (seconds: number) =>
  new RuntimeUnavailable({
    detail: `did not start a waiting sandbox within ${seconds} s`,
    remedy: "Check its load and its log"
  })

/**
 * Starts a sandbox and lets it wait, unless `meanwhile` fails first. If that fails or is interrupted, nothing of it
 * remains.
 */
export const start: (
  makers: Makers,
  plan: Plan,
  meanwhile: Effect.Effect<never, Failure>
) => Effect.Effect<WaitingEntry, Failure> = Effect.fnUntraced(function* (
  { prepareContainer, prepareDirectories, sharesHost },
  plan,
  meanwhile
) {
  const beganMillis = yield* MonotonicTime.nowMillis
  const id = yield* waitingId
  const [forContainer, forDirectories] = [yield* Scope.make(), yield* Scope.make()]
  const removeContainer = closing("a waiting sandbox", forContainer)
  const remove = Effect.andThen(
    removeContainer,
    closing("the directories of a waiting sandbox", forDirectories)
  )
  const { limits, shape, waitSecondsMax } = plan
  return yield* Effect.gen(function* () {
    if (!(yield* sharesHost)) return yield* elsewhere
    const prepared = yield* Scope.provide(
      prepareDirectories({ memory: shape.memory, user: shape.user }),
      forDirectories
    )
    const container = yield* Scope.provide(
      prepareContainer({
        waitingId: id,
        image: shape.image,
        user: prepared.user,
        mounts: prepared.mounts,
        supervised: shape.supervised,
        ...(shape.preload === undefined ? {} : { preload: shape.preload }),
        limits: { ...limits, ...shape.limits },
        waitSecondsMax
      }),
      forContainer
    )
    const sinceMillis = yield* MonotonicTime.nowMillis
    const startMillis = sinceMillis - beganMillis
    return {
      ...plan,
      id,
      sinceMillis,
      startMillis,
      prepared,
      container,
      isEmpty: false,
      removeContainer,
      remove
    } satisfies WaitingEntry
  }).pipe(
    // Inside of what removes it, so that a sandbox that is ready in the same moment is not lost.
    Effect.raceFirst(meanwhile),
    within(tooSlow, stepSecondsMax + (shape.preload === undefined ? 0 : loadSecondsMax)),
    Effect.onError(() => remove)
  )
})
