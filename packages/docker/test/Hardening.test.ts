import { assert, describe, it } from "@effect/vitest"
import { hostConfig } from "../src/internal/container/Hardening.ts"
import * as SeccompProfile from "../src/internal/container/SeccompProfile.ts"
import * as ContainerSpecs from "./ContainerSpecs.ts"

describe("Hardening", () => {
  it("equals the recorded configuration", () => {
    assert.deepStrictEqual(hostConfig(ContainerSpecs.written), {
      AutoRemove: false,
      CapAdd: [],
      CapDrop: ["ALL"],
      CgroupnsMode: "private",
      CpuPeriod: 100_000,
      CpuQuota: 150_000,
      Devices: [],
      Init: false,
      IpcMode: "private",
      LogConfig: { Type: "none", Config: {} },
      Memory: 536_870_912,
      MemorySwap: 536_870_912,
      Mounts: [
        {
          Type: "bind",
          Source: "/srv/run/workspace",
          Target: "/workspace",
          ReadOnly: false,
          BindOptions: { Propagation: "rprivate" }
        },
        {
          Type: "volume",
          Source: "cogni-run-000000000000-socket",
          Target: "/llm-sock",
          ReadOnly: true,
          VolumeOptions: { NoCopy: true }
        }
      ],
      NetworkMode: "none",
      OomKillDisable: false,
      PidMode: "",
      PidsLimit: 128,
      Privileged: false,
      ReadonlyRootfs: true,
      RestartPolicy: { Name: "no", MaximumRetryCount: 0 },
      SecurityOpt: ["no-new-privileges", SeccompProfile.securityOption],
      ShmSize: 16_777_216,
      Tmpfs: {
        "/tmp": "rw,exec,nosuid,nodev,size=67108864,mode=1777",
        "/home/agent": "rw,exec,nosuid,nodev,size=67108864,mode=1777"
      },
      Ulimits: [
        { Name: "core", Soft: 0, Hard: 0 },
        { Name: "fsize", Soft: 1_073_807_360, Hard: 1_073_807_360 },
        { Name: "nofile", Soft: 1024, Hard: 1024 }
      ],
      UsernsMode: ""
    })
  })

  it("uses the engine's init only for our own programs, which have no first process of ours", () => {
    const written = hostConfig(ContainerSpecs.written)
    for (const role of ["relay", "proxy", "gateway"] as const) {
      assert.deepStrictEqual(
        hostConfig({ ...ContainerSpecs.written, role }),
        { ...written, Init: role !== "relay" },
        role
      )
    }
    assert.deepStrictEqual(hostConfig({ ...ContainerSpecs.written, supervised: true }), written)
  })

  it("asks for an OCI runtime only if there is a wish", () => {
    const written = hostConfig(ContainerSpecs.written)
    assert.notProperty(written, "Runtime")
    assert.deepStrictEqual(hostConfig(ContainerSpecs.written, { engineRuntime: "crun" }), {
      ...written,
      Runtime: "crun"
    })
  })

  it("mounts its /etc/hosts read-only if the engine does not configure its network, and changes nothing else", () => {
    const written = hostConfig(ContainerSpecs.written)
    assert.deepStrictEqual(
      hostConfig(ContainerSpecs.written, { hosts: { path: "/tmp/cogni-hosts-0/one" } }),
      {
        ...written,
        Mounts: [
          ...written.Mounts,
          {
            Type: "bind",
            Source: "/tmp/cogni-hosts-0/one",
            Target: "/etc/hosts",
            ReadOnly: true,
            BindOptions: { Propagation: "rprivate" }
          }
        ]
      }
    )
  })

  it("gives gVisor the same list of system calls, and nothing else", () => {
    assert.deepStrictEqual(hostConfig(ContainerSpecs.written, { engineRuntime: "runsc" }), {
      ...hostConfig(ContainerSpecs.written),
      Runtime: "runsc",
      SecurityOpt: ["no-new-privileges", SeccompProfile.gVisorSecurityOption]
    })
  })

  it.prop("cannot be loosened by any spec", [ContainerSpecs.Any], ([any]) => {
    const spec = ContainerSpecs.fromAny(any)
    const config = hostConfig(spec)
    assert.deepStrictEqual(
      {
        CapAdd: config.CapAdd,
        CapDrop: config.CapDrop,
        Devices: config.Devices,
        IpcMode: config.IpcMode,
        PidMode: config.PidMode,
        Privileged: config.Privileged,
        ReadonlyRootfs: config.ReadonlyRootfs,
        SecurityOpt: config.SecurityOpt,
        UsernsMode: config.UsernsMode
      },
      {
        CapAdd: [],
        CapDrop: ["ALL"],
        Devices: [],
        IpcMode: "private",
        PidMode: "",
        Privileged: false,
        ReadonlyRootfs: true,
        SecurityOpt: ["no-new-privileges", SeccompProfile.securityOption],
        UsernsMode: ""
      }
    )
    assert.strictEqual(config.Memory, config.MemorySwap)
    assert.isAbove(config.PidsLimit, 0)
    assert.isAbove(config.CpuQuota, 0)
    assert.notInclude(["host", "bridge", "default"], config.NetworkMode)
    assert.deepStrictEqual(
      config.Mounts.map(({ Target, ReadOnly }) => [Target, ReadOnly]),
      spec.mounts.map(({ readOnly, target }) => [target, readOnly])
    )
    const hosts = { path: "/hosts" }
    assert.deepStrictEqual(hostConfig(spec, { hosts }), {
      ...config,
      Mounts: [...config.Mounts, ...hostConfig({ ...spec, mounts: [] }, { hosts }).Mounts]
    })
  })
})
