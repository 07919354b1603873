import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Inspected } from "../src/DockerApi.ts"
import { parseReport } from "../src/internal/container/PostureReport.ts"
import * as Witnesses from "../src/internal/container/Witnesses.ts"
import * as ContainerSpecs from "./ContainerSpecs.ts"

const asked = { spec: { ...ContainerSpecs.written, mounts: [] }, bootId: "boot" }

const inspected = (Pid: number): Inspected => ({
  Id: "a",
  Name: "/a",
  Image: "sha256:one",
  HostConfig: {},
  Config: { Labels: {}, User: "1000:1000" },
  State: { Status: "running", Running: true, OOMKilled: false, Pid, ExitCode: 0 }
})

const report = "cogni-posture 1\nstatus Uid:\t1000\ncogni-posture end"
const witnessed: Witnesses.Witnessed = { inside: parseReport(report)!, processId: 7, process: undefined }

const none = { identities: new Map(), status: "Uid:\t1000\nNoNewPrivs:\t1\nSeccomp:\t2" }
const capabilities = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map((name) => `Cap${name}:\t0000`).join("\n")
const isolated = { ...none, status: `${none.status}\n${capabilities}` }

const seen = (now: Inspected | undefined, by: Witnesses.Witnessed, mismatches: ReadonlyArray<string> = []) =>
  Witnesses.posture({ inspected: now, mismatches }, asked, by)

const wrong = (...args: Parameters<typeof seen>) =>
  Effect.map(Effect.flip(seen(...args)), (error) => error.mismatches)

describe("Witnesses", () => {
  it.effect("names those that confirm a posture", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual((yield* seen(inspected(7), witnessed)).confirmedBy, ["sandbox", "engine"])
      const all = yield* seen(inspected(7), { ...witnessed, process: isolated })
      assert.deepStrictEqual(all.confirmedBy, ["sandbox", "engine", "host"])
    })
  )

  it.effect("fails with what any of them finds", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* wrong(inspected(7), witnessed, ["the engine uses more"]), [
        "the engine uses more"
      ])
      const status = isolated.status.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0")
      assert.deepStrictEqual(yield* wrong(inspected(7), { ...witnessed, process: { ...isolated, status } }), [
        "on the host, no-new-privileges is off"
      ])
      const invalid = { inside: { fault: "the sandbox's report is incomplete" } }
      assert.deepStrictEqual(yield* wrong(inspected(7), { ...witnessed, ...invalid }), [invalid.inside.fault])
      assert.deepStrictEqual(yield* wrong(undefined, witnessed), ["the engine does not know the container"])
    })
  )

  it.effect("fails if the host looked at another process than the engine names", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* wrong(inspected(8), { ...witnessed, process: isolated }), [
        "the engine names another first process than before"
      ])
    })
  )
})
