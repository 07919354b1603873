import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import { DockerApi, type Info } from "@cogni/sandbox-docker/DockerApi"
import { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import {
  directoriesFinding,
  engineFindings,
  examine,
  networksFinding,
  runtimeFinding,
  workspaceFinding
} from "@cogni/sandbox-docker/DockerDoctor"
import type * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as WorkspaceClaims from "../src/internal/host/WorkspaceClaims.ts"
import * as SharedStocks from "../src/internal/doctor/SharedStocks.ts"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import { Effect, Layer } from "effect"
import { execFileSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { hostname, release, tmpdir } from "node:os"
import { join } from "node:path"

const info: Info = {
  ServerVersion: "25.0.0",
  RuncCommit: { ID: "v1.1.12" },
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

const directory = Effect.acquireRelease(
  Effect.sync(() => {
    const path = mkdtempSync(join(tmpdir(), "cogni-test-"))
    chmodSync(path, 0o777)
    return path
  }),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

const bad = (changed: Partial<Info>, apiVersion = "1.41") =>
  engineFindings({ ...info, ...changed }, apiVersion).filter(({ status }) => status !== "ok")

/** Returns the finding about the state directory, on a machine without an engine. */
const recordsFinding = (stateDirectory: string) => {
  const gone = Effect.fail(new RuntimeUnavailable({ detail: "is not running", remedy: "Start it" }))
  return examine({ images: [], stateDirectory }).pipe(
    Effect.map((findings) => findings.find(({ check }) => check === "records")),
    Effect.provide(
      Layer.mock(DockerApi, { address: { type: "unix", path: "/nowhere" }, ping: gone, info: gone })
    )
  )
}

describe("DockerDoctor", () => {
  it.effect("only looks at a state directory that does not exist yet", () =>
    Effect.gen(function* () {
      const path = join(yield* directory, "not", "yet")
      const finding = yield* recordsFinding(path)
      assert.deepInclude(finding, { status: "ok", detail: `${path}, which the first run creates` })
      assert.isFalse(existsSync(path))
    })
  )

  it.effect("reports a state directory that no run could create, with the option that names it", () =>
    Effect.gen(function* () {
      const file = join(yield* directory, "file")
      writeFileSync(file, "")
      for (const path of [file, join(file, "state")]) {
        const finding = yield* recordsFinding(path)
        assert.strictEqual(finding?.status, "fail", path)
        assert.include(finding?.fix ?? "", "FileRunStore.directory")
      }
    })
  )

  it("reports an OCI runtime that the engine does not have", () => {
    const engine = { DefaultRuntime: "runc", Runtimes: { runc: {}, crun: {} } }
    assert.strictEqual(runtimeFinding(engine, undefined).detail, "runc, the engine's default")
    assert.strictEqual(runtimeFinding(engine, "crun").status, "ok")
    const { detail, fix, status } = runtimeFinding(engine, "youki")
    assert.strictEqual(status, "fail")
    assert.strictEqual(detail, "the engine does not know youki, only crun, runc")
    assert.include(fix, "daemon.json")
    assert.strictEqual(runtimeFinding({}, "crun").status, "fail")
  })

  it("names the flags that gVisor lacks on the engine", () => {
    const path = "/usr/local/bin/runsc"
    const runtimeArgs = ["--oci-seccomp", "--directfs=false", "--host-uds=open"]
    const engine = { Runtimes: { runsc: { path, runtimeArgs }, "runsc-bare": { path }, crun: { path } } }
    const good = runtimeFinding(engine, "runsc")
    assert.strictEqual(good.status, "ok")
    assert.include(good.detail, "at least 64 processes")
    assert.strictEqual(runtimeFinding(engine, "crun").status, "ok")
    const { detail, fix, status } = runtimeFinding(engine, "runsc-bare")
    assert.strictEqual(status, "fail")
    assert.match(detail, /^runsc-bare lacks --oci-seccomp, --directfs=false, --host-uds=open: /u)
    assert.include(fix, '"runtimeArgs" of runsc-bare')
  })

  it("asks for the name of gVisor if the engine uses it by default", () => {
    const { detail, fix, status } = runtimeFinding({ DefaultRuntime: "runsc" }, undefined)
    assert.strictEqual(status, "fail")
    assert.include(detail, "runsc, the engine's default, needs its own list of system calls")
    assert.include(fix, "to runsc")
  })

  it.effect("warns that gVisor refuses directories, and says why other runs in them start cold", () =>
    Effect.gen(function* () {
      const address = { type: "unix", path: "/run/docker.sock" } as const
      const found = (DefaultRuntime: string, engineRuntime?: string) =>
        directoriesFinding({ address, engineRuntime, info: Effect.succeed({ ...info, DefaultRuntime }) })
      for (const refused of [yield* found("runc", "runsc"), yield* found("runsc")]) {
        assert.strictEqual(refused.status, "warn")
        assert.include(refused.detail, "directories of this host are refused as workspaces: with runsc")
        assert.include(refused.fix, "empty workspace")
      }
      const cold = yield* found("runc", "kata")
      assert.strictEqual(cold.status, "ok")
      assert.match(cold.detail, /^a run in one starts cold, also with a pool: this process is not root|kata/u)
    })
  )

  it.effect("says why the engine configures the network of each sandbox, if it does", () =>
    Effect.gen(function* () {
      const here = { ...info, Name: hostname(), KernelVersion: release(), DefaultRuntime: "runc" }
      const address = { type: "unix", path: "/run/docker.sock" } as const
      const path = join(yield* directory, "hosts")
      const found = (name = here.Name) =>
        networksFinding({ ...here, Name: name }, { address, directory: path })
      const { detail } = yield* found()
      assert.strictEqual(detail, "sandboxes start without the engine's help")
      const elsewhere = yield* found("another")
      assert.strictEqual(elsewhere.status, "ok")
      assert.include(elsewhere.detail, "takes a third of a start: the engine is not on this host")
      chmodSync(path, 0o777)
      const refused = yield* found()
      assert.strictEqual(refused.status, "warn")
      assert.include(refused.detail, "can be written by other users (mode 777)")
      assert.include(refused.fix, "Set TMPDIR to a directory")
    })
  )

  it("reports no problem for a good engine", () => {
    assert.deepStrictEqual(bad({}), [])
    assert.deepStrictEqual(bad({ CgroupVersion: "2", ServerVersion: "29.0.0" }, "1.52"), [])
  })

  it.each([
    { RuncCommit: { ID: "v1.2.0-rc.1" } },
    { RuncCommit: { ID: "" } },
    { RuncCommit: { ID: "51d5e94601ceffbbd85688df1c928ecccbfa4685" } },
    { RuncCommit: undefined },
    { ServerVersion: "dev" },
    { ServerVersion: "29.1" }
  ])("reports no problem for a version without known weaknesses: %o", (changed) => {
    assert.deepStrictEqual(bad(changed), [])
  })

  it("states which weaknesses of an old engine our profile covers, and which it does not", () => {
    const [engine] = bad({ ServerVersion: "20.10.24" })
    assert.include(engine!.detail, "our profile refuses it")
    const [runc] = bad({ RuncCommit: { ID: "1.1.5" } })
    assert.include(runc!.fix!, "No filter covers it")
  })

  it.each([
    [{}, "1.40", "api version"],
    [{ Driver: "vfs" }, "1.41", "storage driver"],
    [{ SwapLimit: false }, "1.41", "cgroups"],
    [{ PidsLimit: false }, "1.41", "cgroups"],
    [{ CpuCfsQuota: false }, "1.41", "cgroups"],
    [{ SecurityOptions: [] }, "1.41", "seccomp"],
    [{ ServerVersion: "20.10.9" }, "1.41", "engine age"],
    [{ ServerVersion: "19.03.15" }, "1.41", "engine age"],
    [{ ServerVersion: "20.10.10" }, "1.41", "engine default"],
    [{ ServerVersion: "20.10.24+dfsg1" }, "1.41", "engine default"],
    [{ ServerVersion: "24.0.9" }, "1.41", "engine default"],
    [{ RuncCommit: { ID: "1.1.5+ds1-1+deb12u1" } }, "1.41", "runc"],
    [{ RuncCommit: { ID: "1.0" } }, "1.41", "runc"],
    [{ RuncCommit: { ID: "v1.1.11-0-g4bccb38c" } }, "1.41", "runc"],
    [{ SecurityOptions: ["name=seccomp,profile=unconfined"] }, "1.41", "seccomp"]
  ] as const)("suggests a fix for %o at API %s", (changed, apiVersion, check) => {
    const findings = bad(changed, apiVersion)
    assert.deepStrictEqual(
      findings.map((finding) => finding.check),
      [check]
    )
    assert.isAbove((findings[0]!.fix ?? "").length, 10)
  })

  it("warns about each shared kernel limit that is too low for this machine, with a sufficient value", () => {
    const found = SharedStocks.findings([128, 4096, 16_384], 100)
    assert.deepStrictEqual(
      found.map(({ fix, status }) => [status, fix?.split(",")[0]]),
      [
        ["warn", "sysctl -w fs.inotify.max_user_instances=1600"],
        ["warn", "sysctl -w kernel.pty.max=7424"],
        ["warn", "sysctl -w fs.pipe-user-pages-soft=102400"]
      ]
    )
    assert.include(found[0]!.detail, "is 128")
    assert.deepStrictEqual(SharedStocks.findings([1600, 7424, 0], 100), [])
    assert.deepStrictEqual(SharedStocks.findings([undefined, undefined, undefined], 100), [])
    assert.deepStrictEqual(SharedStocks.findings([128, 4096, 16_384], 8), [])
  })

  it.effect("warns about special files in a workspace, and refuses a symbolic link", () =>
    Effect.gen(function* () {
      const path = yield* directory
      assert.deepStrictEqual(yield* workspaceFinding(path), {
        check: "workspace",
        status: "ok",
        detail: path
      })
      execFileSync("mkfifo", [join(path, "pipe")])
      const found = yield* workspaceFinding(path)
      assert.strictEqual(found.status, "warn")
      assert.include(found.detail, 'FIFO "pipe"')
      symlinkSync(path, join(path, "link"))
      const refused = yield* workspaceFinding(join(path, "link"))
      assert.strictEqual(refused.status, "fail")
      assert.include(refused.detail, "is a symbolic link")
    })
  )

  it.effect(
    "rejects a directory that a run would refuse: not writable, around another run's workspace, or forbidden",
    () =>
      Effect.gen(function* () {
        const path = yield* directory
        const claims = join(yield* directory, "claims")
        const found = (forbidden: HostWorkspace.Options["forbidden"] = []) =>
          workspaceFinding(path, { claims, forbidden })
        assert.strictEqual((yield* found()).status, "ok")
        const kept = yield* found([{ path: join(path, "key"), name: "the key file", remedy: "Move it" }])
        assert.deepInclude(kept, { status: "fail", fix: "Move it" })
        assert.include(kept.detail, `would hand the key file (${join(path, "key")}) to the agent`)
        mkdirSync(join(path, "inner"))
        yield* Effect.scoped(
          Effect.gen(function* () {
            const inner = yield* HeldDirectory.hold(join(path, "inner"))
            yield* WorkspaceClaims.make({ directory: claims }).hold(yield* RunId.generate, inner)
            const around = yield* found()
            assert.strictEqual(around.status, "fail")
            assert.include(around.detail, "in which run")
          })
        )
        assert.strictEqual((yield* found()).status, "ok")
        chmodSync(path, 0o500)
        assert.include((yield* found()).fix, "chown -R")
      })
  )
})
