/** The containers that open a repository of this host, written out: every change of them shows here. */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as ContainerGit from "../src/internal/git/ContainerGit.ts"
import * as OriginContainer from "../src/internal/origin/OriginContainer.ts"
import { BranchName, CommitId } from "@cogni/sandbox-git-relay/Refs"
import { Schema } from "effect"
import { rolesOf } from "../src/internal/origin/PathOrigin.ts"

const tip = CommitId.make("b".repeat(40))
const request: OriginContainer.OriginRequest = {
  runId: RunId.make("run-000000000001"),
  image: "cogni/runtime:1",
  user: { userId: 1234, groupId: 1234 },
  source: "/srv/git/app/.git",
  identity: "2049:131",
  worktree: "",
  runtimeSecondsMax: 900
}
const delivery = {
  branch: BranchName.make("sandbox/run-000000000001"),
  tip,
  tree: "c".repeat(40),
  expected: undefined,
  bundleDirectory: "/relays/run-000000000001/delivery",
  bundleBytesMax: 268_435_456,
  how: "write"
} as const
const common = {
  runId: "run-000000000001",
  role: "relay",
  image: "cogni/runtime:1",
  user: { userId: 1234, groupId: 1234 },
  network: { mode: "none" }
}
const limits = { ...ContainerGit.limits, workspaceBytesMax: 268_435_456, runtimeSecondsMax: 900 }
const repository = (readOnly: boolean) => ({
  type: "directory",
  source: "/srv/git/app/.git",
  target: "/origin",
  readOnly
})
const bundle = {
  type: "directory",
  source: "/relays/run-000000000001/delivery",
  target: "/delivery",
  readOnly: true
}

describe("OriginContainer", () => {
  it("reads in exactly this container", () => {
    assert.deepStrictEqual(OriginContainer.readSpec(request, { depth: 1 }) as object, {
      ...common,
      limits,
      env: { ...ContainerGit.environment, GIT_OPTIONAL_LOCKS: "0" },
      mounts: [repository(true)],
      argv: ["/usr/local/bin/cogni-git", "read", "2049:131", "", "", "", "1"]
    })
  })

  it("delivers in exactly this container, and decides in one that cannot write", () => {
    const written = OriginContainer.deliverSpec(request, delivery)
    assert.deepStrictEqual(written as object, {
      ...common,
      limits: { ...limits, workspaceBytesMax: 805_306_368 },
      env: ContainerGit.environment,
      mounts: [repository(false), bundle],
      argv: [
        "/usr/local/bin/cogni-git",
        ..."deliver 2049:131".split(" "),
        "",
        "sandbox/run-000000000001",
        tip,
        "c".repeat(40),
        "",
        "write"
      ]
    })
    const checked = OriginContainer.deliverSpec(request, { ...delivery, how: "check" })
    assert.deepStrictEqual(checked.mounts as object, [repository(true), bundle])
    assert.strictEqual(checked.argv.at(-1), "check")
  })

  it.prop(
    "a container that opens a repository of this host has that directory alone, and no network",
    [Schema.String, Schema.String, Schema.String],
    ([source, worktree, baseBranch]) => {
      const asked = { ...request, source, worktree }
      const specs = [
        OriginContainer.readSpec(asked, { baseBranch, depth: 3 }),
        OriginContainer.deliverSpec(asked, delivery)
      ]
      for (const { env, mounts, network, role, user } of specs) {
        assert.deepStrictEqual(network, { mode: "none" })
        assert.strictEqual(role, "relay")
        assert.deepStrictEqual(user, request.user)
        assert.deepStrictEqual({ ...env, GIT_OPTIONAL_LOCKS: "0" }, {
          ...ContainerGit.environment,
          GIT_OPTIONAL_LOCKS: "0"
        } as object)
        assert.deepStrictEqual(
          mounts.map((mount) => mount.source),
          [source, delivery.bundleDirectory].slice(0, mounts.length)
        )
      }
    }
  )

  it.prop(
    "no container that opens a repository of this host runs as root",
    [Schema.Int, Schema.Int, Schema.Int],
    ([owner, group, self]) => {
      const [uid, gid, userId] = [Math.abs(owner), Math.abs(group), Math.abs(self)]
      const { user, writer } = rolesOf({ userId: uid, groupId: gid }, { userId, groupId: userId, groups: [] })
      assert.notStrictEqual(user.userId, 0)
      // A process without root's rights acts as itself. A host process of root writes only for root.
      if (userId !== 0) assert.strictEqual(user.userId, userId)
      assert.strictEqual(writer === "host", userId === 0 && uid === 0)
    }
  )

  it("gives an ordinary user's container the repository's group if the user is a member", () => {
    const self = { userId: 1000, groupId: 1000, groups: [1000, 50] }
    assert.deepStrictEqual(rolesOf({ userId: 7, groupId: 50 }, self).user, { userId: 1000, groupId: 50 })
    assert.deepStrictEqual(rolesOf({ userId: 7, groupId: 51 }, self).user, { userId: 1000, groupId: 1000 })
  })

  it("reads root's repository as a user without rights, and a user's repository as that user", () => {
    const self = { userId: 0, groupId: 0, groups: [0] }
    assert.deepStrictEqual(rolesOf({ userId: 0, groupId: 0 }, self), {
      user: { userId: 65_534, groupId: 0 },
      writer: "host"
    })
    assert.deepStrictEqual(rolesOf({ userId: 7, groupId: 8 }, self), {
      user: { userId: 7, groupId: 8 },
      writer: "container"
    })
  })
})
