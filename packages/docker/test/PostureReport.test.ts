import { assert, describe, it } from "@effect/vitest"
import { mismatches, systemCallsTried } from "@cogni/sandbox-core/Posture"
import { hostConfig } from "../src/internal/container/Hardening.ts"
import {
  engineMismatches,
  hostMismatches,
  limitMismatches,
  makeParser,
  parseReport,
  reportFault,
  parseStatus,
  programMismatches
} from "../src/internal/container/PostureReport.ts"
import { Schema } from "effect"
import * as ContainerSpecs from "./ContainerSpecs.ts"

const none = "0000000000000000"

const report = [
  "cogni-posture 1",
  "status Uid:\t1000\t1000\t1000\t1000",
  "status Gid:\t1000\t1000\t1000\t1000",
  "status Groups:\t1000 ",
  ...["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map((name) => `status ${name}:\t${none}`),
  "status NoNewPrivs:\t1",
  "status Seccomp:\t2",
  "ns net:[4026532182]",
  ...systemCallsTried.map((name) => `call ${name} 1`),
  "mount 1047 844 0:52 / / ro,relatime - overlay overlay rw,lowerdir=/a:/b",
  "mount 1048 1047 0:55 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw",
  "mount 1060 1047 254:0 /srv/with\\040blank /workspace rw,relatime - ext4 /dev/vda rw",
  "mount 1061 1047 0:60 / /llm-sock ro,relatime - tmpfs tmpfs rw,size=64k",
  "mount 1062 1047 0:61 / /tmp rw,nosuid,nodev,relatime - tmpfs tmpfs rw,size=65536k",
  "inode 65024 917505 /srv/other",
  "inode 65024 131 /workspace",
  "inode 52 1 /llm-sock",
  "boot 0a1b2c3d-0000-4000-8000-000000000000",
  "interface lo",
  "route6 00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo",
  "cogni-posture end"
]

const held = {
  device: "65024",
  inode: "131",
  bootId: "0a1b2c3d-0000-4000-8000-000000000000",
  isPrivate: false
}

const expected = {
  user: { userId: 1000, groupId: 1000 },
  network: { mode: "none" as const },
  mounts: ContainerSpecs.written.mounts.map((mount) =>
    mount.target === "/workspace" ? { ...mount, held } : mount
  )
}

const amiss = (lines: ReadonlyArray<string>) => mismatches(parseReport(lines.join("\n"))!, expected)

describe("PostureReport", () => {
  it("takes only a report of the same text for the same, and parses every other", () => {
    const parse = makeParser()
    const text = report.join("\n")
    assert.deepStrictEqual(parse(text), parseReport(text))
    assert.strictEqual(parse(text), parse(text))
    const weaker = text.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0")
    assert.deepStrictEqual(parse(weaker), parseReport(weaker))
    assert.isFalse(parse(weaker)?.noNewPrivileges)
    assert.isUndefined(parse(text.replace("cogni-posture end", "")))
    assert.isTrue(parse(text)?.noNewPrivileges)
  })

  it("parses the report of the entrypoint", () => {
    const posture = parseReport(report.join("\n"))!
    assert.deepStrictEqual(posture.userIds, [1000, 1000, 1000, 1000])
    assert.deepStrictEqual(posture.namespaces, { net: "4026532182" })
    assert.deepStrictEqual(posture.interfaces, ["lo"])
    assert.deepStrictEqual(posture.routes, [])
    assert.deepStrictEqual(posture.mounts[0], {
      target: "/",
      fileSystem: "overlay",
      readOnly: true,
      options: ["ro", "relatime"]
    })
    assert.deepStrictEqual(
      posture.mounts.map(({ identity, target }) => [target, identity?.inode]),
      [
        ["/", undefined],
        ["/proc", undefined],
        ["/workspace", "131"],
        ["/llm-sock", "1"],
        ["/tmp", undefined]
      ]
    )
    assert.strictEqual(posture.bootId, held.bootId)
    assert.deepStrictEqual(amiss(report), [])
  })

  it.each([
    ["status Uid:", "status Uid:\t0\t0\t0\t0"],
    ["status Groups:", "status Groups:\t1000 0 "],
    ["status CapEff:", "status CapEff:\t00000000a80425fb"],
    ["status CapBnd:", "status CapBnd:\t0000000000000001"],
    ["status NoNewPrivs:", "status NoNewPrivs:\t0"],
    ["status Seccomp:", "status Seccomp:\t0"],
    ["call socket-vsock 1", "call socket-vsock 0"],
    ["call socket-alg 1", "call socket-alg 97"],
    ["call io_uring_setup 1", "call io_uring_setup 14"],
    ["call bpf 1", "call bpf -1"],
    ["call ptrace 1", "call ptrace"],
    ["interface lo", "interface eth0"],
    ["inode 65024 131", "inode 65024 132 /workspace"],
    ["inode 65024 131", "inode 65025 131 /workspace"],
    ["inode 65024 131", "inode 65024 131 /workspace/other"],
    ["boot ", "boot 0a1b2c3d-0000-4000-8000-000000000001"],
    ["mount 1047", "mount 1047 844 0:52 / / rw,relatime - overlay overlay rw"],
    ["mount 1061", "mount 1061 1047 0:60 / /llm-sock rw,relatime - tmpfs tmpfs rw"],
    ["mount 1062", "mount 1062 1047 0:61 / /var/run/docker.sock rw - tmpfs tmpfs rw"]
  ])("finds the weakness when %s becomes %s", (start, line) => {
    assert.isAbove(amiss(report.map((own) => (own.startsWith(start) ? line : own))).length, 0)
  })

  it.each(report.filter((line) => /^status|^call|^boot|^inode .* .workspace$/u.test(line)))(
    "rejects a report without %s",
    (line) => {
      assert.isAbove(amiss(report.filter((own) => own !== line)).length, 0)
    }
  )

  it.each([
    ["cogni-posture 1\nstatus Uid:\t1000", "the sandbox's report is incomplete"],
    [
      `ERROR: ld.so: object '/absent.so' from LD_PRELOAD cannot be preloaded: ignored.\n${report.join("\n")}`,
      `the sandbox wrote something else before its report: "ERROR: ld.so: object '/absent.so' from LD_PRELOAD ` +
        `cannot be preloaded: ignored.". Remove LD_PRELOAD from the ENV of the image, or add the library that it names`
    ],
    [
      `perl: warning: Setting locale failed.\nperl: warning: Please check that your locale settings:\n`,
      'the sandbox wrote something else before its report: "perl: warning: Setting locale failed.". ' +
        "Set LANG and each LC_ variable in the ENV of the image to a locale that it has, such as C.UTF-8"
    ],
    [
      `\u001b[2J${"x".repeat(500)}\n${report.join("\n")}`,
      `the sandbox wrote something else before its report: "\\u001b[2J${"x".repeat(390)}… (511 characters). ` +
        "Change the image, so that its programs write nothing when they start"
    ]
  ])("says why a text is no report, and what to do", (text, sentence) => {
    assert.isUndefined(parseReport(text))
    assert.strictEqual(reportFault(text), sentence)
  })

  it("ignores a line of one word, such as of a later image", () => {
    const [begin = "", ...rest] = report
    assert.deepStrictEqual(
      parseReport([begin, "interfaces", "route6", "bootx", ...rest].join("\n")),
      parseReport(report.join("\n"))
    )
  })

  it.prop("returns undefined for any other text", [Schema.String], ([text]) => {
    assert.isUndefined(parseReport(text))
  })

  it("accepts the engine's configuration in the form of every engine version", () => {
    const asked = hostConfig(ContainerSpecs.written)
    for (const used of [
      { CapAdd: null, Devices: null, OomKillDisable: null, Binds: null, PortBindings: {}, NanoCpus: 0 },
      { Ulimits: [{ Name: "nproc", Soft: 9, Hard: 9 }, ...asked.Ulimits.toReversed()] },
      { LogConfig: { Type: "none", Config: { "max-size": "1m" } }, RestartPolicy: { Name: "" } },
      { MaskedPaths: ["/proc/kcore"], ReadonlyPaths: ["/proc/sys"], Sysctls: null },
      {
        Mounts: [
          {
            Type: "volume",
            Source: "cogni-run-000000000000-socket",
            Target: "/llm-sock",
            ReadOnly: true,
            VolumeOptions: { NoCopy: true, Labels: null, DriverConfig: null }
          },
          {
            Type: "bind",
            Source: "/host_mnt/srv/run/workspace/",
            Target: "/workspace",
            BindOptions: { Propagation: "rprivate", NonRecursive: false }
          }
        ]
      }
    ]) {
      assert.deepStrictEqual(engineMismatches(asked, { ...asked, ...used }), [], JSON.stringify(used))
    }
  })

  it("requires the OCI runtime that was asked for, and accepts any if none was", () => {
    const any = hostConfig(ContainerSpecs.written)
    assert.deepStrictEqual(engineMismatches(any, { ...any, Runtime: "runc" }), [])
    const wished = hostConfig(ContainerSpecs.written, { engineRuntime: "crun" })
    assert.deepStrictEqual(engineMismatches(wished, { ...wished }), [])
    assert.deepStrictEqual(engineMismatches(wished, { ...wished, Runtime: "runc" }), [
      'the engine uses Runtime "runc", not "crun"'
    ])
  })

  const asked = hostConfig(ContainerSpecs.written)
  const [workspace, socket] = asked.Mounts
  it.each<Record<string, unknown>>([
    { Memory: 0 },
    { MemorySwap: -1 },
    { PidsLimit: null },
    { CapDrop: [] },
    { CapAdd: ["SYS_ADMIN"] },
    { SecurityOpt: ["no-new-privileges", "seccomp=unconfined"] },
    { SecurityOpt: ["no-new-privileges"] },
    { NetworkMode: "host" },
    { Privileged: true },
    { ReadonlyRootfs: false },
    { PidMode: "host" },
    { Tmpfs: { "/tmp": "rw" } },
    { CpuQuota: 0 },
    { CpuQuota: -1 },
    { CpuPeriod: 1000 },
    { Init: true },
    { ShmSize: 67_108_864 },
    { OomKillDisable: true },
    { LogConfig: { Type: "json-file", Config: {} } },
    { RestartPolicy: { Name: "always" } },
    { Ulimits: null },
    { Ulimits: asked.Ulimits.slice(1) },
    { Ulimits: [...asked.Ulimits, { Name: "nofile", Soft: -1, Hard: -1 }] },
    { Ulimits: asked.Ulimits.map((limit) => ({ ...limit, Hard: -1 })) },
    { Mounts: null },
    { Mounts: [workspace] },
    { Mounts: [workspace, socket, { Type: "bind", Source: "/", Target: "/host" }] },
    { Mounts: [{ ...workspace, Source: "/srv/run/other" }, socket] },
    { Mounts: [workspace, { ...socket, ReadOnly: false }] },
    { Mounts: [{ ...workspace, BindOptions: { Propagation: "rshared" } }, socket] },
    {
      Mounts: [{ ...workspace, BindOptions: { Propagation: "rprivate", ReadOnlyNonRecursive: true } }, socket]
    },
    { Binds: ["/var/run/docker.sock:/run/docker.sock"] },
    { DeviceRequests: [{ Count: -1 }] },
    { GroupAdd: ["0"] },
    { VolumesFrom: ["other"] },
    { MaskedPaths: [] },
    { ReadonlyPaths: [] }
  ])("finds that the engine uses %j", (weaker) => {
    assert.strictEqual(engineMismatches(asked, { ...asked, ...weaker }).length, 1)
  })

  it("abbreviates a seccomp profile that differs", () => {
    const [sentence = ""] = engineMismatches(asked, { ...asked, SecurityOpt: ["no-new-privileges"] })
    assert.match(
      sentence,
      /^the engine uses SecurityOpt \["no-new-privileges"\], not \["no-new-privileges", "seccomp=/u
    )
    assert.isBelow(sentence.length, 600)
  })

  it("also checks the host's view of the first process", () => {
    const status = report.flatMap((line) => (line.startsWith("status ") ? [line.slice(7)] : [])).join("\n")
    assert.deepStrictEqual(hostMismatches(parseStatus(status)), [])
    assert.strictEqual(hostMismatches(parseStatus("")).length, 8)
  })
})

describe("a loaded program", () => {
  const status = report.flatMap((line) => (line.startsWith("status ") ? [line.slice(7)] : []))
  const [begin = "", ...rest] = report.slice(0, -1)
  const loaded = [begin, "loaded n1", ...rest, ...status.map((line) => `program ${line}`)]
  const amiss = (lines: ReadonlyArray<string>, nonce = "n1") =>
    programMismatches([...lines, "cogni-posture end"].join("\n"), nonce)

  it("matches if it is isolated as the process that reports it", () => {
    assert.deepStrictEqual(amiss(loaded), [])
  })

  it("differs if it is missing, or if any of its fields is another", () => {
    assert.strictEqual(amiss([begin, "loaded n1", ...rest]).length, 1)
    for (const line of loaded.filter((own) => own.startsWith("program "))) {
      assert.strictEqual(amiss(loaded.filter((own) => own !== line)).length, 1, line)
      assert.strictEqual(
        amiss(loaded.map((own) => (own === line ? line.replace(/\d/u, "9") : own))).length,
        1
      )
      assert.strictEqual(amiss([...loaded, line.replace(/\d/u, "9")]).length, 1)
    }
  })

  it("cannot write the report itself, nor anything before it", () => {
    assert.strictEqual(amiss(loaded, "n2").length, 1)
    assert.strictEqual(amiss(loaded.filter((line) => line !== "loaded n1")).length, 1)
    assert.strictEqual(amiss(["hello", ...loaded]).length, 1)
    // The host reads the first boot ID of a report. With another one than its own, it compares no directory.
    assert.strictEqual(amiss(["cogni-posture 1", "boot another", ...loaded]).length, 1)
    assert.strictEqual(
      amiss(["cogni-posture 1", "boot another", `mount ${loaded[0]}`, ...loaded.slice(1)]).length,
      1
    )
  })
})

describe("limits of the kernel", () => {
  const asked = hostConfig(ContainerSpecs.written)
  const right = { memoryBytes: 536_870_912, processes: 128, cpuQuotaMicros: 150_000 }

  it("match if they are those of the run, or unknown", () => {
    assert.deepStrictEqual(limitMismatches(asked, right), [])
    assert.deepStrictEqual(limitMismatches(asked, {}), [])
    assert.deepStrictEqual(limitMismatches({ ...asked, Memory: 536_870_913 }, right), [], "whole pages")
  })

  it("differ if there are others, or none", () => {
    for (const field of ["memoryBytes", "processes", "cpuQuotaMicros"] as const) {
      for (const value of [2 * right[field], Infinity])
        assert.strictEqual(
          limitMismatches(asked, { ...right, [field]: value }).length,
          1,
          `${field} ${value}`
        )
    }
  })
})
