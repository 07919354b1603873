import { assert, describe, it } from "@effect/vitest"
import type { Info } from "@cogni/sandbox-docker/DockerApi"
import { engineFindings } from "@cogni/sandbox-docker/DockerDoctor"

const info: Info = {
  ServerVersion: "20.10.24",
  Driver: "overlay2",
  CgroupVersion: "1",
  CgroupDriver: "cgroupfs",
  DockerRootDir: "/var/lib/docker",
  OperatingSystem: "Debian",
  NCPU: 2,
  MemTotal: 1024 ** 3,
  SwapLimit: true,
  PidsLimit: true,
  SecurityOptions: ["name=seccomp,profile=default"],
  Warnings: null
}

const bad = (changed: Partial<Info>, apiVersion = "1.41") =>
  engineFindings({ ...info, ...changed }, apiVersion).filter(({ status }) => status !== "ok")

describe("DockerDoctor", () => {
  it("has nothing to say of a good engine", () => {
    assert.deepStrictEqual(bad({}), [])
    assert.deepStrictEqual(bad({ CgroupVersion: "2", ServerVersion: "29.0.0" }, "1.52"), [])
  })

  it.each([
    [{}, "1.40", "api version"],
    [{ Driver: "vfs" }, "1.41", "storage driver"],
    [{ SwapLimit: false }, "1.41", "cgroups"],
    [{ PidsLimit: false }, "1.41", "cgroups"],
    [{ CpuCfsQuota: false }, "1.41", "cgroups"],
    [{ SecurityOptions: [] }, "1.41", "seccomp"],
    [{ SecurityOptions: ["name=seccomp,profile=unconfined"] }, "1.41", "seccomp"]
  ] as const)("names the fix when %o at API %s", (changed, apiVersion, check) => {
    const findings = bad(changed, apiVersion)
    assert.deepStrictEqual(
      findings.map((finding) => finding.check),
      [check]
    )
    assert.isAbove((findings[0]!.fix ?? "").length, 10)
  })
})
