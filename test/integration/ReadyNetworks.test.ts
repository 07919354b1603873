/**
 * Network namespaces that are ready for cold runs, on real Docker: they look from inside like those of other runs,
 * serve one run each, and whatever happens to them, the runs are right.
 */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntime, type ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import * as PoolPolicy from "@cogni/sandbox-core/PoolPolicy"
import { formatOwner, label } from "@cogni/sandbox-core/ResourceLabels"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { Effect, Layer, Stream } from "effect"
import { mkdtempSync, readlinkSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Await from "../harness/Await.ts"
import { docker } from "../harness/Docker.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

/** Everything that a program can read about its network, its names and its mounts. */
const survey = [
  "cat /proc/net/dev /proc/net/route /proc/net/ipv6_route /proc/net/if_inet6 /proc/net/tcp /proc/net/udp",
  "cut -d ' ' -f 8- /proc/net/unix; ls /sys/class/net; cat /etc/resolv.conf /etc/hosts",
  "cd /proc/sys/net/ipv4; for f in ip_unprivileged_port_start ping_group_range ip_forward; do echo $f; cat $f; done",
  "sed 's/^[0-9]* [0-9]* [0-9]*:[0-9]* [^ ]* \\([^ ]* [^ ]*\\).* - \\([^ ]*\\).*/mount \\1 \\2/' /proc/self/mountinfo | sort",
  "env | sort | grep -v '^HOSTNAME=\\|^RUN_ID='; for p in /proc/[0-9]*; do cat $p/comm; done; id"
].join("; ")

const report = Effect.flatMap(SandboxPool.SandboxPool, (pool) => pool.report)

const hits = Effect.map(report, ({ networks }) => networks?.hits ?? 0)

const ready = (count: number) =>
  Await.until(
    `${count} networks are ready`,
    Effect.map(report, ({ networks }) => (networks?.ready ?? 0) >= count)
  )

/** IDs of the containers of this process that hold a network. */
const holders = Effect.map(
  Effect.orDie(DockerApi.DockerApi.use((api) => api.labelled(label.role))),
  (found) =>
    found
      .filter(
        ({ labels }) =>
          labels[label.role] === "network" && labels[label.owner] === formatOwner(HostOwner.self())
      )
      .map(({ id }) => id)
)

const shell = (line: string, more: object = {}) =>
  SandboxRunner.SandboxRunner.use((runner) =>
    runner.run({ image: Images.runtime, argv: ["sh", "-c", line], ...more })
  )

layer(RunHarness.layer(undefined, { networksMax: 3, limits: { sandboxesMax: 0 } }), {
  excludeTestServices: true,
  timeout: "3 minutes"
})("ready networks on Docker", (it) => {
  it.effect("look from inside like the network of a run without one, and are no other run's", () =>
    Effect.gen(function* () {
      const own = yield* shell(survey)
      assert.strictEqual(yield* hits, 0)
      yield* ready(1)
      const joined = yield* shell(survey)
      assert.strictEqual(yield* hits, 1)
      assert.strictEqual(joined.output.stdout.text, own.output.stdout.text)
      assert.strictEqual(joined.output.stderr.text, own.output.stderr.text)
      assert.deepStrictEqual(joined.posture.interfaces, ["lo"])
      yield* ready(1)
      const [one, other] = yield* Effect.all([shell("sleep 0.2"), shell("sleep 0.2")], { concurrency: 2 })
      // The kernel gives the number of a namespace that has ended to the next.
      const namespaces = [one, other].map(({ posture }) => posture.namespaces["net"])
      const hosts = readlinkSync("/proc/self/ns/net")
      assert.strictEqual(new Set([...namespaces, hosts]).size, 3, namespaces.join(" "))
    })
  )

  it.effect("serve a workspace of the caller's, for which no sandbox can wait", () =>
    Effect.gen(function* () {
      const path = mkdtempSync(join(tmpdir(), "cogni-joined-"))
      yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(path, { recursive: true, force: true })))
      yield* docker(
        "run",
        "--rm",
        "-v",
        `${path}:/w`,
        "--entrypoint=chown",
        "--user=0",
        Images.runtime,
        "1000:1000",
        "/w"
      )
      yield* ready(1)
      const before = yield* hits
      const { exitCode } = yield* shell("echo kept > file; exit 4", {
        workspace: { type: "directory", path }
      })
      assert.strictEqual(exitCode, 4)
      assert.strictEqual(yield* hits, before + 1)
      assert.strictEqual(
        (yield* shell("cat file", { workspace: { type: "directory", path } })).output.stdout.text,
        "kept\n"
      )
    })
  )

  it.effect(
    "are not used if their container has ended, got a signal, or others started a program in it",
    () =>
      Effect.gen(function* () {
        const troubles = [
          (id: string) => docker("kill", id),
          (id: string) => docker("exec", "--detach", id, "sleep", "600"),
          (id: string) => docker("exec", id, "true"),
          (id: string) => docker("kill", "--signal=WINCH", id)
        ]
        for (const trouble of troubles) {
          yield* ready(2)
          const touched = yield* holders
          for (const id of touched) yield* Effect.exit(trouble(id))
          const { exitCode, output } = yield* shell("hostname; exit 3")
          assert.strictEqual(exitCode, 3)
          const name = output.stdout.text.trim()
          assert.isFalse(
            touched.some((id) => id.startsWith(name)),
            name
          )
        }
      })
  )
})

/** The container of a run, over an engine that does something else than it is asked. */
const started = Effect.fnUntraced(function* (
  change: (api: DockerApi.DockerApi["Service"]) => Partial<DockerApi.DockerApi["Service"]>
) {
  const api = yield* DockerApi.DockerApi
  let created = 0
  const counting = { ...api, ...change(api) }
  const changed = DockerApi.DockerApi.of({
    ...counting,
    create: (options) => {
      if (options.name.endsWith("-agent")) created += 1
      return counting.create(options)
    }
  })
  return yield* Effect.gen(function* () {
    const { acquire, readyNetworks } = yield* ContainerRuntime
    const { limits } = yield* SpecDecoder.decode({ image: Images.runtime, argv: ["sh"] })
    const spec: ContainerSpec = {
      runId: yield* RunId.generate,
      role: "agent",
      image: Images.runtime,
      argv: ["sh", "-c", "exit 5"],
      env: {},
      user: { userId: 1000, groupId: 1000 },
      mounts: [],
      network: { mode: "none" },
      limits
    }
    const networks = yield* (
      readyNetworks?.({
        limits: PoolPolicy.defaults,
        networksMax: 1,
        memoryAvailableBytes: Effect.undefined
      }) ?? Effect.die("this runtime has no ready networks")
    )
    // The first one only shows the demand.
    yield* Effect.scoped(acquire(spec))
    yield* Await.until(
      "a network is ready",
      Effect.map(networks, (now) => now.ready === 1)
    )
    created = 0
    const container = yield* acquire(spec)
    const posture = yield* container.start
    yield* container.proceed
    yield* Stream.runDrain(container.output)
    const { exitCode } = yield* container.exit
    const inspected = yield* api.inspect(container.id)
    return {
      created,
      exitCode,
      posture,
      hits: (yield* networks).hits,
      network: inspected?.HostConfig["NetworkMode"]
    }
  }).pipe(
    Effect.scoped,
    Effect.provide(
      Layer.provide(
        DockerContainerRuntime.layerApi(Engine.runtime),
        Layer.succeed(DockerApi.DockerApi, changed)
      ),
      { local: true }
    )
  )
})

/** The file of this host that is to be `/etc/hosts` in it. */
const hostsFileOf = ({ hostConfig }: DockerApi.CreateOptions) =>
  (
    hostConfig as { readonly Mounts?: ReadonlyArray<{ readonly Source: string; readonly Target: string }> }
  ).Mounts?.find(({ Target }) => Target === "/etc/hosts")?.Source

const networkOf = ({ hostConfig }: DockerApi.CreateOptions) =>
  String((hostConfig as { readonly NetworkMode?: string }).NetworkMode)

layer(RunHarness.layer(), { excludeTestServices: true, timeout: "2 minutes" })(
  "a ready network that cannot be used, on Docker",
  (it) => {
    it.effect("is joined if nothing is wrong", () =>
      Effect.gen(function* () {
        const { created, exitCode, hits, network } = yield* started(() => ({}))
        assert.deepStrictEqual([created, exitCode, hits], [1, 5, 1])
        assert.match(String(network), /^container:/u)
      })
    )

    it.effect("is left if its container ends before the run starts", () =>
      Effect.gen(function* () {
        const { created, exitCode, network } = yield* started((api) => ({
          create: (options) =>
            Effect.tap(api.create(options), () =>
              networkOf(options).startsWith("container:")
                ? api.remove(networkOf(options).slice("container:".length))
                : Effect.void
            )
        }))
        assert.deepStrictEqual([created, exitCode, network], [2, 5, "none"])
      })
    )

    it.effect("is left if the engine started the run in another one, whatever the engine says", () =>
      Effect.gen(function* () {
        const lies = new Map<string, string>()
        const { created, exitCode, posture } = yield* started((api) => ({
          create: (options) =>
            networkOf(options).startsWith("container:")
              ? Effect.tap(
                  api.create({ ...options, hostConfig: { ...options.hostConfig, NetworkMode: "none" } }),
                  (id) => Effect.sync(() => lies.set(id, networkOf(options)))
                )
              : api.create(options),
          inspect: (id) =>
            Effect.map(api.inspect(id), (found) => {
              const lie = lies.get(id)
              return found === undefined || lie === undefined
                ? found
                : { ...found, HostConfig: { ...found.HostConfig, NetworkMode: lie } }
            })
        }))
        assert.deepStrictEqual([created, exitCode, lies.size], [2, 5, 1])
        assert.deepStrictEqual(posture?.interfaces, ["lo"])
      })
    )

    it.effect("is left for one of the engine if an image cannot have its file, which is tried once", () =>
      Effect.gen(function* () {
        let isJoined = false
        const { created, exitCode, network } = yield* started((api) => ({
          create: (options) => {
            isJoined ||= networkOf(options).startsWith("container:")
            const path = hostsFileOf(options)
            if (isJoined && path !== undefined) rmSync(path)
            return api.create(options)
          }
        }))
        assert.deepStrictEqual([created, exitCode, network], [2, 5, "none"])
      })
    )
  }
)
