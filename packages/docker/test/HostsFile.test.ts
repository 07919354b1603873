import { assert, describe, it, vi } from "@effect/vitest"
import { ContainerFailed, PostureMismatch, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import type { PostureMount } from "@cogni/sandbox-core/Posture"
import { Clock, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { hostname, release, tmpdir } from "node:os"
import { basename, join } from "node:path"
import * as Await from "../../../test/harness/Await.ts"
import type { Info } from "../src/DockerApi.ts"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as HostOwner from "../src/HostOwner.ts"
import * as HostsFile from "../src/internal/container/HostsFile.ts"

const here = { Name: hostname(), KernelVersion: release(), DefaultRuntime: "runc", SecurityOptions: [] }
const address = { type: "unix", path: "/var/run/docker.sock" } as const
const away = new RuntimeUnavailable({ detail: "does not answer", remedy: "Start it" })

const temporary = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-hosts-test-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const made = Effect.fnUntraced(function* (
  info: Effect.Effect<Info, RuntimeUnavailable> = Effect.die("not asked")
) {
  const directory = join(yield* temporary, "hosts")
  return { directory, ...(yield* HostsFile.make({ address, directory, info })) }
})

describe("HostsFile", () => {
  it.effect("writes a file for each container, which all users can read and none can write", () =>
    Effect.gen(function* () {
      const { directory } = yield* made()
      const before = process.umask(0o077)
      yield* Effect.addFinalizer(() => Effect.sync(() => process.umask(before)))
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { acquire } = yield* HostsFile.make({ address, directory, info: Effect.die("not asked") })
          const [one, other] = [yield* acquire, yield* acquire]
          const stats = statSync(one.path)
          assert.strictEqual(stats.mode & 0o777, 0o444)
          assert.strictEqual(readFileSync(one.path, "utf8"), HostsFile.content)
          assert.deepStrictEqual(one.identity, { device: String(stats.dev), inode: String(stats.ino) })
          assert.notStrictEqual(one.identity.inode, other.identity.inode)
          assert.strictEqual(statSync(directory).mode & 0o777, 0o700)
        })
      )
      assert.deepStrictEqual(readdirSync(directory), [])
    })
  )

  it.effect("removes what dead processes left, and nothing else", () =>
    Effect.gen(function* () {
      const { acquire, directory } = yield* made()
      const nowSeconds = 1_000_000
      yield* TestClock.setTime(nowSeconds * 1000)
      const put = (name: string, ageSeconds: number, text = "") => {
        const path = join(directory, name)
        if (!existsSync(path)) writeFileSync(path, text)
        utimesSync(path, nowSeconds - ageSeconds, nowSeconds - ageSeconds)
        return name
      }
      const [old, young] = [172_801, 172_799]
      const self = HostOwner.self()
      const ofDead = formatOwner({ ...self, startTicks: self.startTicks + 1 })
      const ofUnknown = formatOwner({ ...self, bootId: "another" })
      const left = yield* Effect.scoped(
        Effect.gen(function* () {
          const { path } = yield* acquire
          const own = readdirSync(directory)
          assert.strictEqual(own.length, 2)
          const [dead, unknown, unnamed] = [crypto.randomUUID(), crypto.randomUUID(), crypto.randomUUID()]
          put(`${dead}.owner`, 0, ofDead)
          put(`${dead}.${crypto.randomUUID()}`, 0)
          put(`${unknown}.${crypto.randomUUID()}`, old)
          put(`${unnamed}.${crypto.randomUUID()}`, old)
          const kept = [
            put(basename(path), old),
            put(`${unknown}.owner`, young, ofUnknown),
            put(`${unknown}.${crypto.randomUUID()}`, young),
            put(`${unnamed}.${crypto.randomUUID()}`, young),
            put("other", old)
          ]
          const left = new Set([...own, ...kept])
          yield* HostsFile.sweep(directory)
          assert.deepStrictEqual(readdirSync(directory).toSorted(), [...left].toSorted())
          // Another user can write there, and may have put them there.
          put(`${dead}.owner`, 0, ofDead)
          left.add(`${dead}.owner`)
          chmodSync(directory, 0o777)
          yield* HostsFile.sweep(directory)
          assert.deepStrictEqual(readdirSync(directory).toSorted(), [...left].toSorted())
          return left.size
        })
      )
      assert.strictEqual(readdirSync(directory).length, left - 1)
      yield* HostsFile.sweep(join(directory, "absent"))
    })
  )

  it.effect("has its owner's file after a run that was interrupted while that was written", () =>
    Effect.gen(function* () {
      const { acquire, directory } = yield* made()
      const fiber = yield* Effect.forkChild(Effect.scoped(acquire), { startImmediately: true })
      const owners = Effect.sync(() =>
        existsSync(directory) ? readdirSync(directory).filter((name) => name.endsWith(".owner")) : []
      )
      yield* Await.until(
        "no file of the owner",
        Effect.map(owners, ({ length }) => length > 0)
      )
      const interrupting = yield* Effect.forkChild(Fiber.interrupt(fiber), { startImmediately: true })
      yield* Effect.scoped(acquire)
      yield* Fiber.join(interrupting)
      yield* Effect.scoped(acquire)
      const [owner] = yield* owners
      assert.strictEqual(readFileSync(join(directory, owner!), "utf8"), formatOwner(HostOwner.self()))
    })
  )

  it.effect.skipIf(process.getuid?.() !== 0)("does not even list the directory of another user", () =>
    Effect.gen(function* () {
      const directory = join(yield* temporary, "hosts")
      mkdirSync(directory)
      chownSync(directory, 1000, 1000)
      // A change and then a listing set it, unless the file system keeps no such times.
      const before = statSync(directory).atimeMs
      writeFileSync(join(directory, crypto.randomUUID()), "")
      yield* HostsFile.sweep(directory)
      assert.strictEqual(statSync(directory).atimeMs, before)
    })
  )

  it.effect("has an absolute path, which the engine requires, also if TMPDIR is relative", () =>
    Effect.gen(function* () {
      yield* Effect.addFinalizer(() => Effect.sync(() => vi.unstubAllEnvs()))
      vi.stubEnv("TMPDIR", "relative")
      assert.match(HostsFile.defaultDirectory(), /^\/.+\/relative\/cogni-hosts-\d+$/u)
    })
  )

  it.effect("writes nothing in a directory that other users can write", () =>
    Effect.gen(function* () {
      const { acquire, directory, isCauseOf } = yield* made()
      yield* Effect.scoped(acquire)
      chmodSync(directory, 0o777)
      const error = yield* Effect.flip(acquire)
      assert.include(error.message, "can be written by other users")
      assert.isTrue(isCauseOf(error))
    })
  )

  it.effect(
    "is possible if the engine is on this host, and for a minute not for an image after a failure",
    () =>
      Effect.gen(function* () {
        const answers = [Effect.fail(away)]
        const files = yield* made(
          Effect.suspend(() => answers.pop() ?? Effect.succeed(here as unknown as Info))
        )
        assert.isFalse(yield* files.isPossible("one"), "the engine does not answer")
        assert.isTrue(yield* files.isPossible("one"))
        yield* files.noteFailure("one")
        assert.isFalse(yield* files.isPossible("one"))
        assert.isTrue(yield* files.isPossible("other"), "the runs of another image are slower")
        yield* TestClock.adjust("1 minute")
        assert.isTrue(yield* files.isPossible("one"))
      })
  )

  it.effect("tries an image again after a minute also if the time of day was set back", () =>
    Effect.gen(function* () {
      const clock = yield* Clock.Clock
      let hours = 0
      const stepped: Clock.Clock = {
        ...clock,
        currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis - hours * 3_600_000)
      }
      yield* Effect.gen(function* () {
        const { isPossible, noteFailure } = yield* made(Effect.succeed(here as unknown as Info))
        yield* noteFailure("one")
        hours = 1
        yield* TestClock.adjust("1 minute")
        assert.isTrue(yield* isPossible("one"))
      }).pipe(Effect.provideService(Clock.Clock, stepped))
    })
  )

  it.effect("remembers the last 128 images whose containers could not use it", () =>
    Effect.gen(function* () {
      const { isPossible, noteFailure } = yield* made(Effect.succeed(here as unknown as Info))
      for (const number of Array.from({ length: 129 }).keys()) yield* noteFailure(`image-${number}`)
      assert.isTrue(yield* isPossible("image-0"))
      assert.isFalse(yield* isPossible("image-1"))
      assert.isFalse(yield* isPossible("image-128"))
    })
  )

  it.effect("is not possible with gVisor, which is not asked", () =>
    Effect.gen(function* () {
      const files = yield* HostsFile.make({ address, info: Effect.die("asked"), engineRuntime: "runsc" })
      assert.isFalse(yield* files.isPossible("one"))
    })
  )

  it("needs an engine with the disk, the kernel and the users of this process", () => {
    assert.isUndefined(HostsFile.whyNot(address, here))
    const others = [
      { ...here, KernelVersion: "another" },
      { ...here, Name: "another" },
      { ...here, DefaultRuntime: "kata" },
      { ...here, SecurityOptions: ["name=rootless"] },
      { ...here, SecurityOptions: ["name=userns"] },
      { ...here, SecurityOptions: ["name=seccomp,profile=default", "name=selinux"] }
    ]
    for (const other of others) assert.isDefined(HostsFile.whyNot(address, other), JSON.stringify(other))
    assert.isDefined(HostsFile.whyNot({ type: "tcp", host: "localhost", port: 2375 }, here))
  })

  const identity = { device: "1", inode: "2" }
  const mount = (more: Partial<typeof PostureMount.Type> = {}): typeof PostureMount.Type => ({
    target: "/etc/hosts",
    fileSystem: "ext4",
    readOnly: true,
    options: ["ro"],
    ...more
  })
  const found = (
    mounts: ReadonlyArray<typeof PostureMount.Type>,
    { inode = "2", network = "5" }: { readonly inode?: string; readonly network?: string } = {}
  ) =>
    HostsFile.mismatches(
      { path: "/hosts", identity },
      { mounts, namespaces: network === "" ? {} : { net: network } },
      { network: "4", onHost: { device: "1", inode } }
    )

  it("accepts its own file, mounted once and read-only, in another network namespace than this process", () => {
    assert.deepStrictEqual(found([mount()]), [])
    const unseen = { network: undefined, onHost: undefined }
    const posture = { mounts: [mount()], namespaces: { net: "5" } }
    assert.deepStrictEqual(HostsFile.mismatches({ path: "/hosts", identity }, posture, unseen), [])
  })

  it.each([
    ["no mount", found([mount({ target: "/workspace/hosts" })])],
    ["two mounts", found([mount(), mount()])],
    ["a mount that can be written", found([mount({ readOnly: false })])],
    ["another file", found([mount()], { inode: "3" })],
    ["the namespace of the host", found([mount()], { network: "4" })],
    ["no namespace", found([mount()], { network: "" })]
  ])("names %s", (_, sentences) => {
    assert.strictEqual(sentences.length, 1, sentences.join("; "))
  })

  it.effect("is the cause of failures that name it, and of no others", () =>
    Effect.gen(function* () {
      const { directory, isCauseOf } = yield* made()
      const failed = (detail: string) => new ContainerFailed({ operation: "create", detail, remedy: "none" })
      const [other] = found([mount()], { network: "4" })
      const [file] = found([])
      assert.isTrue(isCauseOf(failed(`bind source path does not exist: ${directory}/a`)))
      assert.isTrue(isCauseOf(failed('error mounting "/a" to rootfs at "/etc/hosts"')))
      assert.isTrue(isCauseOf(new PostureMismatch({ mismatches: [file!] })))
      assert.isFalse(isCauseOf(new PostureMismatch({ mismatches: [file!, other!] })))
      assert.isFalse(isCauseOf(failed("no such image")))
      assert.isFalse(isCauseOf(away))
    })
  )
})
