import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core"
import * as GoodPosture from "../src/internal/GoodPosture.ts"
import * as Posture from "@cogni/sandbox-core/Posture"
import { Schema, Struct } from "effect"
import { containerSpec } from "./Specs.ts"

const held = { device: "2049", inode: "7", bootId: "boot-1", isPrivate: false }
const mounts = [
  { type: "directory" as const, source: "/host/project", target: "/workspace", readOnly: false, held },
  { type: "directory" as const, source: "/host/inputs", target: "/cogni", readOnly: true }
]
const expected: Posture.Expected = {
  user: { userId: 1000, groupId: 1000 },
  network: { mode: "none" },
  mounts
}
const good = GoodPosture.goodPosture({
  ...containerSpec(RunId.RunId.make("run-posture00001")),
  mounts
})
/** A good posture with the mounts that an engine adds. */
const real: Posture.Posture = {
  ...good,
  capabilities: Object.fromEntries(
    Object.keys(good.capabilities).map((name) => [name, "0000000000000000"])
  ) as Posture.Posture["capabilities"],
  userIds: [1000, 1000, 1000, 1000],
  groupIds: [1000, 1000, 1000, 1000],
  mounts: [
    ...good.mounts,
    ...[
      "/proc",
      "/proc/sys",
      "/proc/kcore",
      "/sys",
      "/sys/fs/cgroup",
      "/sys/fs/cgroup/memory",
      "/sys/firmware",
      "/dev",
      "/dev/pts",
      "/dev/mqueue",
      "/dev/shm",
      "/etc/hosts",
      "/etc/hostname",
      "/etc/resolv.conf",
      "/sbin/docker-init"
    ].map((target) => ({ target, fileSystem: "engine", readOnly: false, options: ["rw"] }))
  ]
}

const mount = (target: string, readOnly = true) => ({ target, fileSystem: "ext4", readOnly, options: [] })
const without = (target: string) => real.mounts.filter((other) => other.target !== target)

const at = (target: string) => good.mounts.find((mount) => mount.target === target)!
const workspaceOf = (identity: Posture.FileIdentity) => [
  ...without("/workspace"),
  { ...at("/workspace"), identity }
]
const { bootId: _bootId, ...withoutBoot } = real

/** Every single way in which a posture can be weaker, and a word that its sentence must contain. */
const weakenings: ReadonlyArray<readonly [what: string, weaker: Posture.Posture, word: string]> = [
  [
    "another directory as the workspace",
    { ...real, mounts: workspaceOf({ device: "2049", inode: "8" }) },
    "another directory"
  ],
  [
    "a directory of the same number on another file system",
    { ...real, mounts: workspaceOf({ device: "2050", inode: "7" }) },
    "another directory"
  ],
  [
    "a directory mounted over the workspace",
    { ...real, mounts: [...real.mounts, { ...at("/workspace"), identity: { device: "2049", inode: "9" } }] },
    "another directory"
  ],
  ["a workspace of another kernel", { ...real, bootId: "boot-2" }, "another kernel"],
  ["no reported kernel", withoutBoot, "did not report which directory"],
  [
    "no reported directory",
    { ...real, mounts: [...without("/workspace"), mount("/workspace", false)] },
    "did not report"
  ],
  ["a uid of root", { ...real, userIds: [1000, 1000, 0, 1000] }, "uid"],
  ["another user's uid", { ...real, userIds: [1001, 1001, 1001, 1001] }, "uid"],
  ["no reported uid", { ...real, userIds: [] }, "uid"],
  ["a gid of root", { ...real, groupIds: [0, 1000, 1000, 1000] }, "gid"],
  ["another group's gid", { ...real, groupIds: [1000, 1000, 999, 1000] }, "gid"],
  ["no reported gid", { ...real, groupIds: [] }, "gid"],
  ...(["inheritable", "permitted", "effective", "bounding", "ambient"] as const).flatMap((set) =>
    ["0000000000000001", "000001ffffffffff", "", "?"].map(
      (mask) =>
        [
          `${set} capabilities ${JSON.stringify(mask)}`,
          { ...real, capabilities: { ...real.capabilities, [set]: mask } },
          set
        ] as const
    )
  ),
  ["new privileges", { ...real, noNewPrivileges: false }, "no-new-privileges"],
  ["no seccomp", { ...real, seccompMode: 0 }, "seccomp"],
  ["strict seccomp instead of a filter", { ...real, seccompMode: 1 }, "seccomp"],
  ...Posture.systemCallsTried.flatMap((name) =>
    [undefined, 0, 2, 14, 38, 97].map(
      (answer) =>
        [
          `${name} answered with ${answer}`,
          {
            ...real,
            systemCalls: Object.fromEntries(
              Object.entries({ ...real.systemCalls, [name]: answer }).filter(
                (entry): entry is [string, number] => entry[1] !== undefined
              )
            )
          },
          name
        ] as const
    )
  ),
  ["no system call tried", Struct.omit(real, ["systemCalls"]), "image is older"],
  ["an interface", { ...real, interfaces: ["lo", "eth0"] }, "eth0"],
  ["an interface that looks like lo", { ...real, interfaces: ["lo", "lo0"] }, "lo0"],
  ["a route", { ...real, routes: ["default via 172.17.0.1"] }, "routes"],
  ["a writable root", { ...real, mounts: [mount("/", false), ...without("/")] }, "root file system"],
  ["a missing root mount", { ...real, mounts: without("/") }, "root file system"],
  ["a mount that was not requested", { ...real, mounts: [...real.mounts, mount("/host")] }, "/host"],
  [
    "the engine's socket",
    { ...real, mounts: [...real.mounts, mount("/var/run/docker.sock")] },
    "docker.sock"
  ],
  ["a disk of the host", { ...real, mounts: [...real.mounts, mount("/dev/sda1")] }, "/dev/sda1"],
  [
    "a mount that looks like the engine's",
    { ...real, mounts: [...real.mounts, mount("/procfs")] },
    "/procfs"
  ],
  ["another file of /etc", { ...real, mounts: [...real.mounts, mount("/etc/shadow")] }, "/etc/shadow"],
  ["writable inputs", { ...real, mounts: [...without("/cogni"), mount("/cogni", false)] }, "/cogni"],
  ["missing inputs", { ...real, mounts: without("/cogni") }, "/cogni is not mounted"],
  ["a missing workspace", { ...real, mounts: without("/workspace") }, "/workspace is not mounted"]
]

describe("Posture", () => {
  it("reports no mismatch for a good posture, from memory or from an engine", () => {
    assert.deepStrictEqual(Posture.mismatches(good, expected), [])
    assert.deepStrictEqual(Posture.mismatches(real, expected), [])
  })

  it.each(weakenings)("reports %s", (_what, weaker, word) => {
    const found = Posture.mismatches(weaker, expected)
    assert.isNotEmpty(found)
    assert.include(found.join("\n"), word)
  })

  it("refuses root even if root was requested", () => {
    const asRoot = { ...expected, user: { userId: 0, groupId: 0 } }
    assert.lengthOf(Posture.mismatches({ ...real, userIds: [0], groupIds: [0] }, asRoot), 2)
  })

  it("allows interfaces and routes on an internal network, and checks everything else", () => {
    const internal = { ...expected, network: { mode: "internal" as const, networkName: "run" } }
    const posture = { ...real, interfaces: ["lo", "eth0"], routes: ["172.18.0.0/16 dev eth0"] }
    assert.deepStrictEqual(Posture.mismatches(posture, internal), [])
    assert.isNotEmpty(Posture.mismatches({ ...posture, seccompMode: 0 }, internal))
  })

  it.prop(
    "reports values of a hostile sandbox with at most 200 characters each",
    [Posture.Posture, Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 20_000 }))],
    ([posture, count]) => {
      const long = "\u{1f600}x".repeat(count)
      const numbers = Array.from({ length: count }, () => 4711)
      const worse: Posture.Posture = {
        ...posture,
        userIds: numbers,
        groupIds: numbers,
        capabilities: { ...posture.capabilities, effective: long },
        interfaces: [long, ...posture.interfaces],
        routes: [...posture.routes, long],
        bootId: held.bootId,
        mounts: [
          mount(`/${long}`),
          mount(`/docker.sock/${long}`),
          { ...mount("/tmp"), fileSystem: long },
          { ...mount("/workspace"), identity: { device: long, inode: long } }
        ]
      }
      const found = Posture.mismatches(worse, expected)
      assert.isAtLeast(found.length, 9)
      for (const sentence of found) {
        assert.isAtMost(sentence.length, 400)
        assert.isTrue(sentence.isWellFormed(), sentence)
      }
    }
  )

  it.prop(
    "reports at least one more mismatch for a further weakening of any posture",
    [Posture.Posture],
    ([posture]) => {
      const before = Posture.mismatches(posture, expected).length
      const worse = { ...posture, noNewPrivileges: false, mounts: [...posture.mounts, mount("/host")] }
      assert.isAtLeast(Posture.mismatches(worse, expected).length, before + 1)
    },
    { arbitrary: { runs: 200, seed: "posture" } }
  )

  it.prop(
    "reports each weakening in any combination",
    [Posture.Posture],
    ([other]) => {
      // Each fact of a generated posture replaces a good one: it is equally strong, or reported.
      for (const key of [
        "userIds",
        "groupIds",
        "capabilities",
        "noNewPrivileges",
        "seccompMode",
        "systemCalls",
        "interfaces",
        "routes"
      ] as const) {
        const mixed = { ...real, [key]: other[key] }
        const found = Posture.mismatches(mixed, expected)
        const asGood = {
          userIds: other.userIds.length > 0 && other.userIds.every((id) => id === 1000),
          groupIds: other.groupIds.length > 0 && other.groupIds.every((id) => id === 1000),
          capabilities: Object.values(other.capabilities).every(
            (mask) => mask !== "" && Number(`0x${mask}`) === 0
          ),
          noNewPrivileges: other.noNewPrivileges,
          seccompMode: other.seccompMode === 2,
          systemCalls: Posture.systemCallsTried.every((name) => other.systemCalls?.[name] === 1),
          interfaces: other.interfaces.every((name) => name === "lo"),
          routes: other.routes.length === 0
        }[key]
        assert.strictEqual(found.length === 0, asGood, `${key}: ${found.join("; ")}`)
      }
    },
    { arbitrary: { runs: 200, seed: "posture-mixed" } }
  )

  it("accepts a private directory that an engine with its own kernel mounts", () => {
    const elsewhere = { ...real, bootId: "boot-2", mounts: workspaceOf({ device: "1", inode: "1" }) }
    const asked = mounts.map((one) => ("held" in one ? { ...one, held: { ...held, isPrivate: true } } : one))
    assert.deepStrictEqual(Posture.mismatches(elsewhere, { ...expected, mounts: asked }), [])
  })

  it("compares the directories that the host can see, without relying on the image", () => {
    const seeing = (inode: string) => () => ({ device: "2049", inode })
    assert.deepStrictEqual(Posture.hostExchanged(mounts, "boot-1", seeing("7")), [])
    assert.deepStrictEqual(
      Posture.hostExchanged(mounts, "boot-1", () => undefined),
      []
    )
    assert.match(
      Posture.hostExchanged(mounts, "boot-1", seeing("8")).join(),
      /on the host, .*another directory/u
    )
  })
})
