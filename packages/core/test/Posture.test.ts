import { assert, describe, it } from "@effect/vitest"
import { MemoryContainerRuntime, RunId } from "@cogni/sandbox-core"
import * as Posture from "@cogni/sandbox-core/Posture"
import { Struct } from "effect"
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
const good = MemoryContainerRuntime.goodPosture({
  ...containerSpec(RunId.RunId.make("run-posture00001")),
  mounts
})
/** What an engine adds by itself, and no more. */
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

/** Every single way in which a posture can be weaker, and a word its sentence must hold. */
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
  ["a workspace of another kernel", { ...real, bootId: "boot-2" }, "kernel of its own"],
  ["no kernel told", withoutBoot, "did not say which directory"],
  [
    "no directory told",
    { ...real, mounts: [...without("/workspace"), mount("/workspace", false)] },
    "did not say"
  ],
  ["a uid of root", { ...real, userIds: [1000, 1000, 0, 1000] }, "uid"],
  ["another's uid", { ...real, userIds: [1001, 1001, 1001, 1001] }, "uid"],
  ["no uid told", { ...real, userIds: [] }, "uid"],
  ["a gid of root", { ...real, groupIds: [0, 1000, 1000, 1000] }, "gid"],
  ["another's gid", { ...real, groupIds: [1000, 1000, 999, 1000] }, "gid"],
  ["no gid told", { ...real, groupIds: [] }, "gid"],
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
  ["strict seccomp, which is not ours", { ...real, seccompMode: 1 }, "seccomp"],
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
  ["a root nobody saw", { ...real, mounts: without("/") }, "root file system"],
  ["a mount nobody asked for", { ...real, mounts: [...real.mounts, mount("/host")] }, "/host"],
  [
    "the engine's socket",
    { ...real, mounts: [...real.mounts, mount("/var/run/docker.sock")] },
    "docker.sock"
  ],
  ["a disk of the host's", { ...real, mounts: [...real.mounts, mount("/dev/sda1")] }, "/dev/sda1"],
  [
    "a mount that looks like the engine's",
    { ...real, mounts: [...real.mounts, mount("/procfs")] },
    "/procfs"
  ],
  ["another file of /etc", { ...real, mounts: [...real.mounts, mount("/etc/shadow")] }, "/etc/shadow"],
  [
    "inputs that can be written",
    { ...real, mounts: [...without("/cogni"), mount("/cogni", false)] },
    "/cogni"
  ],
  ["inputs that are missing", { ...real, mounts: without("/cogni") }, "/cogni is not mounted"],
  ["a workspace that is missing", { ...real, mounts: without("/workspace") }, "/workspace is not mounted"]
]

describe("Posture", () => {
  it("a good posture has nothing amiss, as memory tells it and as an engine does", () => {
    assert.deepStrictEqual(Posture.mismatches(good, expected), [])
    assert.deepStrictEqual(Posture.mismatches(real, expected), [])
  })

  it.each(weakenings)("%s is found", (_what, weaker, word) => {
    const found = Posture.mismatches(weaker, expected)
    assert.isNotEmpty(found)
    assert.include(found.join("\n"), word)
  })

  it("root is refused even where root was asked for", () => {
    const asRoot = { ...expected, user: { userId: 0, groupId: 0 } }
    assert.lengthOf(Posture.mismatches({ ...real, userIds: [0], groupIds: [0] }, asRoot), 2)
  })

  it("an internal network has interfaces and routes, and everything else still holds", () => {
    const internal = { ...expected, network: { mode: "internal" as const, networkName: "run" } }
    const posture = { ...real, interfaces: ["lo", "eth0"], routes: ["172.18.0.0/16 dev eth0"] }
    assert.deepStrictEqual(Posture.mismatches(posture, internal), [])
    assert.isNotEmpty(Posture.mismatches({ ...posture, seccompMode: 0 }, internal))
  })

  it.prop(
    "whatever a sandbox reports, one weakening more never means one finding less",
    [Posture.Posture],
    ([posture]) => {
      const before = Posture.mismatches(posture, expected).length
      const worse = { ...posture, noNewPrivileges: false, mounts: [...posture.mounts, mount("/host")] }
      assert.isAtLeast(Posture.mismatches(worse, expected).length, before + 1)
    },
    { arbitrary: { runs: 200, seed: "posture" } }
  )

  it.prop(
    "of any combination of weakenings, each is found",
    [Posture.Posture],
    ([other]) => {
      // Facts of a generated posture replace a good one's, one at a time: equal in strength, or found.
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

  it("lets a private directory be mounted by an engine with a kernel of its own", () => {
    const elsewhere = { ...real, bootId: "boot-2", mounts: workspaceOf({ device: "1", inode: "1" }) }
    const asked = mounts.map((one) => ("held" in one ? { ...one, held: { ...held, isPrivate: true } } : one))
    assert.deepStrictEqual(Posture.mismatches(elsewhere, { ...expected, mounts: asked }), [])
  })

  it("the host compares the directories that it can see without the image's word", () => {
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
