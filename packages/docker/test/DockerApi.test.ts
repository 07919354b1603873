/** The calls of `DockerApi` as they reach an engine, and the engine's answers, without Docker. */
import { assert, describe, it } from "@effect/vitest"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import { Cause, Effect, Exit, Fiber, Stream } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Duplex } from "node:stream"
import { text } from "node:stream/consumers"
import { eachChunk } from "../src/internal/engine/AttachedContainer.ts"
import { answerBytesMax, path, target } from "../src/internal/engine/EngineHttp.ts"
import { hostConfig } from "../src/internal/container/Hardening.ts"
import * as ContainerSpecs from "./ContainerSpecs.ts"

interface Received {
  readonly line: string
  readonly type: string | undefined
  readonly body: string
}

type Answer = (response: ServerResponse, request: IncomingMessage) => void

/** An engine that gives one answer to each path, and remembers its calls. */
const engine = Effect.fnUntraced(function* (
  answers: Readonly<Record<string, Answer>>,
  upgraded?: (socket: Duplex) => void
) {
  const received: Array<Received> = []
  const note = async (request: IncomingMessage) =>
    received.push({
      line: `${request.method} ${request.url}`,
      type: request.headers["content-type"],
      body: await text(request)
    })
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-api-"))),
    (made) => Effect.sync(() => rmSync(made, { recursive: true }))
  )
  const socketPath = join(directory, "engine.sock")
  const server = createServer((request, response) => {
    const serve = async () => {
      await note(request)
      const answer = answers[`${request.method} ${request.url!.split("?")[0]}`]
      if (answer === undefined) response.writeHead(404).end('{"message":"page not found"}')
      else answer(response, request)
    }
    void serve()
  })
  if (upgraded !== undefined)
    server.on("upgrade", (request, socket) => {
      received.push({ line: `${request.method} ${request.url}`, type: undefined, body: "" })
      upgraded(socket)
    })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => void server.listen(socketPath, () => resume(Effect.void))),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      })
  )
  const api = yield* DockerApi.DockerApi.make({ host: socketPath })
  return { api, received, lines: () => received.map(({ line }) => line) }
})

const json =
  (value: unknown, status = 200): Answer =>
  (response) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value))

const empty: Answer = (response) => response.writeHead(204).end()

/** Never answers. */
const silent: Answer = () => undefined

const hijack = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

/** A frame of an attach stream. */
const frame = (channel: number, said: string) => {
  const header = Buffer.alloc(8)
  header[0] = channel
  header.writeUInt32BE(said.length, 4)
  return Buffer.concat([header, Buffer.from(said)])
}

describe("DockerApi", () => {
  it.live("sends the configuration of a container byte for byte", () =>
    Effect.gen(function* () {
      const { api, received } = yield* engine({ "POST /containers/create": json({ Id: "abc" }, 201) })
      const id = yield* api.create({
        name: "cogni-run-000000000001",
        image: "cogni-sandbox/runtime:é",
        entrypoint: ["/usr/local/bin/cogni-entrypoint"],
        argv: ["sh", "-c", "echo 'ünï'"],
        env: ["HOME=/tmp"],
        user: "1000:1000",
        workingDirectory: "/workspace",
        labels: { "dev.cogni.sandbox.run": "run-000000000001" },
        networkDisabled: true,
        hostConfig: { NetworkMode: "none", Memory: 64, Tmpfs: { "/tmp": "rw" }, CapDrop: ["ALL"] }
      })
      assert.strictEqual(id, "abc")
      assert.deepStrictEqual(received, [
        {
          line: "POST /containers/create?name=cogni-run-000000000001",
          type: "application/json",
          body:
            '{"Image":"cogni-sandbox/runtime:é","Entrypoint":["/usr/local/bin/cogni-entrypoint"],' +
            '"Cmd":["sh","-c","echo \'ünï\'"],"Env":["HOME=/tmp"],"User":"1000:1000","WorkingDir":"/workspace",' +
            '"Labels":{"dev.cogni.sandbox.run":"run-000000000001"},"AttachStdin":true,"AttachStdout":true,' +
            '"AttachStderr":true,"OpenStdin":true,"StdinOnce":true,"Tty":false,' +
            '"Healthcheck":{"Test":["NONE"]},' +
            '"NetworkDisabled":true,"HostConfig":{"NetworkMode":"none","Memory":64,"Tmpfs":{"/tmp":"rw"},"CapDrop":["ALL"]}}'
        }
      ])
      const hardened = hostConfig(ContainerSpecs.written)
      yield* api.create({
        name: "x",
        image: "x",
        argv: [],
        env: [],
        user: "0",
        labels: {},
        hostConfig: hardened
      })
      assert.isTrue(received[1]!.body.endsWith(`,"HostConfig":${JSON.stringify(hardened)}}`))
    })
  )

  it.live("makes each call with the method, path and query of the Engine API", () =>
    Effect.gen(function* () {
      const found = { Id: "n", Name: "v", Labels: { role: "socket" }, Internal: true, Size: 7 }
      const { api, lines } = yield* engine({
        "GET /version": json({ ApiVersion: "1.41" }),
        "GET /images/cogni-sandbox/runtime%3A1/json": json(found),
        "POST /containers/c/start": empty,
        "POST /containers/c/wait": json({ StatusCode: 0 }),
        "POST /containers/c/kill": empty,
        "POST /containers/c/pause": empty,
        "POST /containers/c/unpause": empty,
        "DELETE /containers/c": empty,
        "POST /volumes/create": json(found, 201),
        "GET /volumes/v": json(found),
        "DELETE /volumes/v": empty,
        "GET /networks/n": json(found),
        "DELETE /networks/n": empty,
        "GET /containers/json": json([{ Id: "c", Names: ["/name"], Labels: null }]),
        "GET /volumes": json({ Volumes: null, Warnings: null }),
        "GET /networks": json([found])
      })
      assert.deepStrictEqual(yield* api.ping, { apiVersion: "1.41" })
      assert.strictEqual(yield* api.imageSize("cogni-sandbox/runtime:1"), 7)
      yield* api.start("c")
      yield* api.waitNextExit("c")
      yield* api.kill("c", "SIGTERM")
      yield* api.pause("c")
      yield* api.unpause("c")
      yield* api.remove("c")
      yield* api.createVolume({ name: "v", labels: { role: "socket" }, tmpfsOptions: "size=1" })
      yield* api.removeVolume("v")
      assert.strictEqual(yield* api.isInternalNetwork("n"), true)
      yield* api.removeNetwork("n")
      assert.deepStrictEqual(yield* api.labelled("a=b"), [
        { kind: "container", id: "c", name: "name", labels: {} },
        { kind: "network", id: "n", name: "v", labels: { role: "socket" } }
      ])
      const filters = "filters=%7B%22label%22%3A%5B%22a%3Db%22%5D%7D"
      assert.deepStrictEqual(lines().slice(0, -3), [
        "GET /version",
        "GET /images/cogni-sandbox/runtime%3A1/json",
        "POST /containers/c/start",
        "POST /containers/c/wait?condition=next-exit",
        "POST /containers/c/kill?signal=SIGTERM",
        "POST /containers/c/pause",
        "POST /containers/c/unpause",
        "DELETE /containers/c?force=true&v=true",
        "POST /volumes/create",
        "GET /volumes/v",
        "DELETE /volumes/v",
        "GET /networks/n",
        "DELETE /networks/n"
      ])
      assert.sameMembers(lines().slice(-3), [
        `GET /containers/json?all=true&${filters}`,
        `GET /volumes?${filters}`,
        `GET /networks?${filters}`
      ])
    })
  )

  it.live("asks for containers by their whole names", () =>
    Effect.gen(function* () {
      const found = [{ Id: "c", Image: "cogni-sandbox/runtime:1", Names: ["/cogni-run.1-agent"] }]
      const { api, lines } = yield* engine({ "GET /containers/json": json(found) })
      assert.deepStrictEqual(yield* api.named(["cogni-run.1-agent", "cogni-b-agent"]), [
        { Id: "c", Image: "cogni-sandbox/runtime:1" }
      ])
      const query = new URL(lines()[0]!.slice("GET ".length), "http://engine").searchParams
      assert.deepStrictEqual(Object.fromEntries(query), {
        all: "true",
        filters: JSON.stringify({ name: ["^/cogni-run\\.1-agent$", "^/cogni-b-agent$"] })
      })
    })
  )

  it.live("reports a refusal with the engine's message, and nothing for a resource that does not exist", () =>
    Effect.gen(function* () {
      const { api } = yield* engine({
        "POST /containers/create": json({ message: "No such image: nope:1" }, 404),
        "POST /containers/c/start": json({ message: "no space left on device" }, 500),
        "POST /containers/d/start": (response) => response.writeHead(400).end("not JSON\n"),
        "POST /containers/e/start": (response) => response.writeHead(304).end(),
        "POST /containers/c/kill": json({ message: "is not running" }, 409)
      })
      const refused = (id: string) => Effect.map(Effect.flip(api.start(id)), ({ message }) => message)
      assert.match(yield* refused("c"), /no space left on device.*Free disk space/su)
      assert.match(yield* refused("d"), /not JSON/u)
      assert.match(yield* refused("e"), /status 304/u)
      assert.match(yield* refused("f"), /page not found/u)
      const created = api.create({
        name: "x",
        image: "nope:1",
        argv: [],
        env: [],
        user: "0",
        labels: {},
        hostConfig: {}
      })
      assert.strictEqual((yield* Effect.flip(created))._tag, "ImageNotFound")
      yield* api.kill("c", "SIGKILL")
      yield* api.remove("gone")
      assert.isUndefined(yield* api.inspect("gone"))
      assert.isUndefined(yield* api.imageSize("gone"))
      assert.isUndefined(yield* api.isInternalNetwork("gone"))
    })
  )

  it.live("returns what is known of a container until the engine says something else about it", () =>
    Effect.gen(function* () {
      const State = { Status: "running", Running: true, OOMKilled: false, Pid: 7, ExitCode: 0 }
      const found = { Id: "c", State, Image: "sha256:1", Name: "/c", ExecIDs: null as null | Array<string> }
      const more = { HostConfig: { Memory: 1 }, GraphDriver: {} }
      const last = { Config: { Labels: null, User: "1000" } }
      let mounts = [{ Destination: "/a" }, { Destination: "/b" }]
      const { api } = yield* engine({
        "GET /containers/c/json": (response, request) =>
          json({ ...found, ...more, Mounts: mounts, ...last })(response, request)
      })
      const first = yield* api.inspectAgain("c", undefined)
      assert.strictEqual(first?.inspected.State.Pid, 7)
      mounts = mounts.toReversed()
      assert.strictEqual(yield* api.inspectAgain("c", first), first)
      found.ExecIDs = ["e"]
      const second = yield* api.inspectAgain("c", first)
      assert.deepStrictEqual(second?.inspected.ExecIDs, ["e"])
      assert.strictEqual(yield* api.inspectAgain("c", second), second)
      assert.isUndefined(yield* api.inspectAgain("gone", first))
    })
  )

  it.live("waits until another caller has removed the container", () =>
    Effect.gen(function* () {
      let calls = 0
      const { api } = yield* engine({
        "DELETE /containers/c": (response) => {
          calls += 1
          if (calls < 3)
            json({ message: "removal of container c is already in progress" }, 409)(response, response.req)
          else json({ message: "No such container: c" }, 404)(response, response.req)
        }
      })
      yield* api.remove("c")
      assert.strictEqual(calls, 3)
    })
  )

  it.live("refuses a volume that has other labels", () =>
    Effect.gen(function* () {
      const { api } = yield* engine({
        "POST /volumes/create": json({}, 201),
        "GET /volumes/v": json({ Name: "v", Labels: null })
      })
      const error = yield* Effect.flip(
        api.createVolume({ name: "v", labels: { role: "socket" }, tmpfsOptions: "size=1" })
      )
      assert.match(error.message, /the volume name v is already in use/u)
    })
  )

  it.live("refuses answers that are cut off, that are not JSON, and that have another shape", () =>
    Effect.gen(function* () {
      const { api } = yield* engine({
        "GET /version": json({ ApiVersion: 1 }),
        "GET /info": (response) => response.writeHead(200).end("<html>"),
        "GET /containers/c/json": (response) => {
          response.writeHead(200, { "content-length": 100 }).write("{")
          response.socket?.end()
        }
      })
      const failed = <A>(effect: Effect.Effect<A, { readonly message: string }>) =>
        Effect.map(Effect.flip(effect), ({ message }) => message)
      assert.match(yield* failed(api.ping), /answered "ping" in an unknown format/u)
      assert.match(yield* failed(api.info), /unexpected response: it is not JSON/u)
      assert.match(yield* failed(api.inspect("c")), /went away in the middle of a call/u)
    })
  )

  it.live("stops reading an answer that is too long", () =>
    Effect.gen(function* () {
      let isClosed: (() => void) | undefined
      const closed = new Promise<void>((resolve) => {
        isClosed = resolve
      })
      const piece = Buffer.alloc(1024 * 1024, " ")
      const { api } = yield* engine({
        "GET /info": (response) => {
          response.once("close", () => isClosed?.())
          const more = () => {
            while (!response.destroyed && response.write(piece));
          }
          response.on("drain", more)
          more()
        }
      })
      const error = yield* Effect.flip(api.info)
      assert.match(error.message, new RegExp(`longer than ${answerBytesMax} bytes`, "u"))
      yield* Effect.promise(() => closed)
    })
  )

  it.live("ends a call that is interrupted, and closes its connection", () =>
    Effect.gen(function* () {
      let isClosed: (() => void) | undefined
      const closed = new Promise<void>((resolve) => {
        isClosed = resolve
      })
      let isAsked: (() => void) | undefined
      const asked = new Promise<void>((resolve) => {
        isAsked = resolve
      })
      const { api } = yield* engine({
        "POST /containers/c/wait": (response, request) => {
          response.once("close", () => isClosed?.())
          silent(response, request)
          isAsked?.()
        }
      })
      const waiting = yield* Effect.forkChild(api.waitNextExit("c"), { startImmediately: true })
      yield* Effect.promise(() => asked)
      yield* Fiber.interrupt(waiting)
      yield* Effect.promise(() => closed)
    })
  )

  it.live("fails a wait when the engine goes away after the answer began", () =>
    Effect.gen(function* () {
      const { api } = yield* engine({
        "POST /containers/c/wait": (response) => {
          response.writeHead(200).flushHeaders()
          response.socket?.destroySoon()
        }
      })
      const error = yield* Effect.flip(api.waitNextExit("c"))
      assert.strictEqual(error._tag, "RuntimeUnavailable")
      assert.match(error.message, /went away/u)
    })
  )

  it.live("hands over a connection, with the bytes that came with the upgrade, and ends only its input", () =>
    Effect.gen(function* () {
      const { api, lines } = yield* engine({}, (socket) => {
        socket.write(Buffer.concat([Buffer.from(hijack), frame(1, "early ")]))
        void text(socket).then((input) =>
          socket.end(Buffer.concat([frame(2, "problem"), frame(1, `got ${input}`)]))
        )
      })
      const socket = yield* api.attach("c")
      socket.end("go\n")
      const chunks: Array<OutputChunk> = []
      yield* eachChunk(socket, (chunk) => Effect.sync(() => void chunks.push(chunk)))
      assert.deepStrictEqual(
        chunks.map(({ bytes, channel }) => `${channel}: ${Buffer.from(bytes)}`),
        ["stdout: early ", "stderr: problem", "stdout: got go\n"]
      )
      assert.deepStrictEqual(lines(), [
        "POST /containers/c/attach?stream=true&stdin=true&stdout=true&stderr=true"
      ])
    })
  )

  it.live("refuses an attach that the engine refuses, or answers without an upgrade", () =>
    Effect.gen(function* () {
      const { api } = yield* engine({
        "POST /containers/gone/attach": json({ message: "No such container: gone" }, 404),
        "POST /containers/plain/attach": (response) => response.writeHead(200).end("bytes")
      })
      assert.match((yield* Effect.flip(api.attach("gone"))).message, /No such container: gone/u)
      assert.match((yield* Effect.flip(api.attach("plain"))).message, /instead of upgrading/u)
    })
  )

  it.live("keeps an event stream open after its call has ended, and reports its loss", () =>
    Effect.gen(function* () {
      let answered: ServerResponse | undefined
      const { api } = yield* engine({
        "GET /events": (response) => {
          answered = response
          response.writeHead(200).flushHeaders()
        }
      })
      const stream = yield* api.events("a")
      const lines = Stream.fromAsyncIterable(stream as AsyncIterable<Uint8Array>, (thrown) => thrown)
      answered!.write("one")
      const first = yield* Effect.promise(
        () => new Promise<Buffer>((resolve) => stream.once("data", resolve))
      )
      assert.strictEqual(String(first), "one")
      answered!.socket?.destroy()
      const exit = yield* Effect.exit(Stream.runDrain(lines))
      assert.isTrue(Exit.isFailure(exit) && !Cause.hasInterrupts(exit.cause))
    })
  )

  it("encodes what it puts into a path, and leaves the slashes of an image's name", () => {
    assert.strictEqual(path("images", "a/b:1@sha256:c"), "/images/a/b%3A1%40sha256%3Ac")
    assert.strictEqual(path("containers", "c?force=1#x"), "/containers/c%3Fforce%3D1%23x")
  })

  it("finds an engine at a socket, a host name and an IPv6 address", () => {
    assert.deepStrictEqual(target({ type: "unix", path: "/run/docker.sock" }), {
      socketPath: "/run/docker.sock"
    })
    assert.deepStrictEqual(target({ type: "tcp", host: "engine", port: 1 }), { host: "engine", port: 1 })
    assert.deepStrictEqual(target({ type: "tcp", host: "[::1]", port: 1 }), { host: "::1", port: 1 })
  })
})
