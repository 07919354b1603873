import { assert, describe, it } from "@effect/vitest"
import { lstatSync } from "node:fs"
import {
  cgroupFiles,
  firstProcess,
  limitFiles,
  processorMicrosIn
} from "../src/internal/container/KernelFacts.ts"

describe("KernelFacts", () => {
  it("finds the files of separate hierarchies (cgroup v1)", () => {
    const files = cgroupFiles(
      "9:pids:/docker/abc\n5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/docker/abc\n"
    )
    assert.strictEqual(files?.memoryPeak, "/sys/fs/cgroup/memory/docker/abc/memory.max_usage_in_bytes")
    assert.strictEqual(files?.pidsEvents, "/sys/fs/cgroup/pids/docker/abc/pids.events")
    assert.strictEqual(files?.processor, "/sys/fs/cgroup/cpuacct/docker/abc/cpuacct.usage")
    const uncounted = cgroupFiles("9:pids:/docker/abc\n5:memory:/docker/abc\n")
    assert.isUndefined(uncounted?.processor)
  })

  it("finds the files of the unified hierarchy (cgroup v2)", () => {
    const files = cgroupFiles("0::/system.slice/docker-abc.scope\n")
    assert.strictEqual(files?.memoryEvents, "/sys/fs/cgroup/system.slice/docker-abc.scope/memory.events")
    assert.strictEqual(files?.pidsPeak, "/sys/fs/cgroup/system.slice/docker-abc.scope/pids.peak")
    assert.strictEqual(files?.processor, "/sys/fs/cgroup/system.slice/docker-abc.scope/cpu.stat")
  })

  it("reads processor time of both kinds of hierarchies, in microseconds", () => {
    assert.strictEqual(processorMicrosIn("1234567\n"), 1234.567)
    assert.strictEqual(processorMicrosIn("usage_usec 42\nuser_usec 40\nsystem_usec 2\n"), 42)
    assert.isUndefined(processorMicrosIn("user_usec 40\n"))
    assert.isUndefined(processorMicrosIn(undefined))
  })

  it("finds the limits of both kinds of hierarchies", () => {
    assert.deepStrictEqual(
      limitFiles("9:pids:/docker/abc\n5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n"),
      {
        memory: "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes",
        pids: "/sys/fs/cgroup/pids/docker/abc/pids.max",
        cpu: "/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us"
      }
    )
    assert.deepStrictEqual(limitFiles("0::/system.slice/docker-abc.scope\n"), {
      memory: "/sys/fs/cgroup/system.slice/docker-abc.scope/memory.max",
      pids: "/sys/fs/cgroup/system.slice/docker-abc.scope/pids.max",
      cpu: "/sys/fs/cgroup/system.slice/docker-abc.scope/cpu.max"
    })
  })

  it("finds no files if the control group is the root or unknown", () => {
    assert.isUndefined(cgroupFiles("0::/\n"))
    assert.isUndefined(cgroupFiles(""))
  })

  it.skipIf(process.platform !== "linux")("sees a process, and paths of its file system", () => {
    const { ino } = lstatSync("/tmp")
    const seen = firstProcess(process.pid, "/", ["/tmp", "/not-there"])
    assert.include(seen?.status, `Pid:\t${process.pid}\n`)
    assert.deepStrictEqual([...(seen?.identities.keys() ?? [])], ["/tmp"])
    assert.strictEqual(seen?.identities.get("/tmp")?.inode, String(ino))
  })

  it("sees nothing of a process that does not belong to the container", () => {
    assert.isUndefined(firstProcess(process.pid, "f".repeat(64), ["/"]))
    assert.isUndefined(firstProcess(2 ** 30, "/", ["/"]))
  })
})
