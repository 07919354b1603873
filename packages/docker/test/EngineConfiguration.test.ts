import { assert, describe, it } from "@effect/vitest"
import type { Inspected } from "../src/DockerApi.ts"
import * as EngineConfiguration from "../src/internal/container/EngineConfiguration.ts"
import * as Hardening from "../src/internal/container/Hardening.ts"
import * as ContainerSpecs from "./ContainerSpecs.ts"

const asked = Hardening.hostConfig(ContainerSpecs.written)

const inspected = (more: Readonly<Record<string, unknown>> = {}): Inspected => ({
  Id: "a",
  Name: "/a",
  Image: "sha256:one",
  HostConfig: { ...asked, MaskedPaths: ["/proc/kcore"], ReadonlyPaths: ["/proc/sys"], ...more },
  Config: { Labels: {}, User: "1000:1000" },
  State: { Status: "running", Running: true, OOMKilled: false, Pid: 7, ExitCode: 0 }
})

describe("EngineConfiguration", () => {
  it("finds a difference, also after the same container was found equal", () => {
    const others = [
      { used: { Privileged: true }, wanted: asked },
      { used: { ExtraHosts: ["a:127.0.0.1"] }, wanted: asked },
      { used: {}, wanted: { ...asked, PidsLimit: 7 } }
    ]
    for (const isWaiting of [true, false])
      for (const { used, wanted } of others) {
        const { of } = EngineConfiguration.make({ isWaiting })
        assert.deepStrictEqual(of(inspected(), asked).mismatches, [])
        assert.lengthOf(of(inspected(used), wanted).mismatches, 1)
        assert.deepStrictEqual(of(inspected(), asked).mismatches, [])
        assert.deepStrictEqual(of(inspected(), asked).mismatches, [])
      }
  })

  it("finds that something else is asked for, if the engine answers the same", () => {
    const { of } = EngineConfiguration.make({ isWaiting: true })
    const same = inspected()
    assert.deepStrictEqual(of(same, asked).mismatches, [])
    assert.deepStrictEqual(of(same, { ...asked }).mismatches, [])
    assert.lengthOf(of(same, { ...asked, PidsLimit: 7 }).mismatches, 1)
    // Not taken for equal because it was compared before.
    assert.lengthOf(of(same, { ...asked, PidsLimit: 7 }).mismatches, 1)
  })

  it("finds a volume that only the image asks for", () => {
    const { of } = EngineConfiguration.make({ isWaiting: true })
    const own = asked.Mounts.map(({ Target }) => Target)
    const mounting = (...paths: ReadonlyArray<string>) => ({
      ...inspected(),
      Mounts: paths.map((Destination) => ({ Destination }))
    })
    assert.isAbove(own.length, 0)
    assert.deepStrictEqual(of(mounting(...own), asked).mismatches, [])
    for (const place of ["/data", "/tmp"])
      assert.deepStrictEqual(of(mounting(...own, place), asked).mismatches, [
        `the engine mounts a volume at "${place}", which was not asked for: remove the VOLUME from its image`
      ])
  })

  it("finds a container that the engine does not know", () => {
    assert.deepStrictEqual(EngineConfiguration.make({ isWaiting: true }).of(undefined, asked).mismatches, [
      "the engine does not know the container"
    ])
  })
})
