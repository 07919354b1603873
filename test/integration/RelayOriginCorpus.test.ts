/**
 * Local repositories as an agent may have left them, tested twice. On a careless host, each attack must work. On the
 * relay, nothing may run on the host or in the container, and the branch must arrive or the repository be refused.
 * Then special files that git would wait for.
 */
import { assert, describe, it, layer } from "@effect/vitest"
import type { Clone } from "@cogni/sandbox-git-relay/RelaySteps"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { Duration, Effect } from "effect"
import { existsSync, mkdirSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Pace from "../harness/Pace.ts"
import * as RelayHarness from "../harness/RelayHarness.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import { run } from "../relay-corpus/Making.ts"
import { refsOf } from "../relay-corpus/Origin.ts"
import * as Origins from "../relay-corpus/Origins.ts"

const live = { excludeTestServices: true } as const
const patience = 170_000

/** Limit for errors about special files. The relay's own limits, which would also end a wait, are minutes. */
const saidSoonMillis = 5000

const saidSoon = Effect.fnUntraced(function* <A, E, R>(relaying: Effect.Effect<A, E, R>) {
  const [took, said] = yield* Effect.timed(relaying)
  assert.isAtMost(Duration.toMillis(took), Pace.allowed(saidSoonMillis))
  return said
})

const prepared = Effect.gen(function* () {
  const directory = join(yield* RunHarness.Directory, crypto.randomUUID())
  mkdirSync(directory)
  return yield* Effect.promise(() => Origins.prepare(directory))
})

describe.concurrent("a careless host", () => {
  layer(RunHarness.Directory.layer, live)("", (it) => {
    for (const { name, plant, unshown } of Origins.hostile) {
      if (unshown !== undefined) continue
      it.effect(
        `runs a program that a local repository names: ${name}`,
        () =>
          Effect.gen(function* () {
            const planted = yield* prepared
            yield* Effect.promise(async () => plant(planted))
            assert.isFalse(existsSync(planted.marker), "the payload ran while it was planted")
            const tried = yield* Effect.promise(() => Origins.careless(planted))
            assert.isTrue(existsSync(planted.marker), `nothing ran: ${tried.join("; ")}`)
          }),
        patience
      )
    }
  })
})

/** Number of compatible attacks that share a repository in one test. None of them may work. */
const together = 7

const trials: ReadonlyArray<ReadonlyArray<Origins.HostileOrigin>> = (() => {
  const alone = Origins.hostile.filter((one) => one.alone === true)
  const rest = Origins.hostile.filter((one) => one.alone !== true)
  const groups = Array.from({ length: Math.ceil(rest.length / together) }, (_, index) =>
    rest.slice(index * together, (index + 1) * together)
  )
  return [...groups, ...alone.map((one) => [one])]
})()

/** Commits in the clone as an agent would, and returns the commit ID. */
const work = ({ workspacePath }: Clone) =>
  Effect.promise(async () => {
    const repository = join(workspacePath, "repo")
    const { gid, uid } = statSync(repository)
    writeFileSync(join(repository, "README.md"), "by the agent\n")
    await run(["git", "-C", repository, "commit", "-qam", "work"])
    await run(["chown", "-R", "-P", "-h", `${uid}:${gid}`, workspacePath])
    return run(["git", "-C", repository, "rev-parse", "HEAD"])
  })

const relayed = Effect.fnUntraced(function* (planted: Origins.Planted) {
  const relay = yield* GitRelay
  const clone = yield* relay.clone({ runId: yield* RelayHarness.runId, url: planted.repository })
  const gitDirectory = join(planted.repository, ".git")
  const main = refsOf(gitDirectory).get("refs/heads/main")
  const tip = yield* work(clone)
  const pushed = yield* relay.push(yield* relay.check(yield* relay.collect(clone)))
  assert.strictEqual(pushed.tip, tip)
  const refs = refsOf(gitDirectory)
  assert.strictEqual(refs.get(`refs/heads/${clone.branch}`), tip)
  assert.strictEqual(refs.get("refs/heads/main"), main, "the checked-out branch has changed")
}, Effect.scoped)

/** Owners of a repository. The host process writes to root's, a container to those of other users. */
const owners = [
  { whose: "root's", userId: 0 },
  { whose: "a user's", userId: 1234 }
] as const

// Long enough that only a refusal ends a wait, not a time limit.
const relay = RelayHarness.layer({ limits: { transferSecondsMax: 900, collectSecondsMax: 900 } })

describe.concurrent("the relay", () => {
  layer(relay, live)("", (it) => {
    for (const [index, trial] of trials.entries()) {
      const { wants } = trial[0]!
      for (const { userId, whose } of trial[0]!.alone === true ? [owners[index % 2]!] : owners) {
        const names = trial.map(({ name }) => name).join("; ")
        const how = wants === "delivered" ? "delivers" : "refuses"
        it.effect(
          `runs nothing from ${whose} local repository, and ${how}: ${names}`,
          () =>
            Effect.gen(function* () {
              const planted = yield* prepared
              yield* Effect.promise(async () => {
                for (const { plant } of trial) await plant(planted)
                await run(["chown", "-R", "-P", "-h", `${userId}:${userId}`, planted.repository])
              })
              if (wants === "delivered") yield* relayed(planted)
              else {
                const { message, reason } = yield* Effect.flip(relayed(planted))
                assert.strictEqual(reason._tag, "OriginUnavailable")
                assert.match(message, new RegExp(wants))
              }
              assert.isFalse(existsSync(planted.marker), "a payload ran on the host")
              const inside = join(planted.repository, ".git", Origins.ranInside)
              assert.isFalse(existsSync(inside), "a payload ran in the container")
            }),
          patience
        )
      }
    }

    for (const { name, plant, wants } of [...Origins.specialFiles, ...Origins.links]) {
      it.effect(
        `names a special file or link in a local repository, and does not wait for it: ${name}`,
        () =>
          Effect.gen(function* () {
            const relay = yield* GitRelay
            const { repository } = yield* prepared
            yield* Effect.promise(async () => plant(join(repository, ".git")))
            const asked = { runId: yield* RelayHarness.runId, url: repository }
            const { message, reason } = yield* saidSoon(Effect.flip(Effect.scoped(relay.clone(asked))))
            assert.isTrue(reason._tag === "OriginUnavailable" && reason.fault === "unsupported", message)
            assert.match(message, new RegExp(wants))
          }),
        patience
      )
    }

    for (const { name, plant, wants } of Origins.specialFiles.filter((_, index) => index % 4 === 0)) {
      it.effect(
        `names a special file in an agent's repository, and does not wait for it: ${name}`,
        () =>
          Effect.gen(function* () {
            const relay = yield* GitRelay
            const { repository } = yield* prepared
            const clone = yield* relay.clone({ runId: yield* RelayHarness.runId, url: repository })
            yield* work(clone)
            yield* Effect.promise(async () => plant(join(clone.workspacePath, "repo/.git")))
            const { message, reason } = yield* saidSoon(Effect.flip(relay.collect(clone)))
            assert.strictEqual(reason._tag, "BundleRefused", message)
            assert.match(message, new RegExp(wants))
            yield* relay.discard(clone.request.runId)
          }).pipe(Effect.scoped),
        patience
      )
    }

    it.effect("delivers nothing if a special file was planted after the clone", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const { repository } = yield* prepared
        const clone = yield* relay.clone({ runId: yield* RelayHarness.runId, url: repository })
        yield* work(clone)
        const checked = yield* relay.check(yield* relay.collect(clone))
        yield* Effect.promise(() => run(["mkfifo", join(repository, ".git/packed-refs")]))
        const { message, reason } = yield* saidSoon(Effect.flip(relay.push(checked)))
        assert.strictEqual(reason._tag, "PushRefused", message)
        assert.include(message, "packed-refs is a FIFO")
        yield* relay.discard(clone.request.runId)
      }).pipe(Effect.scoped)
    )

    it.effect(
      "delivers nothing through a link, and keeps the commits",
      () =>
        Effect.forEach(Origins.links.slice(0, 6), ({ name, plant, wants }) =>
          Effect.gen(function* () {
            const relay = yield* GitRelay
            const { repository } = yield* prepared
            const own = () => run(["chown", "-R", "-P", "-h", "1234:1234", repository])
            yield* Effect.promise(own)
            const clone = yield* relay.clone({ runId: yield* RelayHarness.runId, url: repository })
            yield* work(clone)
            const checked = yield* relay.check(yield* relay.collect(clone))
            yield* Effect.promise(async () => {
              await plant(join(repository, ".git"))
              await own()
            })
            const { message, reason } = yield* saidSoon(Effect.flip(relay.push(checked)))
            assert.strictEqual(reason._tag, "PushRefused", `${name}: ${message}`)
            assert.match(message, new RegExp(wants))
            const kept = (yield* relay.kept).map(({ runId }) => runId)
            assert.include(kept, clone.request.runId, name)
            yield* relay.discard(clone.request.runId)
          }).pipe(Effect.scoped)
        ),
      patience
    )

    it.effect("delivers the commits if a FIFO has replaced a file", () =>
      Effect.gen(function* () {
        const relay = yield* GitRelay
        const { repository } = yield* prepared
        const clone = yield* relay.clone({ runId: yield* RelayHarness.runId, url: repository })
        const tip = yield* work(clone)
        const path = join(clone.workspacePath, "repo/app.js")
        yield* Effect.promise(() => run(["sh", "-c", 'rm "$0" && mkfifo -m 666 "$0"', path]))
        const collected = yield* saidSoon(relay.collect(clone, { uncommittedMessage: "left" }))
        assert.strictEqual((yield* relay.push(yield* relay.check(collected))).tip, tip)
      }).pipe(Effect.scoped)
    )

    for (const { name, plant, wants } of Origins.waits) {
      it.effect(
        `refuses to commit leftovers, without a wait, because of ${name}`,
        () =>
          Effect.gen(function* () {
            const relay = yield* GitRelay
            const { repository } = yield* prepared
            const clone = yield* relay.clone({ runId: yield* RelayHarness.runId, url: repository })
            yield* Effect.promise(async () => {
              const path = join(clone.workspacePath, "repo")
              const { gid, uid } = statSync(path)
              writeFileSync(join(path, "README.md"), "by the agent\n")
              await plant(path)
              await run(["chown", "-R", "-P", "-h", `${uid}:${gid}`, clone.workspacePath])
            })
            const { message, reason } = yield* saidSoon(
              Effect.flip(relay.collect(clone, { uncommittedMessage: "left" }))
            )
            assert.strictEqual(reason._tag, "BundleRefused", message)
            assert.match(message, new RegExp(wants))
            yield* relay.discard(clone.request.runId)
          }).pipe(Effect.scoped),
        patience
      )
    }

    for (const name of [".gitattributes", ".gitignore"]) {
      it.effect(`names a FIFO as ${name} if it must commit leftovers`, () =>
        Effect.gen(function* () {
          const relay = yield* GitRelay
          const { repository } = yield* prepared
          const clone = yield* relay.clone({ runId: yield* RelayHarness.runId, url: repository })
          yield* Effect.promise(() => run(["mkfifo", "-m", "666", join(clone.workspacePath, "repo", name)]))
          const { message, reason } = yield* saidSoon(
            Effect.flip(relay.collect(clone, { uncommittedMessage: "left" }))
          )
          assert.strictEqual(reason._tag, "BundleRefused", message)
          assert.include(message, `${name} is a FIFO`)
          yield* relay.discard(clone.request.runId)
        }).pipe(Effect.scoped)
      )
    }
  })
})

it("the corpus has at least 20 hostile repositories that are proven to work, and at least 10 special files", () => {
  assert.isAtLeast(Origins.hostile.filter(({ unshown }) => unshown === undefined).length, 20)
  assert.isAtLeast(Origins.specialFiles.length, 10)
})
