/**
 * Program of a shard: a thread that serves the sockets of one run, or of several if there are more runs than threads.
 *
 * Agents' HTTP is parsed only here. The main thread gets their bytes only as requests to tools, and as opaque streams
 * of the container carrier.
 */
import * as Effect from "effect/Effect"
import type { MessagePort } from "node:worker_threads"
import * as AuditRecovery from "../audit/AuditRecovery.ts"
import * as CallbackFibers from "../CallbackFibers.ts"
import type { Shared } from "../gateway/GatewayRun.ts"
import * as Inspector from "../gateway/Inspector.ts"
import * as ProcessorMeter from "../gateway/ProcessorMeter.ts"
import * as UpstreamClient from "../gateway/UpstreamClient.ts"
import * as UpstreamKeys from "../gateway/UpstreamKeys.ts"
import * as Mirror from "../packages/Mirror.ts"
import type { ThreadCode } from "../ThreadCode.ts"
import type { ShardCounters } from "./ShardCounters.ts"
import type { FromRecovery, ShardConfig, ShardStart, ToShard } from "./ShardMessage.ts"
import * as ShardRun from "./ShardRun.ts"

/** Ends the thread after a defect. Its runs fail at once, and another thread closes their audits. */
const crash = (thrown: unknown): Effect.Effect<never> =>
  Effect.andThen(
    Effect.sync(() =>
      setImmediate(() => {
        throw thrown
      })
    ),
    Effect.never
  )

/** Serves the runs that the main thread sends. Ends with its thread. */
export const program = (
  parent: MessagePort,
  counters: ShardCounters,
  { inspection, slot }: Pick<ShardStart, "inspection" | "slot">
): Effect.Effect<never> =>
  Effect.gen(function* () {
    const messages = yield* CallbackFibers.make
    const meter = ProcessorMeter.make()
    const own = new Set<MessagePort>()
    let runs = 1
    let shard: ShardRun.Shard | undefined

    const recover = ({ port, run }: Extract<ToShard, { type: "recover" }>) =>
      AuditRecovery.recover(shard!.config, run, meter).pipe(
        Effect.match({
          onSuccess: (traffic): FromRecovery => ({ type: "recovered", traffic }),
          onFailure: ({ detail, remedy }): FromRecovery => ({ type: "failed", problem: { detail, remedy } })
        }),
        Effect.catchDefect(crash),
        Effect.map((told) => {
          port.postMessage(told, [])
          port.close()
        })
      )
    const open = ({ port, run }: Extract<ToShard, { type: "open" }>) => {
      own.add(port)
      return ShardRun.serve(shard!, run, port).pipe(
        Effect.catchDefect(crash),
        Effect.ensuring(Effect.sync(() => own.delete(port)))
      )
    }

    parent.on("message", (message: ToShard) => {
      switch (message.type) {
        case "configure":
          shard = {
            config: message.config,
            counters,
            slot,
            meter,
            runs: () => runs,
            fork: messages.fork,
            shared: sharedOf(message.config, inspection, () => own.size === 1)
          }
          return
        case "runs":
          runs = message.runs
          return
        case "recover":
          return messages.fork(recover(message))
        case "open":
          return messages.fork(open(message))
      }
    })
    return yield* Effect.never
  }).pipe(Effect.scoped)

const sharedOf = (
  { key, keyKind, ...config }: ShardConfig,
  inspection: ThreadCode,
  isAlone: () => boolean
): Shared => {
  const inspector = Inspector.make({ code: inspection, isAlone })
  const { certificateAuthorities, connectSecondsMax, packages } = config
  return {
    ...config,
    client: UpstreamClient.make(config),
    inspector,
    keys: UpstreamKeys.make(keyKind, key),
    ...(packages === undefined
      ? {}
      : { mirror: Mirror.make({ config: packages, connectSecondsMax, certificateAuthorities, inspector }) })
  }
}
