/**
 * One nginx for many runs on a real engine: the contract of a proxy, and what one run could do to another.
 *
 * `HostileRequests` sends it what a hostile agent sends. Here, several runs share it.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Redacted, type Scope } from "effect"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as SharedNginxLlmProxy from "@cogni/sandbox-proxy/SharedNginxLlmProxy"
import * as Await from "../harness/Await.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as SharedRuns from "../harness/SharedRuns.ts"

const { connect, docker, post } = SharedRuns

for (const identity of ["socket", "token"] as const) {
  const directory = mkdtempSync(join(tmpdir(), "cogni-test-"))
  process.once("exit", () => rmSync(directory, { recursive: true, force: true }))
  LlmProxyContract.suite(
    `nginx for many runs, each with a ${identity}, on Docker`,
    SharedNginxLlmProxy.layer({
      image: Images.proxy,
      upstream: { type: "host", url: "http://127.0.0.1:4000" },
      key: Redacted.make(SharedRuns.key),
      identity,
      directory
    }).pipe(
      Layer.provide(UsageObserver.layerNone),
      Layer.provideMerge(DockerContainerRuntime.layer(Engine.options))
    ),
    {
      leftovers: (runId) =>
        Effect.gen(function* () {
          const runtime = yield* ContainerRuntime
          const files = readdirSync(directory).flatMap((name) =>
            ["up", "logs", "runs"].flatMap((kind) => readdirSync(join(directory, name, kind)))
          )
          return [...(yield* runtime.leftovers(runId)), ...files]
        }),
      socketMount: Effect.map(
        SharedRuns.directory,
        (source) => ({ type: "directory", source, target: "/llm-sock", readOnly: true }) as const
      ),
      kill: () =>
        Effect.sync(() =>
          SharedRuns.containersIn(directory).forEach((id) => docker("kill", "--signal", "KILL", id))
        )
    }
  )
}

type Runs = Effect.Success<ReturnType<typeof SharedRuns.make>>

const together = (
  options: Parameters<typeof SharedRuns.make>[0],
  test: (runs: Runs) => Effect.Effect<void, unknown, Scope.Scope>
) =>
  Effect.flatMap(SharedRuns.make(options), test).pipe(
    Effect.scoped,
    Effect.provide(DockerContainerRuntime.layer(Engine.options))
  )

/** Sends a request on a connection, and returns the status of its answer; 0 if the connection is closed. */
const statusOf = Effect.fnUntraced(function* (connection: SharedRuns.Connection, bytes = post()) {
  const before = connection.statuses().length
  connection.send(bytes)
  yield* Await.until(
    "an answer",
    Effect.sync(() => connection.statuses().length > before || connection.isClosed())
  )
  return connection.statuses()[before] ?? 0
})

const call = (socket: string, bytes = post()) =>
  Effect.scoped(Effect.flatMap(connect(socket), (connection) => statusOf(connection, bytes)))

/** Returns the process that carries the commands of the host to an nginx. */
const controlProcess = (directory: string) =>
  SharedRuns.processIn(SharedRuns.containersIn(directory)[0]!, "socat -t 1 -")

/** Reads the state and the parent of a process of this host. */
const processState = (id: number) => {
  const [state, parent] = readFileSync(`/proc/${id}/stat`, "utf8")
    .replace(/^.*\) /su, "")
    .split(" ")
  return { state, parent: Number(parent) }
}

const bearer = (token: string) => `Authorization: Bearer ${token}`
const tokenOf = ({ endpoint }: SharedRuns.SharedRun) => Redacted.value(endpoint.token!)

describe("SharedNginxLlmProxy, on Docker", () => {
  it.live("gives each call the identity of its own socket, whatever it claims", () =>
    together({}, ({ open, upstream }) =>
      Effect.gen(function* () {
        const runs = yield* Effect.forEach(["acct-a", "acct-b", "acct-c"], (account) => open(account), {
          concurrency: "unbounded"
        })
        const claims = [
          "x-litellm-customer-id: acct-a",
          "x-litellm-end-user-id: acct-a",
          `x-litellm-spend-logs-metadata: {"run_id":"${runs[0]!.runId}"}`,
          bearer("sk-evil"),
          "x-api-key: evil"
        ]
        for (const run of runs) assert.strictEqual(yield* call(run.socket, post(claims)), 200)
        const received = yield* upstream.received
        assert.deepStrictEqual(
          received.map(({ headers }) => {
            const values = new Map(headers)
            return [
              values.get("x-litellm-customer-id"),
              values.get("x-litellm-end-user-id"),
              JSON.parse(values.get("x-litellm-spend-logs-metadata")!).run_id,
              values.get("authorization")
            ]
          }),
          runs.map(({ runId }, index) => {
            const account = ["acct-a", "acct-b", "acct-c"][index]
            return [account, account, runId, `Bearer ${SharedRuns.key}`]
          })
        )
      })
    )
  )

  it.live(
    "tells runs of the same ID apart by their sockets, and the end of one is not that of the other",
    () =>
      together({}, ({ open, upstream }) =>
        Effect.gen(function* () {
          const first = yield* open("acct-a")
          const second = yield* open("acct-b", 120, first.runId)
          assert.strictEqual(yield* call(first.socket), 200)
          yield* first.close
          assert.strictEqual(yield* call(second.socket), 200)
          assert.deepStrictEqual(
            (yield* upstream.received).map(({ headers }) => new Map(headers).get("x-litellm-customer-id")),
            ["acct-a", "acct-b"]
          )
          assert.strictEqual((yield* second.endpoint.traffic).callsTotal, 1)
        })
      )
  )

  it.live("reports each run's calls to that run only, and writes the run's ID into its log", () =>
    together({}, ({ open }) =>
      Effect.gen(function* () {
        const one = yield* open("acct-a")
        const other = yield* open("acct-b")
        assert.strictEqual(yield* call(one.socket), 200)
        assert.strictEqual(yield* call(one.socket, post([], { target: "/key/generate" })), 403)
        assert.strictEqual(yield* call(other.socket), 200)
        yield* Await.until(
          "the log of the refused call",
          Effect.map(one.endpoint.traffic, ({ callsTotal }) => callsTotal === 2)
        )
        const { calls } = yield* one.endpoint.traffic
        assert.deepStrictEqual(
          calls.map(({ completed, path, status }) => [path, status, completed]),
          [
            ["/v1/chat/completions", 200, true],
            ["/key/generate", 403, true]
          ]
        )
        assert.strictEqual((yield* other.endpoint.traffic).callsTotal, 1)
      })
    )
  )

  it.live(
    "refuses the calls of a removed run at once, and cuts its calls in progress, but no other run's",
    () =>
      together({ script: [{ _tag: "Hang" }, { _tag: "SlowStream", events: 100, pauseMillis: 50 }] }, (runs) =>
        Effect.gen(function* () {
          const { open, upstream } = runs
          const removed = yield* open("acct-a")
          const other = yield* open("acct-b")
          const [kept, idle, hanging, living] = yield* Effect.all([
            connect(removed.socket),
            connect(removed.socket),
            connect(removed.socket),
            connect(other.socket)
          ])
          assert.strictEqual(yield* statusOf(kept!, post([], { target: "/x" })), 403)
          hanging!.send(post())
          yield* Await.until(
            "the hanging call",
            Effect.map(upstream.received, (all) => all.length === 1)
          )
          living!.send(post())
          yield* Await.until(
            "the stream",
            Effect.sync(() => living!.text().includes("data:"))
          )
          yield* removed.close

          yield* Await.until(
            "the end of the hanging call",
            Effect.sync(() => hanging!.isClosed() || hanging!.text() !== "")
          )
          assert.notInclude(hanging!.statuses(), 200)
          assert.isFalse(existsSync(removed.socket))
          assert.include([0, 401], yield* statusOf(kept!))
          assert.include([0, 401], yield* statusOf(idle!))
          yield* Await.until(
            "the whole stream",
            Effect.sync(() => living!.text().endsWith("0\r\n\r\n"))
          )
          assert.strictEqual((yield* upstream.received).length, 2)
        })
      )
  )

  it.live("cuts the calls in progress of a removed run by itself, without the end of its relay", () =>
    together({ script: [{ _tag: "SlowStream", events: 1000, pauseMillis: 50 }] }, ({ control, open }) =>
      Effect.gen(function* () {
        const run = yield* open("acct-a")
        const streaming = yield* connect(run.socket)
        streaming.send(post())
        yield* Await.until(
          "the stream",
          Effect.sync(() => streaming.text().includes("data:"))
        )
        yield* control("1000 remove 0")
        yield* Await.until(
          "the end of the stream",
          Effect.sync(() => streaming.isClosed())
        ).pipe(Effect.timeout("30 seconds"))
        assert.isFalse(streaming.text().endsWith("0\r\n\r\n"))
      })
    )
  )

  it.live("refuses the calls of a removed run whose socket cannot be removed", () =>
    together({}, ({ open, upstream }) =>
      Effect.gen(function* () {
        const run = yield* open("acct-a")
        const kept = yield* connect(run.socket)
        assert.strictEqual(yield* statusOf(kept, post([], { target: "/x" })), 403)
        const place = dirname(run.socket)
        renameSync(place, `${place}.moved`)
        writeFileSync(place, "")
        yield* run.close
        assert.include([0, 401], yield* statusOf(kept, post([], { target: "/x" })))
        assert.strictEqual((yield* upstream.received).length, 0)
      })
    )
  )

  it.live("ends an nginx that does not hear that a run is removed", () =>
    together({}, ({ directory, open, upstream }) =>
      Effect.gen(function* () {
        const removed = yield* open("acct-a")
        const other = yield* open("acct-b")
        const kept = yield* connect(removed.socket)
        assert.strictEqual(yield* statusOf(kept, post([], { target: "/x" })), 403)
        process.kill(controlProcess(directory), "SIGSTOP")
        yield* removed.close
        const error = yield* Effect.flip(other.endpoint.failure).pipe(Effect.timeout("1 minute"))
        assert.include(error.message, "may still serve a removed run")
        yield* Await.until(
          "the end of the container",
          Effect.sync(() => SharedRuns.containersIn(directory).length === 0)
        )
        assert.strictEqual(yield* statusOf(kept), 0)
        assert.strictEqual((yield* upstream.received).length, 0)
        assert.strictEqual(yield* call((yield* open("acct-c")).socket), 200)
      })
    )
  )

  it.live("refuses the calls of a removed run before it waits for those that hang", () => {
    const hanging = Array.from({ length: 20 }, () => ({ _tag: "Hang" }) as const)
    return together(
      { script: [hanging[0]!, ...hanging.slice(1), { _tag: "Answer" }] },
      ({ open, upstream }) =>
        Effect.gen(function* () {
          const run = yield* open("acct-a")
          for (const _ of hanging) (yield* connect(run.socket)).send(post())
          yield* Await.until(
            "the hanging calls",
            Effect.map(upstream.received, ({ length }) => length === hanging.length)
          )
          const kept = yield* Effect.forEach(Array.from({ length: 40 }), () => connect(run.socket))
          const closing = yield* Effect.forkScoped(run.close)
          const statuses = yield* Effect.forEach(kept, (connection) => statusOf(connection))
          yield* Fiber.join(closing)
          // Those that arrived before the command may pass.
          assert.isAtMost(statuses.filter((status) => status === 200).length, 5)
          assert.include([0, 401], statuses.at(-1))
        })
    )
  })

  it.live("starts another nginx after the files of one have been removed", () =>
    together({}, ({ directory, open }) =>
      Effect.gen(function* () {
        const one = yield* open("acct-a")
        const [name] = readdirSync(directory)
        rmSync(join(directory, name!, "sockets"), { recursive: true })
        const error = yield* Effect.flip(open("acct-b"))
        assert.strictEqual(error._tag, "ProxyFailed")
        assert.include(error.message, join(directory, name!))
        assert.include(error.message, "the next run gets a new one")
        assert.strictEqual(yield* call((yield* open("acct-c")).socket), 200)
        assert.strictEqual(yield* call(one.socket), 200)
      })
    )
  )

  it.live("never gives a socket to another run, and starts another nginx when all were used", () =>
    together({ socketsMax: 2 }, ({ directory, open, upstream }) =>
      Effect.gen(function* () {
        const first = yield* open("acct-a")
        const kept = yield* connect(first.socket)
        assert.strictEqual(yield* statusOf(kept, post([], { target: "/x" })), 403)
        yield* first.close
        const later = yield* Effect.forEach(["acct-b", "acct-c", "acct-d"], (account) => open(account))
        assert.strictEqual(SharedRuns.containersIn(directory).length, 2)
        assert.include([0, 401], yield* statusOf(kept))
        for (const run of later) assert.strictEqual(yield* call(run.socket), 200)
        assert.deepStrictEqual(
          (yield* upstream.received).map(({ headers }) => new Map(headers).get("x-litellm-customer-id")),
          ["acct-b", "acct-c", "acct-d"]
        )
        yield* later[0]!.close
        yield* Await.until(
          "the end of the nginx without runs",
          Effect.sync(() => SharedRuns.containersIn(directory).length === 1)
        )
        assert.strictEqual(yield* call(later[2]!.socket), 200)
      })
    )
  )

  it.live("refuses a run whose time has passed, even if the host does not remove it", () =>
    together({}, ({ open, upstream }) =>
      Effect.gen(function* () {
        // The identity is valid for 300 s more than the run.
        const run = yield* open("acct-a", -298)
        yield* Await.until(
          "its end",
          Effect.map(call(run.socket), (status) => status === 401)
        )
        const before = (yield* upstream.received).length
        assert.strictEqual(yield* call(run.socket), 401)
        assert.strictEqual((yield* upstream.received).length, before)
      })
    )
  )

  it.live("refuses a run whose limits are no numbers", () =>
    together({}, ({ open }) =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(open("acct-a", Number.NaN))
        assert.include(error.message, "refused a command: invalid limits")
        // No other run is harmed.
        assert.strictEqual(yield* call((yield* open("acct-b")).socket), 200)
      })
    )
  )

  it.live("serves as many calls at once as a run may have", () =>
    together({ concurrentRequestsMax: 150, script: [{ _tag: "Hang" }] }, ({ open, upstream }) =>
      Effect.gen(function* () {
        const run = yield* open("acct-a")
        const held = yield* Effect.forEach(Array.from({ length: 150 }), () => connect(run.socket))
        for (const connection of held) connection.send(post())
        yield* Await.until(
          "all calls at the upstream",
          Effect.map(upstream.received, ({ length }) => length === 150)
        ).pipe(Effect.timeout("10 seconds"))
        assert.deepStrictEqual(
          held.flatMap(({ statuses }) => statuses()),
          []
        )
      })
    )
  )

  it.live("limits the rate and the concurrent calls of each run, and not those of its neighbours", () =>
    together(
      { requestsPerSecondMax: 1, concurrentRequestsMax: 2, script: [{ _tag: "Hang" }] },
      ({ open, upstream }) =>
        Effect.gen(function* () {
          const [one, other, third] = yield* Effect.forEach(["a", "b", "c"], (account) => open(account))
          const flood = yield* Effect.forEach(Array.from({ length: 30 }), () =>
            call(one!.socket, post([], { target: "/x" }))
          )
          assert.isAtLeast(flood.filter((status) => status === 429).length, 20)
          assert.strictEqual(yield* call(other!.socket, post([], { target: "/x" })), 403)
          // Refused requests cost a run nothing, and are not in its log.
          yield* Await.until(
            "its log",
            Effect.map(
              one!.endpoint.traffic,
              ({ callsTotal }) => callsTotal === flood.filter((status) => status === 403).length
            )
          )
          const held = yield* Effect.forEach([1, 2], () => connect(third!.socket))
          for (const connection of held) connection.send(post())
          yield* Await.until(
            "two calls in progress",
            Effect.map(upstream.received, ({ length }) => length === 2)
          )
          assert.strictEqual(yield* call(third!.socket), 429)
          assert.strictEqual(yield* call(other!.socket, post([], { target: "/x" })), 403)
        })
    )
  )

  it.live("ends a run before its log is full, and no other run", () =>
    together({ auditBytesMax: 2000 }, ({ open }) =>
      Effect.gen(function* () {
        const one = yield* open("a")
        const other = yield* open("b")
        // A slow machine may end the run before the last calls.
        const answers = yield* Effect.forEach(Array.from({ length: 10 }), () =>
          Effect.exit(call(one.socket, post([], { target: "/x" })))
        )
        const served = answers.filter((answer) => Exit.isSuccess(answer) && answer.value === 403)
        const error = yield* Effect.flip(one.endpoint.failure).pipe(Effect.timeout("5 minutes"))
        assert.strictEqual(error._tag, "ProxyFailed")
        assert.include(error.message, "2000 bytes")
        assert.isFalse(existsSync(one.socket))
        assert.isAbove(served.length, 0)
        assert.strictEqual((yield* one.endpoint.traffic).callsTotal, served.length)
        assert.strictEqual(yield* call(other.socket), 200)
      })
    )
  )

  it.live("a run that opens connections without end takes none from another run", () =>
    together({ concurrentRequestsMax: 8 }, ({ open }) =>
      Effect.gen(function* () {
        const one = yield* open("a")
        const other = yield* open("b")
        const flood = yield* Effect.forEach(Array.from({ length: 600 }), () => connect(one.socket))
        // The beginning of a request holds a connection, and nginx does not close it for another.
        for (const connection of flood) connection.send("POST /v1/chat")
        yield* Await.until(
          "the end of connections above the limit",
          Effect.sync(() => flood.filter(({ isClosed }) => isClosed()).length >= 600 - 16)
        ).pipe(Effect.timeout("10 seconds"))
        assert.strictEqual(yield* call(other.socket), 200)
        assert.isAtMost(flood.filter(({ isClosed }) => !isClosed()).length, 16)
      })
    )
  )

  it.live("serves runs whose directory has a path that is too long for a socket", () =>
    Effect.flatMap(SharedRuns.directory, (place) => {
      const directory = join(place, "d".repeat(90))
      mkdirSync(directory)
      return together({ directory }, ({ open }) =>
        Effect.flatMap(open("acct-a"), ({ endpoint }) => Effect.asVoid(endpoint.traffic))
      )
    }).pipe(Effect.scoped)
  )

  it.live("has the key in the memory of its container alone, without a network or a capability", () =>
    together({}, ({ directory, open }) =>
      Effect.gen(function* () {
        const run = yield* open("acct-a")
        assert.strictEqual(yield* call(run.socket), 200)
        const fragment = SharedRuns.key.slice(-12)
        const [id] = SharedRuns.containersIn(directory)
        const told = docker("inspect", id!)
        assert.notInclude(told, fragment)
        assert.notInclude(docker("top", id!), fragment)
        const [{ HostConfig, Config }] = JSON.parse(told)
        assert.strictEqual(HostConfig.NetworkMode, "none")
        assert.isTrue(HostConfig.ReadonlyRootfs)
        assert.deepStrictEqual(HostConfig.CapDrop, ["ALL"])
        assert.notMatch(Config.User, /^0:/u)
        for (const file of readdirSync(directory, { recursive: true, encoding: "utf8" })) {
          const path = join(directory, file)
          if (statSync(path).isFile()) assert.notInclude(readFileSync(path, "latin1"), fragment, path)
        }
      })
    )
  )

  it.live("refuses every call from an error of its program on, and cuts those in progress", () =>
    together(
      { script: [{ _tag: "SlowStream", events: 1000, pauseMillis: 50 }, { _tag: "Answer" }] },
      ({ control, directory, open, upstream }) =>
        Effect.gen(function* () {
          const run = yield* open("acct-a")
          const other = yield* open("acct-b")
          const streaming = yield* connect(run.socket)
          streaming.send(post())
          yield* Await.until(
            "the stream",
            Effect.sync(() => streaming.text().includes("data:"))
          )
          // Would end the container when the connection has ended.
          const carrier = controlProcess(directory)
          const guard = processState(carrier).parent
          yield* Effect.acquireRelease(
            Effect.sync(() => process.kill(guard, "SIGSTOP")),
            () => Effect.sync(() => process.kill(guard, "SIGCONT"))
          )
          yield* control("")
          yield* Await.until(
            "the end of the control connection",
            Effect.sync(() => processState(carrier).state === "Z")
          )
          assert.strictEqual(yield* call(run.socket), 401)
          assert.strictEqual(yield* call(other.socket), 401)
          yield* Await.until(
            "the end of the stream",
            Effect.sync(() => streaming.isClosed())
          )
          assert.isFalse(streaming.text().endsWith("0\r\n\r\n"))
          assert.strictEqual((yield* upstream.received).length, 1)
        })
    )
  )

  it.live("reports an error of its program, and the next run gets another nginx", () =>
    together({}, ({ control, open }) =>
      Effect.gen(function* () {
        const run = yield* open("acct-a")
        yield* control("")
        const error = yield* Effect.flip(run.endpoint.failure).pipe(Effect.timeout("1 minute"))
        assert.strictEqual(error._tag, "ProxyFailed")
        assert.include(error.message, "the control connection failed: ")
        assert.notInclude(String(error), SharedRuns.key)
        assert.strictEqual(yield* call((yield* open("acct-b")).socket), 200)
      })
    )
  )

  it.live("ends when its worker process ends, and says so, because no other knows a run", () =>
    together({ script: [{ _tag: "Hang" }, { _tag: "Answer" }] }, ({ directory, open, upstream }) =>
      Effect.gen(function* () {
        const run = yield* open("acct-a")
        const hanging = yield* connect(run.socket)
        hanging.send(post())
        yield* Await.until(
          "the hanging call",
          Effect.map(upstream.received, ({ length }) => length === 1)
        )
        const [id] = SharedRuns.containersIn(directory)
        process.kill(SharedRuns.processIn(id!, "nginx: worker process"), "SIGKILL")
        const error = yield* Effect.flip(run.endpoint.failure).pipe(Effect.timeout("1 minute"))
        assert.strictEqual(error._tag, "ProxyFailed")
        assert.include(error.message, "the worker process of the shared nginx exited on signal 9")
        assert.deepInclude(yield* run.endpoint.finish, { calls: [], callsTotal: 1, unreadableRows: 1 })
        yield* Await.until(
          "the end of the hanging call",
          Effect.sync(() => hanging.isClosed())
        )
        assert.include([0, 401], yield* call(run.socket))
        assert.strictEqual(yield* call((yield* open("acct-b")).socket), 200)
      })
    )
  )

  it.live("ends when its control connection ends, so that no run is served without the host", () =>
    together({}, ({ directory, open }) =>
      Effect.gen(function* () {
        const run = yield* open("acct-a")
        process.kill(controlProcess(directory), "SIGKILL")
        const error = yield* Effect.flip(run.endpoint.failure).pipe(Effect.timeout("5 minutes"))
        assert.strictEqual(error._tag, "ProxyFailed")
        assert.notInclude(String(error), SharedRuns.key)
        assert.strictEqual(yield* call(run.socket), 0)
        // The next run gets another container.
        assert.strictEqual(yield* call((yield* open("acct-b")).socket), 200)
      })
    )
  )
})

describe("SharedNginxLlmProxy with tokens, on Docker", () => {
  it.live("knows a run by its token, in the header of either kind of client", () =>
    together({ identity: "token" }, ({ open, upstream }) =>
      Effect.gen(function* () {
        const one = yield* open("acct-a")
        const other = yield* open("acct-b")
        assert.strictEqual(yield* call(one.socket, post([bearer(tokenOf(one))])), 200)
        assert.strictEqual(yield* call(one.socket, post([`x-api-key: ${tokenOf(one)}`])), 200)
        assert.strictEqual(yield* call(other.socket, post([bearer(tokenOf(other))])), 200)
        const received = yield* upstream.received
        assert.deepStrictEqual(
          received.map(({ headers }) => new Map(headers).get("x-litellm-customer-id")),
          ["acct-a", "acct-a", "acct-b"]
        )
        assert.notInclude(JSON.stringify(received), tokenOf(one))
      })
    )
  )

  it.live("refuses every token that the host did not sign for a living run", () =>
    together({ identity: "token" }, ({ open, upstream }) =>
      Effect.gen(function* () {
        const one = yield* open("acct-a")
        const other = yield* open("acct-b")
        const ended = yield* open("acct-c")
        yield* ended.close
        const short = yield* open("acct-d", -298)
        yield* Await.until(
          "the end of its token",
          Effect.map(call(short.socket, post([bearer(tokenOf(short))])), (status) => status === 401)
        )
        const before = (yield* upstream.received).length
        const token = tokenOf(one)
        const [id, expiry, signature] = token.split(".") as [string, string, string]
        const flipped = `${signature.startsWith("A") ? "B" : "A"}${signature.slice(1)}`
        const forged: ReadonlyArray<ReadonlyArray<string>> = [
          [],
          [bearer("none")],
          [bearer("")],
          ["Authorization: "],
          [`Authorization: Basic ${token}`],
          [bearer(`${id}.${expiry}.${flipped}`)],
          [bearer(`${id}.${expiry}.`)],
          [bearer(`${id}.${expiry}`)],
          [bearer(`${id}.${Number(expiry) + 1}.${signature}`)],
          [bearer(`${other.runId}.${expiry}.${signature}`)],
          [bearer(`${token}A`)],
          [bearer(` ${token}`)],
          [bearer(`${token} ${token}`)],
          [bearer(token.toUpperCase())],
          [bearer("a".repeat(5000))],
          // Two tokens name no run, even if both are valid.
          [bearer(token), bearer(tokenOf(other))],
          [bearer(token), bearer(token)],
          [bearer(token), `x-api-key: ${tokenOf(other)}`],
          [`x-api-key: ${token}`, `x-api-key: ${tokenOf(other)}`],
          [`x-api-key: ${token}, ${tokenOf(other)}`],
          [...Array.from({ length: 80 }, (_, index) => `x-${index}: 1`), bearer(token)],
          [bearer(`${id}.${expiry}.${signature.slice(0, -1)}${signature.endsWith("A") ? "E" : "A"}`)],
          [
            bearer(token),
            ...Array.from({ length: 80 }, (_, index) => `x-${index}: 1`),
            `x-api-key: ${tokenOf(other)}`
          ],
          [bearer(tokenOf(ended))],
          [bearer(tokenOf(short))]
        ]
        // nginx itself refuses two headers of a name that may occur once, with 400.
        for (const headers of forged)
          assert.include(
            [400, 401],
            yield* call(one.socket, post(headers)),
            JSON.stringify(headers).slice(0, 200)
          )
        assert.strictEqual((yield* upstream.received).length, before)
        assert.strictEqual(yield* call(one.socket, post([bearer(token)])), 200)
      })
    )
  )

  it.live("gives no token to a second run of the same ID, and the first keeps its own", () =>
    together({ identity: "token" }, ({ open, upstream }) =>
      Effect.gen(function* () {
        const first = yield* open("acct-a")
        const refused = open("acct-b", 120, first.runId)
        assert.include((yield* Effect.flip(refused)).message, "this run had a token already")
        assert.strictEqual(yield* call(first.socket, post([bearer(tokenOf(first))])), 200)
        yield* first.close
        assert.include((yield* Effect.flip(refused)).message, "this run had a token already")
        assert.lengthOf(yield* upstream.received, 1)
      })
    )
  )

  it.live("accepts no token of another nginx", () =>
    together({ identity: "token" }, (runs) =>
      together({ identity: "token" }, (others) =>
        Effect.gen(function* () {
          const run = yield* runs.open("acct-a")
          // The same ID, so that only the secret tells the tokens apart.
          const stranger = yield* others.open("acct-b", 120, run.runId)
          assert.strictEqual(yield* call(run.socket, post([bearer(tokenOf(stranger))])), 401)
        })
      )
    )
  )

  it.live("a token opens no socket of a run", () =>
    together({ identity: "token" }, ({ directory, open }) =>
      Effect.gen(function* () {
        const one = yield* open("acct-a")
        const [name] = readdirSync(directory)
        const status = yield* call(join(directory, name!, "sockets", "0.sock"), post([bearer(tokenOf(one))]))
        assert.strictEqual(status, 401)
      })
    )
  )

  it.live("a token opens no socket of another run", () =>
    together({}, ({ open, upstream }) =>
      Effect.gen(function* () {
        const one = yield* open("acct-a")
        assert.isUndefined(one.endpoint.token)
        assert.strictEqual(yield* call(one.socket, post([bearer("run.9999999999.x")])), 200)
        const headers = (yield* upstream.received)[0]!.headers
        assert.strictEqual(new Map(headers).get("authorization"), `Bearer ${SharedRuns.key}`)
      })
    )
  )
})
