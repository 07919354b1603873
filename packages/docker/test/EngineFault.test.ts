import { assert, describe, it } from "@effect/vitest"
import { classify, faultOf, isRemovalUnderWay, unreadable } from "../src/internal/engine/EngineFault.ts"
import { Schema } from "effect"

const http = (statusCode: number, message: string) => ({ statusCode, message })

describe("EngineFault", () => {
  it.each([
    [{ code: "ENOENT", message: "connect ENOENT" }, "RuntimeUnavailable", /is not running/u],
    [{ code: "ECONNREFUSED", message: "connect ECONNREFUSED" }, "RuntimeUnavailable", /left over/u],
    [{ code: "EACCES", message: "connect EACCES" }, "RuntimeUnavailable", /docker group/u],
    [{ code: "ECONNRESET", message: "socket hang up" }, "RuntimeUnavailable", /went away/u],
    [{ code: "ABORT_ERR", message: "The operation was aborted" }, "RuntimeUnavailable", /in time/u],
    [http(404, "No such image: nope:1"), "ImageNotFound", /pulls no image by default/u],
    [
      http(409, 'Conflict. The container name "/cogni-x" is already in use by container'),
      "ContainerFailed",
      /DockerReaper/u
    ],
    [
      http(
        400,
        'OCI runtime create failed: exec: "/usr/local/bin/cogni-entrypoint": executable file not found'
      ),
      "ContainerFailed",
      /entrypoint/u
    ],
    [
      http(
        400,
        'OCI runtime create failed: exec: "/usr/local/bin/cogni-entrypoint": stat: no such file or directory'
      ),
      "ContainerFailed",
      /entrypoint/u
    ],
    [
      http(
        400,
        "OCI runtime create failed: openat2 /sys/fs/cgroup/docker/abc/cpu.max: no such file or directory"
      ),
      "ContainerFailed",
      /DockerDoctor/u
    ],
    [http(400, "Minimum memory limit allowed is 6MB"), "ContainerFailed", /memoryBytesMax/u],
    [http(500, "write /var/lib/docker: no space left on device"), "ContainerFailed", /disk/u],
    [http(400, "Unknown runtime specified youki"), "ContainerFailed", /engineRuntime.*daemon\.json/u],
    [http(400, "unknown or invalid runtime name: youki"), "ContainerFailed", /engineRuntime.*daemon\.json/u],
    [http(500, "server error"), "ContainerFailed", /log/u]
  ] as const)("maps %o to %s", (thrown, tag, says) => {
    const error = classify("start", thrown, { image: "nope:1" })
    assert.strictEqual(error._tag, tag)
    assert.match(error.message, says)
  })

  it.each([
    ["ENOENT", true],
    ["ECONNREFUSED", true],
    ["EACCES", true],
    ["ECONNRESET", false],
    ["EMFILE", false],
    ["ABORT_ERR", false],
    [undefined, false]
  ] as const)("reports whether the engine is absent: %s", (code, isAbsent) => {
    const error = classify("create", { message: "it failed", ...(code === undefined ? {} : { code }) })
    assert.strictEqual(error._tag === "RuntimeUnavailable" && error.isAbsent === true, isAbsent)
  })

  it.each([
    ["ENOENT", true],
    ["ECONNRESET", true],
    ["ABORT_ERR", true],
    ["EACCES", false],
    ["EPERM", false]
  ] as const)("reports whether a retry can help: %s", (code, isRetryable) => {
    assert.strictEqual(classify("create", { message: "it failed", code }).isRetryable, isRetryable)
  })

  it("a response in an unknown format is the same after a retry", () => {
    const error = unreadable("info", 'Expected string\n  at ["ID"]')
    assert.strictEqual(error._tag, "RuntimeUnavailable")
    assert.isFalse(error.isRetryable)
    assert.include(error.message, 'answered "info" in an unknown format: Expected string at ["ID"]')
  })

  it("calls a refusing unix socket left over, and of a port reports only that no process listens", () => {
    const at = (address: string) =>
      classify("start", { code: "ECONNREFUSED", message: "refused" }, { address })
    assert.match(at("unix:///run/docker.sock").message, /docker\.sock, left over from a killed engine/u)
    assert.match(at("tcp://127.0.0.1:9").message, /no process listens at tcp:\/\/127\.0\.0\.1:9\. Start it/u)
  })

  it("recognizes a removal that is already in progress", () => {
    assert.isTrue(isRemovalUnderWay(faultOf(http(409, "removal of container abc is already in progress"))))
    assert.isFalse(isRemovalUnderWay(faultOf(http(409, "container is running"))))
  })

  it.prop("maps any thrown value to an error with a remedy", [Schema.Unknown], ([thrown]) => {
    const error = classify("create", thrown)
    assert.isAbove(error.message.length, 10)
    assert.isAbove(("remedy" in error ? error.remedy : "").length, 10)
  })
})
