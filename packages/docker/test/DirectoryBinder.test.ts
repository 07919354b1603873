import { assert, describe, it } from "@effect/vitest"
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { hostname, release } from "node:os"
import {
  directoryOf,
  errorOf,
  make,
  mismatches,
  whyElsewhere
} from "../src/internal/container/DirectoryBinder.ts"
import * as MountsBelow from "../src/internal/host/MountsBelow.ts"
import * as MountProgram from "../src/internal/container/MountProgram.ts"
import { isNotLoaded, isOfSandbox, unusable } from "@cogni/sandbox-core/WaitingSandbox"

const unix = { type: "unix", path: "/run/docker.sock" } as const
const here = { Name: hostname(), KernelVersion: release() }

const at = (target: string, source = "/srv/waiting"): Mount => ({
  type: "directory",
  source,
  target,
  readOnly: false
})

const seen = (target: string, ...options: ReadonlyArray<string>) => ({
  target,
  fileSystem: "ext4",
  readOnly: false,
  options
})

describe("DirectoryBinder", () => {
  it("says why an engine has other mounts or users than this process", () => {
    assert.isUndefined(whyElsewhere(unix, { ...here, SecurityOptions: ["name=seccomp,profile=default"] }))
    assert.strictEqual(whyElsewhere(unix, { ...here, Name: "other" }), "the engine is not on this host")
    assert.isUndefined(whyElsewhere(unix, here, "runc"))
    assert.include(whyElsewhere(unix, here, "runsc"), "runsc")
    assert.include(whyElsewhere(unix, { ...here, DefaultRuntime: "kata" }), "kata")
    assert.isUndefined(whyElsewhere(unix, { ...here, DefaultRuntime: "kata" }, "crun"))
    for (const DefaultRuntime of ["runc", "crun", "io.containerd.runc.v2"])
      assert.isUndefined(whyElsewhere(unix, { ...here, DefaultRuntime }), DefaultRuntime)
    for (const option of ["name=userns", "name=rootless"])
      assert.include(whyElsewhere(unix, { ...here, SecurityOptions: [option] }), option)
  })

  it("finds the directory that takes the place of an empty workspace", () => {
    const waiting = [at("/workspace"), at("/cogni")]
    assert.isUndefined(directoryOf(waiting, waiting))
    assert.isUndefined(directoryOf([], [at("/workspace")]))
    const asked = at("/workspace", "/home/project")
    assert.deepStrictEqual(directoryOf(waiting, [asked, at("/cogni")]), { asked, empty: waiting[0] })
  })

  it("finds a directory whose mount is another one than the one that was bound", () => {
    const good = seen("/workspace", "rw", "nosuid", "nodev", "relatime")
    assert.deepStrictEqual(mismatches({ mounts: [seen("/", "ro"), good] }), [])
    assert.lengthOf(mismatches({ mounts: [good, good] }), 1, "on top of the empty one")
    assert.lengthOf(mismatches({ mounts: [] }), 1)
    assert.deepStrictEqual(mismatches({ mounts: [seen("/workspace", "rw", "nodev")] }), [
      "/workspace is mounted without nosuid"
    ])
  })

  it("reads answers by their word, not by the text that follows", () => {
    assert.deepStrictEqual(MountProgram.decode("7 ok"), { id: 7, why: undefined, fault: "job" })
    assert.deepStrictEqual(MountProgram.decode("8 host setns: Operation not permitted"), {
      id: 8,
      why: "setns: Operation not permitted",
      fault: "host"
    })
    assert.deepStrictEqual(MountProgram.decode("9 job host setns: No such file"), {
      id: 9,
      why: "host setns: No such file",
      fault: "job"
    })
    assert.strictEqual(MountProgram.decode("9 sandbox others left 1 files in it")?.fault, "sandbox")
    for (const line of ["", "ready", "7", "7 else", "x ok"])
      assert.isUndefined(MountProgram.decode(line), line)
  })

  it("blames the sandbox only for what was done in it, and its program if it has loaded one", () => {
    const blamed = (fault: "host" | "job" | "sandbox", hasLoaded: boolean) => {
      const error = errorOf({ path: "/srv/one", hasLoaded }, { fault, why: "No such file" })
      assert.include(error.message, "/srv/one could not be bound into it: No such file")
      return { sandbox: isOfSandbox(error), program: isNotLoaded(error) }
    }
    for (const hasLoaded of [false, true]) {
      assert.deepStrictEqual(blamed("job", hasLoaded), { sandbox: false, program: false })
      assert.deepStrictEqual(blamed("host", hasLoaded), { sandbox: false, program: false })
      assert.deepStrictEqual(blamed("sandbox", hasLoaded), { sandbox: true, program: hasLoaded })
    }
  })

  it("finds mounts below a directory, whatever their names are", () => {
    const line = (at: string) => `36 35 98:0 /a ${at} rw - ext4 /dev/x rw`
    assert.isTrue(MountsBelow.has("/srv/a b", line("/srv/a\\040b/below")))
    assert.isFalse(MountsBelow.has("/srv/a", [line("/srv/a"), line("/srv/ab/below"), ""].join("\n")))
  })

  it("writes a job as one line, whatever the path is", () => {
    const job = {
      processId: 7,
      containerId: "abc",
      path: "/a b\n1 2 \u2603",
      device: "1",
      inode: "2",
      target: "/workspace",
      hasInputs: true,
      hasLoaded: true
    }
    const [id, processId, containerId, device, inode, inputs, target, path] = MountProgram.encode(3, job)
      .trimEnd()
      .split(" ")
    assert.deepStrictEqual(
      [id, processId, containerId, device, inode, inputs],
      ["3", "7", "abc", "1", "2", "1"]
    )
    const textOf = (hex = "") => Buffer.from(hex, "hex").toString()
    assert.deepStrictEqual([textOf(target), textOf(path)], [job.target, job.path])
  })

  it.effect("asks the engine again a minute later if it does not answer", () =>
    Effect.scoped(
      Effect.gen(function* () {
        let asked = 0
        const info = Effect.suspend(() => {
          asked += 1
          return Effect.fail(unusable("it is away"))
        })
        const { whyNot } = yield* make({ address: unix, info })
        const answers = [yield* whyNot, yield* whyNot]
        if (process.geteuid?.() === 0) {
          assert.include(answers[0], "it is away")
          assert.strictEqual(asked, 1)
          yield* TestClock.adjust("1 minute")
          assert.include(yield* whyNot, "it is away")
          assert.strictEqual(asked, 2)
        } else assert.include(answers[0], "not root")
        assert.strictEqual(answers[0], answers[1])
      })
    )
  )
})
