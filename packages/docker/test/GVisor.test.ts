import { assert, describe, it } from "@effect/vitest"
import { isNamed, missingFlags } from "../src/internal/container/GVisor.ts"

describe("gVisor", () => {
  it.each(["runsc", "runsc-kvm", "runsc.debug", "gvisor", "io.containerd.runsc.v1"])(
    "is the runtime %s",
    (name) => assert.isTrue(isNamed(name))
  )

  it.each([undefined, "", "runc", "crun", "io.containerd.runc.v2", "my-runsc", "runscx"])(
    "is not the runtime %s",
    (name) => assert.isFalse(isNamed(name))
  )

  it("needs its seccomp filter, a kernel process without privileges, and the host's sockets", () => {
    const path = "/usr/local/bin/runsc"
    assert.deepStrictEqual(missingFlags({ path }), ["--oci-seccomp", "--directfs=false", "--host-uds=open"])
    assert.deepStrictEqual(
      missingFlags({ path, runtimeArgs: ["--oci-seccomp", "--directfs=false", "--host-uds=open"] }),
      []
    )
    assert.deepStrictEqual(
      missingFlags({ path, runtimeArgs: ["-oci-seccomp=true", "--directfs=false", "--host-uds=all"] }),
      []
    )
    assert.deepStrictEqual(
      missingFlags({ path, runtimeArgs: ["--oci-seccomp=false", "--directfs", "--host-uds=none"] }),
      ["--oci-seccomp", "--directfs=false", "--host-uds=open"]
    )
  })

  it("is not judged by an entry without a program, whose flags are in another file", () => {
    assert.deepStrictEqual(missingFlags({ runtimeType: "io.containerd.runsc.v1" }), [])
    assert.deepStrictEqual(missingFlags(undefined), [])
    assert.deepStrictEqual(missingFlags("runsc"), [])
  })
})
