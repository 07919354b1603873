/**
 * The nginx proxy of a run on a real engine: the requests that reach the upstream, the agent's answers, the audit log,
 * and the places that must not contain the key.
 */
import { assert, describe, it, layer } from "@effect/vitest"
import { Duration, Effect, Exit, Layer, Redacted, Schedule, Scope } from "effect"
import { execFileSync } from "node:child_process"
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { LlmAccess } from "@cogni/sandbox-core/SpecFields"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as KeyInjection from "@cogni/sandbox-proxy/KeyInjection"
import * as NginxLlmProxy from "@cogni/sandbox-proxy/NginxLlmProxy"
import * as Await from "../harness/Await.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as NginxRun from "../harness/NginxRun.ts"
import * as Pace from "../harness/Pace.ts"
import * as SharedRuns from "../harness/SharedRuns.ts"

const post = (target = "/v1/chat/completions", body = "{}") =>
  `POST ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`

/** Runs the `docker` CLI, independent of the code under test. */
const docker = (...args: ReadonlyArray<string>) => execFileSync("docker", args, { encoding: "utf8" })

const oversizedCount = 20_000

/** Floods every path that checks the length of a body, and prints the count of each status. */
const oversizedFlood = `
const { connect } = require("node:net")
const paths = ["/v1/chat/completions", "/v1/messages", "/x", "/health"]
const counts = {}
let left = ${oversizedCount}
const one = (path) => new Promise((resolve) => {
  const socket = connect("/llm-sock/llm.sock")
  socket.once("data", (data) => { socket.destroy(); resolve(String(data).slice(9, 12)) })
  socket.once("error", ({ code }) => resolve(code))
  socket.once("end", () => resolve("hung up"))
  socket.write("POST " + path + " HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 999999999\\r\\n\\r\\n")
})
const many = async () => {
  while (left > 0) {
    const status = await one(paths[--left % paths.length])
    counts[status] = (counts[status] ?? 0) + 1
  }
}
Promise.all(Array.from({ length: 64 }, many)).then(() => console.log(JSON.stringify(counts)))
`

/** Reads the answer only after all buffers are full, and prints its number of bytes. */
const slowReader = `
const socket = require("node:net").connect("/llm-sock/llm.sock")
let bytes = 0
socket.on("data", (data) => { bytes += data.length })
socket.on("close", () => console.log(bytes))
socket.on("error", () => undefined)
socket.write(process.argv[1])
socket.pause()
setTimeout(() => socket.resume(), 500)
`

const received = (run: NginxRun.NginxRun["Service"]) =>
  Effect.map(run.upstream.received, (all) => {
    const { headers, ...request } = all.at(-1)!
    return {
      ...request,
      headers: new Map(
        headers.map(([name, value]) => [name.toLowerCase(), Buffer.from(value, "latin1").toString("utf8")])
      )
    }
  })

const alone = (
  options: NginxRun.Options,
  test: (run: NginxRun.NginxRun["Service"]) => Effect.Effect<void, unknown, Scope.Scope>
) =>
  Effect.flatMap(NginxRun.make(options), test).pipe(
    Effect.provide(DockerContainerRuntime.layer(Engine.options))
  )

LlmProxyContract.suite(
  "nginx, on Docker",
  NginxLlmProxy.layer({
    image: Images.proxy,
    upstream: { type: "host", url: "http://127.0.0.1:4000" },
    key: Redacted.make(NginxRun.key)
  }).pipe(
    Layer.provide(UsageObserver.layerNone),
    Layer.provideMerge(DockerContainerRuntime.layer(Engine.options))
  ),
  {
    leftovers: (runId) => Effect.flatMap(ContainerRuntime, (runtime) => runtime.leftovers(runId)),
    kill: (runId) => Effect.sync(() => docker("kill", "--signal", "KILL", `cogni-${runId}-proxy`))
  }
)

layer(NginxRun.layer({ basePath: "/litellm/v1" }), { excludeTestServices: true })(
  "NginxLlmProxy, on Docker",
  (it) => {
    it.effect("answers health checks itself", () =>
      Effect.gen(function* () {
        const run = yield* NginxRun.NginxRun
        assert.include((yield* run.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")).text, '{"ok":true}')
      })
    )

    it.effect("prepends the upstream's base path, and reports its calls", () =>
      Effect.gen(function* () {
        const run = yield* NginxRun.NginxRun
        assert.strictEqual((yield* run.send(post())).status, 200)
        yield* run.send(post("/v1/files?x=1"))
        assert.strictEqual((yield* received(run)).target, "/litellm/v1/chat/completions")
        // nginx logs a call after its answer, and `traffic` waits only for calls that were passed on.
        const traffic = yield* Effect.repeat(run.endpoint.traffic, {
          schedule: Schedule.spaced("20 millis"),
          until: ({ calls }) => calls.at(-1)?.path === "/v1/files?x=1",
          times: 15_000
        })
        assert.deepStrictEqual(
          traffic.calls
            .slice(-2)
            .map(({ completed, method, path, status }) => ({ completed, method, path, status })),
          [
            { method: "POST", path: "/v1/chat/completions", status: 200, completed: true },
            { method: "POST", path: "/v1/files?x=1", status: 403, completed: true }
          ]
        )
        assert.match(traffic.calls.at(-1)!.requestId, /^[0-9a-f]{32}$/u)
        assert.strictEqual(statSync(traffic.auditPath!).isFile(), true)
      })
    )

    it.effect("the key is absent from the engine's records, the host's files and the sandbox", () =>
      Effect.gen(function* () {
        const run = yield* NginxRun.NginxRun
        const fragment = NginxRun.key.slice(-12)
        const name = `cogni-${run.runId}-proxy`
        assert.notInclude(docker("inspect", name), fragment)
        assert.notInclude(docker("inspect", `cogni-${run.runId}-agent`), fragment)
        assert.notInclude(docker("top", name), fragment)
        for (const file of readdirSync(run.directory, { recursive: true, encoding: "utf8" })) {
          const path = join(run.directory, file)
          if (statSync(path).isFile()) assert.notInclude(readFileSync(path, "latin1"), fragment, path)
        }
        const inside = yield* run.exec(
          "sh",
          "-c",
          "cat /proc/*/environ /proc/*/cmdline 2>/dev/null; grep -rs sk- /tmp /home /workspace /llm-sock || :"
        )
        assert.notInclude(inside, fragment)
      })
    )

    it.effect("runs with the hardening of a sandbox", () =>
      Effect.gen(function* () {
        const run = yield* NginxRun.NginxRun
        const [inspected] = JSON.parse(docker("inspect", `cogni-${run.runId}-proxy`))
        const { HostConfig } = inspected
        assert.strictEqual(HostConfig.NetworkMode, "none")
        assert.isTrue(HostConfig.ReadonlyRootfs)
        assert.deepStrictEqual(HostConfig.CapDrop, ["ALL"])
        assert.strictEqual(HostConfig.Memory, 64 * 1024 * 1024)
        assert.strictEqual(HostConfig.PidsLimit, 32)
        assert.notMatch(inspected.Config.User, /^0:/u)
      })
    )

    it.effect("the sandbox can use the socket, but can neither remove nor replace it", () =>
      Effect.gen(function* () {
        const run = yield* NginxRun.NginxRun
        const said = yield* run.exec(
          "sh",
          "-c",
          "rm -f /llm-sock/llm.sock 2>&1; mv /tmp /llm-sock/x 2>&1; touch /llm-sock/y 2>&1; ls /llm-sock"
        )
        assert.match(said, /(?:Read-only file system|Permission denied)/u)
        assert.match(said, /\nllm\.sock\n$/u)
        assert.strictEqual((yield* run.send(post())).status, 200)
      })
    )

    it.effect("an agent's plain HTTP client reaches the proxy over TCP", () =>
      Effect.gen(function* () {
        const run = yield* NginxRun.NginxRun
        const said = yield* run.exec(
          "node",
          "-e",
          'fetch("http://localhost:8080/v1/chat/completions", { method: "POST", body: "{}" }).then((r) => r.text()).then(console.log)'
        )
        assert.strictEqual(said.trim(), '{"ok":true}')
      })
    )

    it.effect("a body of 20 MB passes without buffering", () =>
      Effect.gen(function* () {
        const run = yield* NginxRun.NginxRun
        const said = yield* run.exec(
          "node",
          "-e",
          'fetch("http://localhost:8080/v1/chat/completions", { method: "POST", body: "x".repeat(20e6) }).then((r) => console.log(r.status))'
        )
        assert.strictEqual(said.trim(), "200")
        assert.strictEqual((yield* received(run)).bodyBytes, 20e6)
      })
    )
  }
)

const named: LlmAccess = {
  model: "m",
  models: {},
  identity: NginxRun.identity,
  unknownFields: "drop",
  caller: "sandbox"
}

describe("NginxLlmProxy, on Docker, one proxy per test", () => {
  it.live("leaves nothing behind on the engine", () =>
    Effect.gen(function* () {
      const runtime = yield* ContainerRuntime
      const scope = yield* Scope.make()
      const run = yield* NginxRun.make().pipe(Scope.provide(scope))
      yield* run.send(post())
      assert.isAtLeast((yield* runtime.leftovers(run.runId)).length, 3)
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(yield* runtime.leftovers(run.runId), [])
    }).pipe(Effect.provide(DockerContainerRuntime.layer(Engine.options)))
  )

  it.live("any text in the key and the identity arrives unchanged", () =>
    Effect.forEach(
      [
        Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index))
          .join("")
          .trim(),
        "ключ-鍵-😀-ü",
        '"; } location / { proxy_pass http://evil; } #',
        "${literal_1}$uri$$",
        `${'\\"'.repeat(900)}x`
      ],
      (text) =>
        alone(
          {
            key: text,
            identity: {
              billingAccountId: text.slice(0, 199).trim().toWellFormed(),
              attempt: 3,
              userId: `${text.slice(0, 100)}\n\t\0`,
              traceUserId: "t"
            }
          },
          (run) =>
            Effect.gen(function* () {
              assert.strictEqual((yield* run.send(post())).status, 200)
              const { headers } = yield* received(run)
              const account = text.slice(0, 199).trim().toWellFormed()
              assert.strictEqual(headers.get("authorization"), `Bearer ${text}`)
              assert.strictEqual(headers.get("x-litellm-customer-id"), account)
              assert.strictEqual(headers.get("x-litellm-end-user-id"), account)
              const metadata = headers.get("x-litellm-spend-logs-metadata")!
              assert.match(metadata, /^[\x20-\x7e]+$/u)
              assert.deepInclude(JSON.parse(metadata), {
                run_id: run.runId,
                attempt: 3,
                user_id: `${text.slice(0, 100)}\n\t\0`,
                trace_user_id: "t"
              })
            })
        ),
      { concurrency: 2 }
    )
  )

  it.live("answers a flood with 429, and does not flood the log", () =>
    alone({}, (run) =>
      Effect.gen(function* () {
        const said = yield* run.exec(
          "node",
          "-e",
          `const counts = {}
           const one = async () => {
             const key = await fetch("http://localhost:8080/flood").then(
               async (answer) => answer.status + " " + JSON.parse(await answer.text()).error.code,
               ({ cause }) => "no answer: " + cause
             )
             counts[key] = (counts[key] ?? 0) + 1
           }
           const many = async () => { for (let i = 0; i < 50; i++) await one() }
           Promise.all(Array.from({ length: 20 }, many)).then(() => console.log(JSON.stringify(counts)))`
        )
        const counts = JSON.parse(said)
        assert.sameMembers(Object.keys(counts), ["403 path_not_allowed", "429 too_many_requests"])
        assert.isAbove(counts["429 too_many_requests"], 300)
        assert.strictEqual((yield* run.endpoint.traffic).callsTotal, counts["403 path_not_allowed"])
      })
    )
  )

  it.live("a flood of oversized requests does not reach the log, which stays fast to read", () =>
    alone({}, (run) =>
      Effect.gen(function* () {
        assert.strictEqual((yield* run.send(post())).status, 200)
        const said = yield* run.exec("node", "-e", oversizedFlood)
        assert.deepStrictEqual(JSON.parse(said), { 413: oversizedCount })
        assert.strictEqual((yield* run.send(post())).status, 200)

        const [taken, traffic] = yield* Effect.timed(run.endpoint.traffic)
        assert.isBelow(Duration.toMillis(taken), Pace.allowed(1500))
        assert.deepInclude(traffic, { callsTotal: 2, unreadableRows: 0 })
        assert.deepStrictEqual(
          traffic.calls.map(({ status }) => status),
          [200, 200]
        )
        assert.isBelow(statSync(traffic.auditPath!).size, 4096)
        assert.strictEqual(statSync(join(dirname(traffic.auditPath!), "error.log")).size, 0)
      })
    )
  )

  it.live("ends the proxy when the log is nearly full, before a call is left out of it", () =>
    Effect.gen(function* () {
      const runId = yield* RunId.generate
      const directory = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
        (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
      )
      const proxy = yield* NginxLlmProxy.make({
        image: Images.proxy,
        upstream: { type: "host", url: "http://127.0.0.1:1" },
        key: Redacted.make(NginxRun.key),
        auditBytesMax: 2000
      }).pipe(Effect.provide(UsageObserver.layerNone))
      const endpoint = yield* proxy.acquire(LlmProxyContract.requestOf(runId, { llm: named, directory }))
      yield* endpoint.ready
      docker(
        "run",
        "--rm",
        "--network",
        "none",
        "--user",
        "1000:1000",
        "--volume",
        `${endpoint.mounts[0]!.source}:/llm-sock:ro`,
        "--entrypoint",
        "node",
        Images.runtime,
        "-e",
        `const { request } = require("node:http")
         const one = () => request({ socketPath: "/llm-sock/llm.sock", path: "/x" }, (r) => r.resume()).end()
         for (let i = 0; i < 10; i++) one()`
      )
      const error = yield* Effect.flip(endpoint.failure).pipe(Effect.timeout("5 minutes"))
      assert.strictEqual(error._tag, "ProxyFailed")
      assert.include(error.message, "2000 bytes")
      assert.notInclude(docker("ps", "--format", "{{.Names}}"), `cogni-${runId}-proxy`)
      assert.strictEqual((yield* endpoint.traffic).callsTotal, 10)
    }).pipe(Effect.scoped, Effect.provide(DockerContainerRuntime.layer(Engine.options)))
  )

  it.live("answers 502 with an error code if the upstream is unreachable", () =>
    alone({ url: "http://127.0.0.1:1" }, (run) =>
      Effect.gen(function* () {
        const answer = yield* run.send(post())
        assert.strictEqual(answer.status, 502)
        assert.strictEqual(JSON.parse(answer.text.split("\r\n\r\n")[1]!).error.code, "upstream_unreachable")
        const [call] = (yield* run.endpoint.traffic).calls
        assert.deepInclude(call, { status: 502, method: "POST" })
      })
    )
  )

  it.live("removes the upstream's own headers, and passes its HTML page and its errors", () =>
    alone(
      {
        script: [
          {
            _tag: "Answer",
            headers: {
              "x-litellm-call-id": "call-7",
              "x-litellm-model-api-base": "http://10.0.0.9",
              "x-litellm-response-cost": "0.1",
              "x-litellm-key-spend": "12",
              "llm_provider-x-request-id": "p",
              "set-cookie": "a=b",
              server: "uvicorn",
              "x-accel-redirect": "/v1/models"
            }
          },
          { _tag: "Html", status: 502 },
          { _tag: "Error", status: 500 }
        ]
      },
      (run) =>
        Effect.gen(function* () {
          const answer = yield* run.send(post())
          assert.strictEqual(answer.status, 200)
          assert.notMatch(answer.text, /litellm|llm_provider|cookie|uvicorn|10\.0\.0\.9/iu)
          assert.include((yield* run.send(post())).text, "<h1>Bad gateway</h1>")
          assert.include((yield* run.send(post())).text, '"scripted"')
          const { calls } = yield* run.endpoint.traffic
          assert.strictEqual(calls[0]!.callId, "call-7")
          assert.deepStrictEqual(
            calls.map(({ status }) => status),
            [200, 502, 500]
          )
        })
    )
  )

  it.live("streams events one by one, shows a broken stream, and logs a cut call", () =>
    alone(
      {
        script: [
          { _tag: "SlowStream", events: 5, pauseMillis: 100 },
          { _tag: "ResetMidStream", events: 2 },
          { _tag: "Hang" }
        ]
      },
      (run) =>
        Effect.gen(function* () {
          const times = yield* run.exec(
            "node",
            "-e",
            'fetch("http://localhost:8080/v1/chat/completions", { method: "POST", body: "{}" }).then(async (r) => { for await (const c of r.body) console.log(Math.round(performance.now())) })'
          )
          const at = times.trim().split("\n").map(Number)
          assert.isAtLeast(at.length, 5)
          assert.isAbove(at.at(-1)! - at[0]!, 300)

          const broken = yield* run.send(post())
          assert.include(broken.text, "data: ")
          assert.notMatch(broken.text, /\r\n0\r\n\r\n$/u)

          yield* run.send(post(), { idleMillis: 300, cut: true })
          const calls = yield* run.endpoint.traffic.pipe(Effect.map((traffic) => traffic.calls))
          assert.deepStrictEqual(
            calls.map(({ completed }) => completed),
            [true, false, false]
          )
          assert.strictEqual(calls[2]!.status, 499)
          assert.isTrue((yield* run.upstream.received)[2]!.cut)
        })
    )
  )

  it.live("a truncated answer to a slow reader is not logged as completed", () =>
    alone({ script: [{ _tag: "ResetMidStream", events: 8000 }] }, (run) =>
      Effect.gen(function* () {
        const bytes = yield* run.exec("node", "-e", slowReader, post())
        assert.isAbove(Number(bytes), 0)
        const { calls } = yield* run.endpoint.traffic
        assert.deepStrictEqual(
          calls.map(({ completed, status }) => ({ completed, status })),
          [{ completed: false, status: 200 }]
        )
      })
    )
  )

  it.live("logs a call that the end of the sandbox cuts off", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const run = yield* NginxRun.make({ script: [{ _tag: "Hang" }] }).pipe(Scope.provide(scope))
      yield* Effect.forkChild(run.send(post()))
      yield* run.upstream.received.pipe(
        Effect.repeat({
          schedule: Schedule.spaced("20 millis"),
          until: (all) => all.length > 0,
          times: 15_000
        })
      )
      docker("kill", `cogni-${run.runId}-agent`)
      const { calls } = yield* run.endpoint.traffic
      assert.deepStrictEqual(
        calls.map(({ completed, status }) => ({ completed, status })),
        [{ completed: false, status: 499 }]
      )
      yield* Scope.close(scope, Exit.void)
    }).pipe(Effect.provide(DockerContainerRuntime.layer(Engine.options)))
  )

  it.live("reports a proxy that ends during a run", () =>
    alone({}, (run) =>
      Effect.gen(function* () {
        docker("kill", "--signal", "KILL", `cogni-${run.runId}-proxy`)
        const error = yield* Effect.flip(run.endpoint.failure).pipe(Effect.timeout("5 minutes"))
        assert.strictEqual(error._tag, "ProxyFailed")
        assert.notInclude(String(error), NginxRun.key)
      })
    )
  )

  it.live("reports a worker process that ends during a run, and counts the calls that it never logged", () =>
    alone({ script: [{ _tag: "Hang" }] }, (run) =>
      Effect.gen(function* () {
        yield* Effect.forkChild(run.send(post()))
        yield* Await.until(
          "the hanging call",
          Effect.map(run.upstream.received, ({ length }) => length === 1)
        )
        const worker = SharedRuns.processIn(`cogni-${run.runId}-proxy`, "nginx: worker process")
        process.kill(worker, "SIGKILL")
        const error = yield* Effect.flip(run.endpoint.failure).pipe(Effect.timeout("1 minute"))
        assert.strictEqual(error._tag, "ProxyFailed")
        assert.include(error.message, "the worker process of the proxy exited on signal 9")
        assert.notInclude(String(error), NginxRun.key)
        assert.deepInclude(yield* run.endpoint.traffic, { calls: [], callsTotal: 1, unreadableRows: 1 })
      })
    )
  )

  it.live("reaches a container upstream by name, and finds it again at a new address", () =>
    Effect.gen(function* () {
      const runId = yield* RunId.generate
      const network = `cogni-test-${runId}`
      const name = `models-${runId}`
      const server =
        'require("node:http").createServer((q, s) => { q.resume(); s.end(JSON.stringify({ path: q.url, headers: q.headers })) }).listen(4000)'
      yield* Effect.acquireRelease(
        Effect.sync(() => docker("network", "create", "--internal", network)),
        () => Effect.sync(() => docker("network", "rm", network))
      )
      const startUpstream = () =>
        docker(
          "run",
          "--detach",
          "--network",
          network,
          "--name",
          name,
          "--entrypoint",
          "node",
          Images.runtime,
          "-e",
          server
        )
      yield* Effect.acquireRelease(Effect.sync(startUpstream), () =>
        Effect.sync(() => docker("rm", "--force", name))
      )

      const proxy = yield* NginxLlmProxy.make({
        image: Images.proxy,
        upstream: { type: "container", url: `http://${name}:4000/base`, networkName: network },
        key: Redacted.make(NginxRun.key)
      }).pipe(Effect.provide(UsageObserver.layerNone))
      const endpoint = yield* proxy.acquire(LlmProxyContract.requestOf(runId, { llm: named }))
      yield* endpoint.ready
      const client =
        'require("node:http").request({ socketPath: "/llm-sock/llm.sock", path: "/v1/chat/completions", method: "POST" }, (r) => r.pipe(process.stdout)).end("{}")'
      const ask = () =>
        docker(
          "run",
          "--rm",
          "--network",
          "none",
          "--user",
          "1000:1000",
          "--volume",
          `${endpoint.mounts[0]!.source}:/llm-sock:ro`,
          "--entrypoint",
          "node",
          Images.runtime,
          "-e",
          client
        )
      const seen = JSON.parse(ask())
      assert.strictEqual(seen.path, "/base/v1/chat/completions")
      assert.strictEqual(seen.headers.host, `${name}:4000`)
      assert.strictEqual(seen.headers.authorization, `Bearer ${NginxRun.key}`)
      assert.strictEqual(
        seen.headers["x-litellm-spend-logs-metadata"],
        KeyInjection.spendMetadata(runId, NginxRun.identity)
      )
      assert.strictEqual((yield* endpoint.traffic).calls.length, 1)

      // Another container takes the address, so that the restarted upstream gets a new one.
      docker("rm", "--force", name)
      yield* Effect.acquireRelease(
        Effect.sync(() =>
          docker(
            "run",
            "--detach",
            "--network",
            network,
            "--name",
            `${name}-other`,
            "--entrypoint",
            "sleep",
            Images.runtime,
            "60"
          )
        ),
        () => Effect.sync(() => docker("rm", "--force", `${name}-other`))
      )
      startUpstream()
      let again = ask()
      for (let turn = 0; turn < 20 && again.includes("upstream_unreachable"); turn++) {
        yield* Effect.sleep("1 second")
        again = ask()
      }
      assert.strictEqual(JSON.parse(again).path, "/base/v1/chat/completions")
    }).pipe(Effect.provide(DockerContainerRuntime.layer(Engine.options)))
  )
})
