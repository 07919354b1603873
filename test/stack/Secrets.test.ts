/**
 * The complete path: a real agent in a real sandbox, a real proxy, and an upstream that records its requests.
 *
 * The tests give the proxy a key, and search every place that must not contain it: the sandbox, the engine's records,
 * the images, the run's directory, and all output and logs.
 */
import { assert, it, layer } from "@effect/vitest"
import { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as NginxLlmProxy from "@cogni/sandbox-proxy/NginxLlmProxy"
import * as RunKeys from "@cogni/sandbox-proxy/RunKeys"
import type * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import { Context, Effect, Layer, Logger, Redacted, References, Stream } from "effect"
import { execFile, spawn } from "node:child_process"
import { promisify } from "node:util"
import { docker } from "../harness/Docker.ts"
import * as Images from "../harness/Images.ts"
import * as Pace from "../harness/Pace.ts"
import * as RunHarness from "../harness/RunHarness.ts"

/** Invented key that occurs nowhere else. */
const key = "sk-planted-7f3c9e1d5b8a-quixotic"

let rotations = 0

class Upstream extends Context.Service<Upstream, ScriptedModelApi.ScriptedModelApi>()("test/Upstream") {
  static readonly layer = Layer.effect(Upstream, DemoUpstream.acquire({ raw: true }))
}

/** Proxies under test. `adds` is the suffix of the container that a proxy adds, if any. */
const proxies = [
  { name: "nginx", adds: "-proxy", carrier: undefined },
  { name: "gateway, sockets in a directory", adds: undefined, carrier: "directory" },
  { name: "gateway, sockets in a container", adds: "-gateway", carrier: "container" },
  { name: "gateway, a key for each run", adds: undefined, carrier: "directory", hasRunKeys: true }
] as const

interface Proxy {
  readonly carrier: "directory" | "container" | undefined
  readonly hasRunKeys?: boolean
}

/** Keys of runs that the search finds too. */
const runKeys = RunKeys.makeMemory({ keyPrefix: `${key}-run-` })

const proxyOf = ({ carrier, hasRunKeys = false }: Proxy) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const { url } = yield* Upstream
      const keys = hasRunKeys ? yield* runKeys : undefined
      return carrier === undefined
        ? NginxLlmProxy.layer({
            image: Images.proxy,
            upstream: { type: "host", url: url },
            key: Redacted.make(key)
          }).pipe(Layer.provide(UsageObserver.layerNone))
        : GatewayLlmProxy.layer({
            url: url,
            // A new key each time: the search covers every key that was used.
            key: Effect.sync(() => Redacted.make(`${key}-${++rotations}`)),
            keySecondsMax: 0,
            carrier,
            image: Images.gateway,
            ...(keys === undefined ? {} : { runKeys: { keys } }),
            // The most verbose setting of the audit.
            auditBodies: "full"
          }).pipe(Layer.provide(UsageObserver.layerNone))
    })
  )

const logged: Array<string> = []
const logs = Layer.merge(
  Logger.layer([
    Logger.make(({ cause, message }) => void logged.push(JSON.stringify({ message, cause: String(cause) })))
  ]),
  Layer.succeed(References.MinimumLogLevel, "Trace")
)

const identity = {
  billingAccountId: "acct-42",
  attempt: 1,
  userId: "user-7",
  graphId: "sandbox:agent",
  existingTraceId: "trace-1",
  sessionId: "session-9",
  traceUserId: "tracer"
}

const spec: SandboxSpecInput = {
  image: Images.runtime,
  argv: ["cogni-agent"],
  inputs: [
    {
      name: "messages.json",
      content: JSON.stringify([{ role: "user", content: "What is the capital of Peru?" }])
    }
  ],
  llm: { model: "demo", identity },
  limits: { runtimeSecondsMax: Pace.runSecondsMax }
}

/** Prints everything that an agent can read. The needle is assembled, so that the search does not find itself. */
const searchInside = `
needle=$(printf 'planted-%s' 7f3c)
env
cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'
cat /proc/mounts /proc/self/mountinfo
find / -xdev \\( -path /proc -o -path /sys -o -path /usr/lib -o -path /usr/share \\) -prune -o -type f -size -1M -readable -print0 2>/dev/null | xargs -0 grep -l "$needle" 2>/dev/null
grep -rl "$needle" /llm-sock /cogni /workspace /tmp /home /etc /run 2>/dev/null
curl() { exec 3<>/dev/tcp/127.0.0.1/8080; printf 'GET %s HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' "$1" >&3; cat <&3; }
for path in /health /v1/models /nginx.conf /../nginx.conf /tmp/nginx.conf / /key/info /v1/../key/list; do curl "$path"; done
for file in /llm-sock/llm.sock; do
  rm -f $file 2>/dev/null && echo SOCKET-REMOVED
  mv $file /tmp/ 2>/dev/null && echo SOCKET-MOVED
  ln -sf /tmp/evil $file 2>/dev/null && echo SOCKET-REPLACED
  : > /llm-sock/other 2>/dev/null && echo SOCKET-DIRECTORY-WRITTEN
done
[ -S /llm-sock/llm.sock ] && echo socket-stands
`

for (const proxy of proxies) {
  const whole = RunHarness.layer(proxyOf(proxy)).pipe(
    Layer.provideMerge(Upstream.layer),
    Layer.provideMerge(logs)
  )
  layer(whole, { excludeTestServices: true })(`a key in the proxy (${proxy.name})`, (it) => {
    it.effect(
      "is sent to the upstream with our identity and without the client's headers, and the agent gets its answer",
      () =>
        Effect.gen(function* () {
          const runner = yield* SandboxRunner
          const result = yield* runner.run(spec)
          const envelope = JSON.parse(result.output.stdout.text)
          assert.strictEqual(result.exitCode, 0)
          assert.isNull(envelope.meta.error)
          assert.include(envelope.payloads[0].text, "What is the capital of Peru?")

          const [request] = (yield* (yield* Upstream).received).slice(-1)
          const headers = new Map(request!.headers.map(([name, value]) => [name.toLowerCase(), value]))
          const sent = headers.get("authorization") ?? ""
          if (proxy.carrier === undefined) assert.strictEqual(sent, `Bearer ${key}`)
          else if ("hasRunKeys" in proxy)
            assert.match(sent, new RegExp(`^Bearer ${key}-run-[0-9a-f]{24}$`, "u"))
          else assert.strictEqual(sent, `Bearer ${key}-${rotations}`)
          assert.strictEqual(headers.get("x-litellm-end-user-id"), identity.billingAccountId)
          assert.strictEqual(headers.get("x-litellm-customer-id"), identity.billingAccountId)
          assert.deepStrictEqual(JSON.parse(headers.get("x-litellm-spend-logs-metadata")!), {
            run_id: result.runId,
            attempt: 1,
            user_id: "user-7",
            graph_id: "sandbox:agent",
            existing_trace_id: "trace-1",
            session_id: "session-9",
            trace_user_id: "tracer"
          })
          assert.strictEqual(result.llm?.calls.length, 1)
          assert.strictEqual(result.llm?.calls[0]?.status, 200)
          assert.isDefined(result.llm?.calls[0]?.callId)
        })
    )

    it.effect("is nowhere in the sandbox, and the socket can be neither removed nor replaced", () =>
      Effect.gen(function* () {
        const runner = yield* SandboxRunner
        const { output } = yield* runner.run({ ...spec, argv: ["bash", "-c", searchInside] })
        const said = output.stdout.text + output.stderr.text
        assert.notInclude(said, "planted-7f3c")
        assert.notMatch(said, /^SOCKET-/mu)
        assert.include(said, "socket-stands")
        assert.include(said, "HTTP/1.1 403")
      })
    )

    it.effect("is in no data of the engine, and in no record, log or file of the run", () =>
      Effect.gen(function* () {
        const runner = yield* SandboxRunner
        const directory = yield* RunHarness.Directory
        const seen = yield* runner.stream({ ...spec, argv: ["sleep", "1"] }).pipe(
          Stream.mapEffect((event) =>
            event._tag !== "PostureVerified"
              ? Effect.succeed("")
              : Effect.gen(function* () {
                  const ids = (yield* docker("ps", "-aq", "--filter", "label=dev.cogni.sandbox.run"))
                    .trim()
                    .split("\n")
                  // Other runs use this engine too, and some of their containers are already gone.
                  const known = yield* Effect.promise(() =>
                    promisify(execFile)("docker", ["inspect", ...ids]).then(
                      ({ stdout }) => stdout,
                      (thrown) => (thrown as { stdout: string }).stdout
                    )
                  )
                  assert.include(known, "cogni-run-", "the containers were not inspected")
                  if (proxy.adds !== undefined)
                    assert.include(known, proxy.adds, "the proxy's container was not inspected")
                  const volumes = yield* docker(
                    "volume",
                    "ls",
                    "-q",
                    "--filter",
                    "label=dev.cogni.sandbox.run"
                  )
                  const onDisk = yield* Effect.promise(() =>
                    promisify(execFile)("grep", [
                      "-rlsa",
                      key,
                      directory,
                      "/var/lib/docker/containers",
                      "/var/lib/docker/volumes"
                    ]).then(
                      ({ stdout }) => stdout,
                      (thrown) => (thrown as { stdout: string }).stdout
                    )
                  )
                  return known + volumes + onDisk
                })
          ),
          Stream.runCollect
        )
        assert.notInclude(seen.join("\n"), "planted-7f3c")
        assert.notInclude(logged.join("\n"), "planted-7f3c")
        const records = yield* (yield* RunStore).list
        assert.isAbove(records.length, 0)
        assert.notInclude(JSON.stringify(records), "planted-7f3c")
      })
    )

    it.effect("is in no error", () =>
      Effect.gen(function* () {
        const least = LlmProxyContract.requestOf("run-000000000001" as never)
        const request = { ...least, llm: { ...least.llm, identity } }
        const ready = Effect.scoped(
          LlmProxy.use(({ acquire }) => Effect.flatMap(acquire(request), (endpoint) => endpoint.ready))
        )
        const nginx = (given: string) =>
          Effect.provide(
            ready,
            NginxLlmProxy.layer({
              image: Images.absent,
              upstream: { type: "host", url: "http://127.0.0.1:9" },
              key: Redacted.make(given)
            }).pipe(Layer.provide(UsageObserver.layerNone))
          )
        const gateway = (given: string) =>
          Effect.provide(
            ready,
            GatewayLlmProxy.layer({
              url: "http://127.0.0.1:9",
              key: Redacted.make(given),
              carrier: "container",
              image: Images.absent
            }).pipe(Layer.provide(UsageObserver.layerNone))
          )
        const runner = yield* SandboxRunner
        const invalid = `${key}\nforged: header`
        const errors = yield* Effect.all([
          Effect.flip(nginx(invalid)),
          Effect.flip(gateway(invalid)),
          Effect.flip(nginx(key)),
          Effect.flip(gateway(key)),
          Effect.flip(runner.run({ ...spec, image: Images.absent })),
          Effect.flip(runner.run({ ...spec, limits: { runtimeSecondsMax: 1 }, argv: ["sleep", "30"] }))
        ])
        for (const error of errors) {
          assert.notInclude(
            `${error} ${error.message} ${error.stack} ${JSON.stringify(error)}`,
            "planted-7f3c"
          )
        }
      })
    )
  })
}

it.live("a key in the proxy is in no image layer, after the runs with every proxy", () =>
  Effect.gen(function* () {
    const found = yield* Effect.promise(
      () =>
        new Promise<string>((resolve, reject) => {
          const save = spawn("docker", ["save", Images.runtime, Images.proxy, Images.gateway], {
            stdio: ["ignore", "pipe", "inherit"]
          })
          const grep = spawn("grep", ["-ac", "planted-7f3c"], {
            stdio: [save.stdout, "pipe", "inherit"]
          })
          let counted = ""
          grep.stdout.on("data", (piece) => (counted += piece))
          grep.on("close", () => resolve(counted.trim()))
          grep.on("error", reject)
        })
    )
    assert.strictEqual(found, "0")
  })
)
