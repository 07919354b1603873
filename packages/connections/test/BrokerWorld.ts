/** A broker in memory: its sources answer what a test says, and count how often they were asked. */
import type { Connection } from "@cogni/sandbox-connections/Connection"
import * as ConnectionBroker from "@cogni/sandbox-connections/ConnectionBroker"
import type { ConnectionAuthority } from "@cogni/sandbox-connections/ConnectionDecision"
import { ConnectionStoreUnavailable } from "@cogni/sandbox-connections/ConnectionReason"
import { ConnectionStore } from "@cogni/sandbox-connections/ConnectionStore"
import * as Store from "@cogni/sandbox-connections/ConnectionStore"
import type { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import type { CredentialSource, Issued, SourceProblem } from "@cogni/sandbox-connections/CredentialSource"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import { Context, Effect, Layer, Logger, Redacted } from "effect"
import { inspect } from "node:util"
import * as Cases from "./ConnectionCases.ts"

/** Occurs in every credential and secret of these tests, and must occur nowhere else. */
export const planted = "planted-token"

export const authority: ConnectionAuthority = Cases.permitted.authority

export const push = {
  purpose: "push",
  repository: "https://github.com/acme/app.git"
} as const

/** Parts of the world that a test changes while it runs. */
export interface World {
  /** Answer of the source. */
  issue: Effect.Effect<Issued, SourceProblem>
  authority: ConnectionAuthority
  /** Whether the store answers. */
  isUp: boolean
  /** How often a source was asked, or a secret read. */
  looks: number
  revoked: number
  /** Effect that makes a credential invalid. */
  revoke: Effect.Effect<void>
  readonly logs: Array<string>
  connections: ReadonlyArray<Connection>
}

export const issued: Issued = {
  secret: Redacted.make(`${planted}-1`),
  expiresAt: undefined,
  claims: {}
}

const makeWorld = (): World => ({
  issue: Effect.succeed(issued),
  authority,
  isUp: true,
  looks: 0,
  revoked: 0,
  revoke: Effect.void,
  logs: [],
  connections: Cases.permitted.connections
})

/** A source of the world, for a kind. */
const sourceOf = (
  world: World,
  { ignoresCase, states }: Pick<CredentialSource, "ignoresCase" | "states">
): CredentialSource => ({
  kind: "github_app",
  states,
  ignoresCase,
  issue: () =>
    Effect.suspend(() => {
      world.looks += 1
      return Effect.map(world.issue, (one) => ({
        ...one,
        revoke: Effect.andThen(
          Effect.sync(() => {
            world.revoked += 1
          }),
          world.revoke
        )
      }))
    })
})

/** The store in memory, which can be down, and has the connections of the world. */
const storeOf = (world: World) =>
  Layer.effect(
    ConnectionStore,
    Effect.map(Effect.provide(Effect.service(ConnectionStore), Store.layerMemory), (inner) => {
      const up = <A, E>(effect: Effect.Effect<A, E>) =>
        Effect.suspend((): Effect.Effect<A, E | ConnectionStoreUnavailable> =>
          world.isUp
            ? effect
            : Effect.fail(new ConnectionStoreUnavailable({ detail: "is down", remedy: "Start it" }))
        )
      return ConnectionStore.of({
        ...inner,
        list: () => up(Effect.sync(() => world.connections)),
        secret: (id) =>
          Effect.suspend(() => {
            world.looks += 1
            return inner.secret(id)
          }),
        record: (use) => up(inner.record(use)),
        isLive: (lease) =>
          up(
            Effect.map(
              // The world has its own connections, of which the inner store knows none.
              inner.isLive({ ...lease, connectionId: "host/of-the-world" }),
              (isLive) =>
                isLive &&
                world.connections.some(({ id, revokedAt }) => id === lease.connectionId && revokedAt === null)
            )
          )
      })
    })
  )

/** Collects what is logged, as an operator could see it. */
const logs = (world: World) =>
  Logger.layer([Logger.make(({ message }) => void world.logs.push(inspect(message, { depth: 9 })))])

/** One test has the uses of many runs. */
const many = { ofRun: 1000, ofAccount: 2000 }

export const make = (states: CredentialSource["states"] = [], ignoresCase = false, usesPerMinute = many) =>
  Effect.gen(function* () {
    const world = makeWorld()
    const context = yield* Layer.build(
      ConnectionBroker.layer({ sources: [sourceOf(world, { states, ignoresCase })], usesPerMinute }).pipe(
        Layer.provideMerge(Layer.merge(storeOf(world), SecretBox.layerNone)),
        Layer.provideMerge(logs(world))
      )
    )
    const user: ConnectionUser = {
      billingAccountId: "account-a",
      runId: "run-12345678",
      authority: Effect.sync(() => world.authority)
    }
    return {
      world,
      user,
      context,
      broker: Context.get(context, ConnectionBroker.ConnectionBroker),
      store: Context.get(context, ConnectionStore)
    }
  })
