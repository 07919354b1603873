import { assert, describe, it } from "@effect/vitest"
import { cgroupFiles } from "../src/internal/container/KernelFacts.ts"

describe("KernelFacts", () => {
  it("finds the files of separate hierarchies (cgroup v1)", () => {
    const files = cgroupFiles("9:pids:/docker/abc\n5:memory:/docker/abc\n0::/docker/abc\n")
    assert.strictEqual(files?.memoryPeak, "/sys/fs/cgroup/memory/docker/abc/memory.max_usage_in_bytes")
    assert.strictEqual(files?.pidsEvents, "/sys/fs/cgroup/pids/docker/abc/pids.events")
  })

  it("finds the files of the unified hierarchy (cgroup v2)", () => {
    const files = cgroupFiles("0::/system.slice/docker-abc.scope\n")
    assert.strictEqual(files?.memoryEvents, "/sys/fs/cgroup/system.slice/docker-abc.scope/memory.events")
    assert.strictEqual(files?.pidsPeak, "/sys/fs/cgroup/system.slice/docker-abc.scope/pids.peak")
  })

  it("finds no files if the control group is the root or unknown", () => {
    assert.isUndefined(cgroupFiles("0::/\n"))
    assert.isUndefined(cgroupFiles(""))
  })
})
