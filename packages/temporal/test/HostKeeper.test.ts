/** One contract for the keeper in memory and for a real server, over HTTP. */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import { Effect, Redacted, type Scope, Stream } from "effect"
import { FetchHttpClient } from "effect/http"
import { HostFacts } from "../../server/src/HostFacts.ts"
import * as ServerWorld from "../../server/test/ServerWorld.ts"
import * as Await from "../../../test/harness/Await.ts"
import * as HostKeeper from "../src/HostKeeper.ts"
import * as HttpHostKeeper from "../src/HttpHostKeeper.ts"
import * as Runs from "./Runs.ts"

interface Subject {
  readonly keeper: HostKeeper.Keeper
  readonly grantId: string
}

const task = (runId: string): HostKeeper.StartedTask => ({
  runId: RunId.make(runId),
  attempt: 2,
  request: Runs.request
})

const overHttp = Effect.gen(function* () {
  const { grant, url } = yield* ServerWorld.serve({ program: ServerWorld.lasting })
  const { id, token } = yield* grant()
  const stranger = yield* grant({ billingAccountId: "other" })
  const keeperOf = (secret: string, at = url) =>
    HttpHostKeeper.make({ url: at, token: Redacted.make(secret) })
  return {
    keeper: yield* keeperOf(token),
    grantId: id,
    stranger: yield* keeperOf(stranger.token),
    unknown: yield* keeperOf("cgs_unknown"),
    absent: yield* keeperOf(token, "http://127.0.0.1:1")
  }
}).pipe(Effect.orDie, Effect.provide(FetchHttpClient.layer))

const inMemory = Effect.map(HostKeeper.makeMemory(Runs.grant, [Runs.graphId]), ({ keeper }) => ({
  keeper,
  grantId: Runs.grant.id
}))

const contract = (make: Effect.Effect<Subject, never, Scope.Scope>) =>
  describe("keeps the contract of a keeper, and", () => {
    it.live("tells its grant and its graphs", () =>
      Effect.gen(function* () {
        const { grantId, keeper } = yield* make
        assert.deepInclude(yield* keeper.grant, { id: grantId, allowSandbox: true, mayWrite: true })
        assert.include(yield* keeper.graphIds, Runs.graphId)
        assert.deepStrictEqual((yield* keeper.host).missingGraphIds, [])
      })
    )

    it.live("starts a run once, and finds it when it is started again", () =>
      Effect.gen(function* () {
        const { keeper } = yield* make
        assert.isUndefined(yield* keeper.describe("run-keeper-1"))
        assert.strictEqual(yield* keeper.start(task("run-keeper-1")), "started")
        assert.strictEqual(yield* keeper.start(task("run-keeper-1")), "repeated")
        const run = yield* keeper.describe("run-keeper-1")
        assert.isFalse(HostKeeper.isOver(run!))
        yield* keeper.cancel("run-keeper-1")
        yield* over(keeper, "run-keeper-1")
        assert.strictEqual(yield* keeper.start(task("run-keeper-1")), "repeated")
      })
    )

    it.live("tells its events until the run has ended, and again from a number", () =>
      Effect.gen(function* () {
        const { keeper } = yield* make
        yield* keeper.start(task("run-keeper-2"))
        const [first] = yield* Stream.runCollect(Stream.take(keeper.follow("run-keeper-2", 0), 1))
        assert.deepStrictEqual(first, { id: 1, type: "run.started" })
        yield* keeper.cancel("run-keeper-2")
        const rest = yield* Stream.runCollect(keeper.follow("run-keeper-2", 1))
        assert.isTrue(rest.every(({ id }) => id > 1))
        assert.strictEqual(rest.at(-1)?.type, "run.ended")
        yield* over(keeper, "run-keeper-2")
        assert.deepStrictEqual(yield* Stream.runCollect(keeper.follow("run-keeper-2", rest.at(-1)!.id)), [])
      })
    )

    it.live("cancels a run, and accepts to cancel one that has ended or never was", () =>
      Effect.gen(function* () {
        const { keeper } = yield* make
        yield* keeper.start(task("run-keeper-3"))
        yield* keeper.cancel("run-keeper-3")
        yield* over(keeper, "run-keeper-3")
        assert.strictEqual((yield* keeper.describe("run-keeper-3"))?.status, "interrupted")
        yield* keeper.cancel("run-keeper-3")
        yield* keeper.cancel("run-keeper-none")
      })
    )

    it.live("has nothing to deliver for a run without commits", () =>
      Effect.gen(function* () {
        const { keeper } = yield* make
        assert.isUndefined(yield* keeper.deliver("run-keeper-none"))
      })
    )
  })

/** Waits until a run has ended, and nothing of it is left. */
const over = (keeper: HostKeeper.Keeper, runId: string) =>
  Await.until(
    `${runId} has ended`,
    Effect.map(keeper.describe(runId), (run) => run !== undefined && HostKeeper.isOver(run))
  )

describe("a keeper in memory", () => {
  contract(inMemory)
})

describe("a keeper over HTTP", () => {
  contract(overHttp)

  it.live("tells the ID of its host, and the graphs whose image is missing", () =>
    Effect.gen(function* () {
      const { keeper } = yield* overHttp
      assert.deepStrictEqual(yield* keeper.host, { hostId: "host-a", missingGraphIds: [Runs.graphId] })
    }).pipe(
      Effect.provideService(HostFacts, { hostId: "host-a", missingGraphIds: Effect.succeed([Runs.graphId]) })
    )
  )

  it.live("refuses the run ID of another account, and does not tell of its run", () =>
    Effect.gen(function* () {
      const { keeper, stranger } = yield* overHttp
      yield* keeper.start(task("run-keeper-4"))
      const refused = yield* Effect.flip(stranger.start(task("run-keeper-4")))
      assert.deepInclude(refused, { _tag: "KeeperRefused", status: 409 })
      assert.isUndefined(yield* stranger.describe("run-keeper-4"))
      yield* keeper.cancel("run-keeper-4")
      yield* over(keeper, "run-keeper-4")
    })
  )

  it.live("tells an unknown token from a server that does not answer", () =>
    Effect.gen(function* () {
      const { absent, unknown } = yield* overHttp
      const refused = yield* Effect.flip(unknown.grant)
      assert.deepInclude(refused, { _tag: "KeeperRefused", status: 403, isForNow: false })
      assert.notInclude(refused.message, "cgs_")
      assert.strictEqual((yield* Effect.flip(absent.grant))._tag, "KeeperUnreachable")
    })
  )
})
