/**
 * The `/etc/hosts` of sandboxes whose network the engine does not configure, on real Docker: what they see, and that
 * whatever happens to the file, a sandbox has the right one, or the engine's.
 */
import { assert, layer } from "@effect/vitest"
import { type Container, ContainerRuntime, type ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import { Effect, Layer, Stream } from "effect"
import { execFileSync } from "node:child_process"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { docker } from "../harness/Docker.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const listen = (host: string) =>
  `perl -MIO::Socket::IP -e 'my $l = IO::Socket::IP->new(Listen => 1, LocalHost => "${host}", LocalPort => 0)` +
  ` or die "$@\\n"; print IO::Socket::IP->new(PeerHost => "${host}", PeerPort => $l->sockport) ? "ok" : $@, "\\n"'`

const looks = [
  ["localhost", "getent ahosts localhost | cut -d ' ' -f 1 | sort -u", "127.0.0.1"],
  ["the addresses of localhost are used", listen("localhost"), "ok"],
  ["IPv6", listen("ip6-localhost"), "ok"],
  ["another name", "timeout 2 getent hosts example.com; echo $?", "2"],
  ["interfaces", "ls /sys/class/net", "lo"],
  ["routes", "tail -n +2 /proc/net/route; grep -v ' lo$' /proc/net/ipv6_route; echo none", "none"],
  ["its own name", "[ $(hostname) = $(cat /etc/hostname) ] && echo ok", "ok"],
  [
    "writing",
    "for try in 'echo x >> /etc/hosts' 'rm -f /etc/hosts' 'mv /etc/hosts /tmp/x' 'chmod 666 /etc/hosts'" +
      " 'ln -f /tmp/x /etc/hosts'; do sh -c \"$try\" 2>/dev/null && echo $try; done; echo none",
    "none"
  ],
  ["mounts", "grep -c ' /etc/hosts ro,' /proc/self/mountinfo", "1"]
] as const

const line = looks.map(([, script]) => `( ${script} ) 2>&1 | tr '\\n' ' '; echo`).join("; ")

const specOf = Effect.fnUntraced(function* (image: string, user = 1000) {
  const { limits } = yield* SpecDecoder.decode({ image, argv: ["sh"] })
  return {
    runId: yield* RunId.generate,
    role: "agent",
    image,
    argv: ["sh", "-c", `${line}; readlink /proc/self/ns/net`],
    env: {},
    user: { userId: user, groupId: user },
    mounts: [],
    network: { mode: "none" },
    limits
  } satisfies ContainerSpec
})

interface Facts {
  readonly Config: { readonly NetworkDisabled?: boolean }
  readonly HostConfig: {
    readonly Mounts?: ReadonlyArray<{ readonly Source: string; readonly Target: string }>
  }
}

/** Runs the looks, and returns the answers, the container's namespace, and what the engine says. */
const looked = Effect.fnUntraced(function* (container: Container) {
  yield* container.start
  yield* container.proceed
  const output = yield* Stream.runCollect(container.output)
  const lines = Buffer.concat(output.map(({ bytes }) => bytes))
    .toString()
    .split("\n")
  const facts: Facts = JSON.parse(yield* docker("inspect", container.id))[0]
  const source = facts.HostConfig.Mounts?.find(({ Target }) => Target === "/etc/hosts")?.Source
  return {
    said: looks.map(([name], index) => [name, lines[index]?.trim()]),
    namespace: lines[looks.length],
    isDisabled: facts.Config.NetworkDisabled === true,
    source
  }
})

const asExpected = looks.map(([name, , answer]) => [name, answer])

const cold = Effect.fnUntraced(function* (image = Images.runtime, user?: number) {
  const { acquire, leftovers } = yield* ContainerRuntime
  const spec = yield* specOf(image, user)
  const seen = yield* Effect.scoped(Effect.flatMap(acquire(spec), looked))
  // Waits for what is removed in the background.
  yield* leftovers(spec.runId)
  return seen
})

const waited = Effect.fnUntraced(function* (whileWaiting = (): void => undefined) {
  const { prepare } = yield* ContainerRuntime
  const spec = yield* specOf(Images.runtime)
  if (prepare === undefined) return assert.fail("no sandbox can wait")
  const made = prepare({ ...spec, waitingId: yield* RunId.generate, waitSecondsMax: 60 })
  return yield* Effect.scoped(
    Effect.flatMap(
      Effect.flatMap(Effect.tap(made, Effect.sync(whileWaiting)), ({ bind }) => bind(spec)),
      looked
    )
  )
})

/** Builds an image with something at `/etc/hosts`. */
const imageWith = Effect.fnUntraced(function* (place: (hosts: string) => void) {
  const context = mkdtempSync(join(tmpdir(), "cogni-image-"))
  const image = `cogni-test-hosts-${crypto.randomUUID()}`
  yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(context, { recursive: true })))
  place(join(context, "hosts"))
  const tar = ["-C", context, "-cf", join(context, "etc.tar"), "--transform=s,^,etc/,", "hosts"]
  execFileSync("tar", tar)
  writeFileSync(join(context, "Dockerfile"), `FROM ${Images.runtime}\nADD etc.tar /\n`)
  yield* Effect.acquireRelease(docker("build", "--quiet", "--tag", image, context), () =>
    docker("image", "rm", "--no-prune", image)
  )
  return image
})

/** Runs an effect over an engine that does something else. */
const over =
  (change: (api: DockerApi.DockerApi["Service"]) => Partial<DockerApi.DockerApi["Service"]>) =>
  <A, E>(effect: Effect.Effect<A, E, ContainerRuntime>) =>
    Effect.flatMap(DockerApi.DockerApi, (api) =>
      Effect.provide(
        effect,
        Layer.provide(
          DockerContainerRuntime.layerApi(Engine.runtime),
          Layer.succeed(DockerApi.DockerApi, DockerApi.DockerApi.of({ ...api, ...change(api) }))
        ),
        { local: true }
      )
    )

const sourceOf = ({ hostConfig }: DockerApi.CreateOptions) =>
  (hostConfig as Facts["HostConfig"]).Mounts?.find(({ Target }) => Target === "/etc/hosts")?.Source

layer(RunHarness.layer(), { excludeTestServices: true, timeout: "2 minutes" })(
  "a sandbox whose network the engine does not configure, on Docker",
  (it) => {
    it.effect.each([
      ["cold", cold()],
      ["of another user", cold(Images.runtime, 4242)],
      ["that has waited", waited()]
    ] as const)("has localhost, nothing but lo, and no file that it can change (%s)", ([, start]) =>
      Effect.gen(function* () {
        const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
        for (const { isDisabled, said, source } of [one, other]) {
          assert.deepStrictEqual(said, asExpected)
          assert.isTrue(isDisabled)
          assert.isFalse(existsSync(source!), "its file is left")
        }
        assert.notStrictEqual(one.source, other.source)
        const namespaces = new Set([one.namespace, other.namespace, readlinkSync("/proc/self/ns/net")])
        assert.strictEqual(namespaces.size, 3)
      })
    )

    it.effect("gets the engine's network if its file is missing, and makes no directory of it", () =>
      Effect.gen(function* () {
        const sources: Array<string> = []
        const { isDisabled, said, source } = yield* cold().pipe(
          over(({ create }) => ({
            create: (options) => {
              const path = sourceOf(options)
              if (path !== undefined) {
                rmSync(path)
                sources.push(path)
              }
              return create(options)
            }
          }))
        )
        assert.deepStrictEqual([isDisabled, source, sources.length], [false, undefined, 1])
        assert.match(String(said[0]?.[1]), /^127\.0\.0\.1/u)
        assert.isFalse(existsSync(sources[0]!))
      })
    )

    it.effect.each(["at the start", "at the start, and nothing is there"])(
      "gets the engine's network if another file is in the place of its own %s",
      (what) =>
        Effect.gen(function* () {
          let exchanged = 0
          const { isDisabled, source } = yield* cold().pipe(
            over(({ create }) => ({
              create: (options) =>
                Effect.tap(create(options), () =>
                  Effect.sync(() => {
                    const path = sourceOf(options)
                    if (path === undefined) return
                    exchanged += 1
                    if (what.endsWith("there")) return rmSync(path)
                    writeFileSync(`${path}.new`, "10.0.0.1 localhost\n", { mode: 0o444 })
                    renameSync(`${path}.new`, path)
                  })
                )
            }))
          )
          assert.deepStrictEqual([exchanged, isDisabled, source], [1, false, undefined])
        })
    )

    it.effect("does not start if the engine mounts something else than it was asked", () =>
      Effect.gen(function* () {
        const error = yield* cold().pipe(
          over(({ create }) => ({
            create: (options) =>
              create(
                sourceOf(options) === undefined
                  ? options
                  : {
                      ...options,
                      hostConfig: JSON.parse(
                        JSON.stringify(options.hostConfig).replace(sourceOf(options)!, "/etc/passwd")
                      )
                    }
              )
          })),
          Effect.flip
        )
        assert.strictEqual(error._tag, "PostureMismatch")
        assert.include(error.message, "its /etc/hosts is not the file that was written for it")
      })
    )

    it.effect("has its file at its place, also if its image has a link there", () =>
      Effect.gen(function* () {
        const image = yield* imageWith((hosts) => symlinkSync("/workspace/hosts", hosts))
        const { isDisabled, said } = yield* cold(image)
        assert.deepStrictEqual([isDisabled, said], [true, asExpected])
      })
    )

    it.effect("has its file after the run of an image that can have none", () =>
      Effect.gen(function* () {
        const image = yield* imageWith((hosts) => mkdirSync(hosts))
        const tries: Array<string> = []
        const [failed, { isDisabled }] = yield* Effect.all([Effect.exit(cold(image)), cold()]).pipe(
          over(({ create }) => ({
            create: (options) => {
              if (options.image === image) tries.push(sourceOf(options) === undefined ? "engine" : "file")
              return create(options)
            }
          }))
        )
        assert.deepStrictEqual([failed._tag, tries, isDisabled], ["Failure", ["file", "engine"], true])
      })
    )

    it.effect("keeps its file if that is removed on the host while it waits", () =>
      Effect.gen(function* () {
        const sources: Array<string> = []
        const { isDisabled, said } = yield* waited((): void => rmSync(sources[0]!)).pipe(
          over(({ create }) => ({
            create: (options) => {
              sources.push(sourceOf(options)!)
              return create(options)
            }
          }))
        )
        assert.deepStrictEqual([sources.length, isDisabled, said], [1, true, asExpected])
      })
    )
  }
)
