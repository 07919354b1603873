import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Layer, Logger, Redacted, Scope } from "effect"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { type ContainerSpec, ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { type LlmEndpoint, LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as NginxLlmProxy from "../src/NginxLlmProxy.ts"

const secret = "sk-very-secret-0123456789"
const runId = RunId.make("run-4f7k2m9q0x1z")
const least = LlmProxyContract.requestOf(runId)
const request = { ...least, llm: { ...least.llm, identity: { billingAccountId: "acct-42", attempt: 0 } } }

const untilStopped: MemoryContainerRuntime.Program = (io) =>
  io.stdout("cogni-proxy ready\n").pipe(Effect.andThen(io.terminated), Effect.as(0))

const proxy = (
  program: MemoryContainerRuntime.Program = untilStopped,
  options: Partial<NginxLlmProxy.NginxLlmProxyOptions> = {},
  images?: ReadonlySet<string>
) =>
  NginxLlmProxy.layer({
    image: "proxy",
    upstream: { type: "host", url: "http://127.0.0.1:4000/v1" },
    key: Redacted.make(secret),
    ...options
  }).pipe(
    Layer.provide(UsageObserver.layerNone),
    Layer.provideMerge(MemoryContainerRuntime.layer({ program, images }))
  )

const temporary = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "nginx-"))),
  (directory) => Effect.sync(() => fs.rmSync(directory, { recursive: true, force: true }))
)

/** All text that an error can show. */
const everySpelling = (error: Error) => `${error} ${error.message} ${error.stack} ${JSON.stringify(error)}`

LlmProxyContract.suite("nginx, in memory", proxy(), {
  leftovers: (runId) => Effect.flatMap(ContainerRuntime, (runtime) => runtime.leftovers(runId))
})

describe("NginxLlmProxy", () => {
  it.live("mounts the socket, and passes the key only to the container's standard input", () =>
    Effect.gen(function* () {
      const specs: Array<ContainerSpec> = []
      const directory = yield* temporary
      yield* Effect.gen(function* () {
        const endpoint = yield* (yield* LlmProxy).acquire({ ...request, directory })
        yield* endpoint.ready
        assert.deepStrictEqual(endpoint.mounts, [
          { type: "volume", source: `memory-${runId}-socket`, target: "/llm-sock", readOnly: true }
        ])
        assert.deepStrictEqual(yield* endpoint.traffic, {
          proxy: "nginx",
          upstream: "http://127.0.0.1:4000",
          calls: [],
          callsTotal: 0,
          unreadableRows: 0,
          injectedHeaders: [
            "authorization",
            "x-litellm-customer-id",
            "x-litellm-end-user-id",
            "x-litellm-spend-logs-metadata"
          ],
          auditPath: path.join(directory, "audit", "access.log")
        })
      }).pipe(
        Effect.scoped,
        Effect.provide(
          proxy((io) =>
            Effect.andThen(
              Effect.sync(() => specs.push(io.spec)),
              untilStopped(io)
            )
          )
        )
      )

      const [{ stdin, ...spec }] = specs as [ContainerSpec]
      assert.include(stdin, secret)
      assert.notInclude(JSON.stringify(spec), secret)
      assert.deepStrictEqual(
        [spec.env, spec.argv, spec.network, spec.role],
        [{}, [], { mode: "none" }, "proxy"]
      )
      assert.notStrictEqual(spec.user.userId, 0)
      assert.deepStrictEqual(
        spec.mounts.map(({ readOnly, target, type }) => `${type} ${target} ${readOnly ? "ro" : "rw"}`),
        ["volume /llm-sock rw", "directory /audit rw", "directory /upstream ro"]
      )
      assert.deepStrictEqual(fs.readdirSync(directory), ["audit"])
      assert.strictEqual(fs.statSync(path.join(directory, "audit")).mode & 0o777, 0o700)
    })
  )

  it.effect(
    "names the profile of its upstream, so that its calls are compared with the upstream's rows",
    () =>
      Effect.gen(function* () {
        assert.strictEqual((yield* LlmProxy).capabilities.upstream, "litellm")
      }).pipe(Effect.provide(proxy()))
  )

  it.live("joins the internal network of an upstream container, without a relay", () =>
    Effect.gen(function* () {
      const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
      const seen = yield* Deferred.make<ContainerSpec>()
      yield* Effect.gen(function* () {
        yield* (yield* (yield* LlmProxy).acquire({ ...request, traceparent })).ready
      }).pipe(
        Effect.scoped,
        Effect.provide(
          proxy((io) => Effect.andThen(Deferred.succeed(seen, io.spec), untilStopped(io)), {
            upstream: { type: "container", url: "http://litellm:4000", networkName: "models" }
          })
        )
      )
      const spec = yield* Deferred.await(seen)
      assert.deepStrictEqual(spec.network, { mode: "internal", networkName: "models" })
      assert.deepStrictEqual(
        spec.mounts.map(({ target }) => target),
        ["/llm-sock", "/audit"]
      )
      assert.include(spec.stdin, "http://$upstream_authority/v1/chat/completions")
      assert.include(spec.stdin ?? "", "proxy_set_header traceparent")
      assert.include(spec.stdin ?? "", traceparent)
    })
  )

  it.live("returns before the container is ready", () =>
    Effect.gen(function* () {
      const endpoint = yield* (yield* LlmProxy).acquire(request)
      assert.strictEqual(endpoint.mounts.length, 1)
      const early = yield* endpoint.ready.pipe(Effect.timeoutOption("50 millis"))
      assert.strictEqual(early._tag, "None")
    }).pipe(Effect.scoped, Effect.provide(proxy(() => Effect.never)))
  )

  it.live("reports why the proxy did not start, without the key", () =>
    Effect.gen(function* () {
      const endpoint = yield* (yield* LlmProxy).acquire(request)
      const error = yield* Effect.flip(endpoint.ready)
      assert.strictEqual(error._tag, "ProxyFailed")
      assert.include(error.message, "exit code 1")
      assert.include(error.message, "nginx: [emerg] bad")
      assert.include(error.message, "[key]")
      assert.notInclude(everySpelling(error), secret)
      assert.notInclude(everySpelling(yield* Effect.flip(endpoint.failure)), secret)
    }).pipe(
      Effect.scoped,
      Effect.provide(
        proxy((io) =>
          Effect.as(io.stderr(`nginx: [emerg] bad "Bearer ${secret}" ${JSON.stringify(secret)}\n`), 1)
        )
      )
    )
  )

  it.live("hides the key in a flood of error output", () =>
    Effect.gen(function* () {
      const endpoint = yield* (yield* LlmProxy).acquire(request)
      const error = yield* Effect.flip(endpoint.ready)
      assert.notInclude(error.message, secret.slice(0, 12))
      assert.isBelow(error.message.length, 2000)
    }).pipe(
      Effect.scoped,
      Effect.provide(
        proxy((io) =>
          Effect.as(
            Effect.forEach(
              Array.from({ length: 500 }, (_, i) => i),
              (i) => io.stderr(`${"x".repeat(i)}${secret}${i % 3 === 0 ? "\n" : ""}`)
            ),
            1
          )
        )
      )
    )
  )

  it.live("includes the entrypoint's message in its error", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip((yield* (yield* LlmProxy).acquire(request)).ready)
      assert.include(error.message, "failed no answer on its socket")
    }).pipe(
      Effect.scoped,
      Effect.provide(
        proxy((io) =>
          Effect.andThen(
            io.stdout("cogni-proxy fai"),
            Effect.andThen(io.stdout("led no answer on its socket\n"), Effect.never)
          )
        )
      )
    )
  )

  it.live("times out if the proxy does not become ready", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip((yield* (yield* LlmProxy).acquire(request)).ready)
      assert.include(error.message, "within 0.1 s")
    }).pipe(Effect.scoped, Effect.provide(proxy(() => Effect.never, { readySecondsMax: 0.1 })))
  )

  it.live("fails when the proxy exits during a run", () =>
    Effect.gen(function* () {
      const gone = yield* Deferred.make<void>()
      yield* Effect.gen(function* () {
        const endpoint = yield* (yield* LlmProxy).acquire(request)
        yield* endpoint.ready
        assert.strictEqual((yield* endpoint.failure.pipe(Effect.timeoutOption("30 millis")))._tag, "None")
        yield* Deferred.succeed(gone, undefined)
        const error = yield* Effect.flip(endpoint.failure)
        assert.include(error.message, "exit code 137")
      }).pipe(
        Effect.scoped,
        Effect.provide(
          proxy((io) =>
            io.stdout("cogni-proxy ready\n").pipe(Effect.andThen(Deferred.await(gone)), Effect.as(137))
          )
        )
      )
    })
  )

  it.live("fails with ImageNotFound if its image is missing", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip((yield* (yield* LlmProxy).acquire(request)).ready)
      assert.deepInclude(error, { _tag: "ImageNotFound", image: "proxy" })
    }).pipe(Effect.scoped, Effect.provide(proxy(untilStopped, {}, new Set())))
  )

  it.live("refuses an invalid key or URL once, when the layer is built", () =>
    Effect.gen(function* () {
      for (const [options, option, says] of [
        [{ key: Redacted.make(`${secret}\n`) }, "NginxLlmProxy.key", "contains a line break"],
        [{ key: Redacted.make("") }, "NginxLlmProxy.key", "is empty"],
        [
          { upstream: { type: "host", url: `http://user:${secret}@host` } },
          "NginxLlmProxy.upstream",
          "holds a credential"
        ],
        [
          { upstream: { type: "host", url: "http://host/v1?version=1" } },
          "NginxLlmProxy.upstream",
          "has a query"
        ],
        [
          { upstream: { type: "host", url: "https://api.openai.com" }, profile: "litellm" },
          "NginxLlmProxy.profile",
          "is litellm, but api.openai.com is a public API, which must not learn who pays"
        ],
        [{ profile: { embeddings: true } }, "NginxLlmProxy.profile", "opens embeddings, and nginx"],
        [
          { profile: { name: "azure", apiVersion: "2024-10-21" } },
          "NginxLlmProxy.profile",
          "puts the model into the path"
        ],
        [
          { profile: { bodyFields: { chat_completions: { provider: {} } } } },
          "NginxLlmProxy.profile",
          "opens body fields"
        ],
        [
          { profile: "openai", identitySecret: Redacted.make(secret) },
          "NginxLlmProxy.profile",
          "comes with a secret for pseudonyms"
        ],
        [
          { egressProxy: { url: Redacted.make("http://proxy:3128") } },
          "NginxLlmProxy.egressProxy",
          "is needed for http://127.0.0.1:4000"
        ]
      ] as const) {
        const error = yield* Effect.flip(
          Effect.scoped(Layer.build(proxy(() => Effect.die("must not start"), options)))
        )
        assert.deepInclude(error, { _tag: "Misconfigured", option, isRetryable: false })
        assert.include(error.message, `${option} ${says}`)
        assert.lengthOf(error.message.split(error.remedy), 2, "the remedy is in the message once")
        assert.notInclude(everySpelling(error), secret)
      }
    })
  )

  it.live("refuses an account that cannot be a header, before anything starts", () =>
    Effect.gen(function* () {
      const identity = { billingAccountId: "a\nb", attempt: 0 }
      const error = yield* Effect.flip(
        (yield* LlmProxy).acquire({ ...request, llm: { ...request.llm, identity } })
      )
      assert.deepInclude(error, { _tag: "Misconfigured", option: "llm.identity.billingAccountId" })
      assert.include(error.message, "contains a line break")
      assert.notInclude(everySpelling(error), secret)
      assert.deepStrictEqual(yield* (yield* ContainerRuntime).leftovers(runId), [])
    }).pipe(Effect.scoped, Effect.provide(proxy(() => Effect.die("must not start"))))
  )

  it.live("leaves nothing behind, whenever its scope closes", () =>
    Effect.gen(function* () {
      const before = () =>
        fs.readdirSync(os.tmpdir()).filter((name) => name.startsWith("cogni-sandbox-")).length
      const count = before()
      for (const wait of [0, 1, 5, 20]) {
        yield* Effect.gen(function* () {
          const scope = yield* Scope.make()
          yield* (yield* LlmProxy).acquire(request).pipe(Scope.provide(scope))
          yield* Effect.sleep(wait)
          yield* Scope.close(scope, Exit.void)
          assert.deepStrictEqual(yield* (yield* ContainerRuntime).leftovers(runId), [])
        }).pipe(Effect.provide(proxy()))
      }
      assert.strictEqual(before(), count)
    })
  )

  it.live("does not follow a link in place of the log", () =>
    Effect.gen(function* () {
      const directory = yield* temporary
      const endpoint = yield* (yield* LlmProxy).acquire({ ...request, directory })
      fs.symlinkSync("/etc/passwd", path.join(directory, "audit", "access.log"))
      const error = yield* Effect.flip(endpoint.traffic)
      assert.include(error.message, "the proxy's audit cannot be read")
    }).pipe(Effect.scoped, Effect.provide(proxy()))
  )

  const audited = (
    options: Partial<NginxLlmProxy.NginxLlmProxyOptions>,
    test: (
      audit: string,
      endpoint: LlmEndpoint
    ) => Effect.Effect<void, unknown, ContainerRuntime | Scope.Scope>
  ) =>
    Effect.gen(function* () {
      const directory = yield* temporary
      const endpoint = yield* (yield* LlmProxy).acquire({ ...request, directory })
      yield* endpoint.ready
      yield* test(path.join(directory, "audit"), endpoint)
    }).pipe(Effect.scoped, Effect.provide(proxy(untilStopped, options)))

  it.live("ends the proxy when a log is nearly full, removed, or not a regular file", () => {
    const fill = (file: string) => fs.appendFileSync(file, "\n")
    const remove = (file: string) => fs.rmSync(file)
    const replace = (file: string) => {
      fs.rmSync(file)
      fs.mkdirSync(file)
    }
    return Effect.forEach(
      [
        ["access.log", fill, "is nearly full, at 1000 bytes"],
        ["error.log", fill, "is nearly full, at 1000 bytes"],
        ["access.log", remove, "was truncated or removed during the run"],
        ["access.log", replace, "it is not a regular file"]
      ] as const,
      ([name, change, says]) =>
        audited({ auditBytesMax: 1000 }, (audit, endpoint) =>
          Effect.gen(function* () {
            fs.writeFileSync(path.join(audit, name), "x".repeat(999))
            // Longer than the pause between two looks at a log that was empty.
            const early = yield* endpoint.failure.pipe(Effect.timeoutOption("4 seconds"))
            assert.strictEqual(early._tag, "None")
            change(path.join(audit, name))
            const error = yield* Effect.flip(endpoint.failure).pipe(Effect.timeout("5 minutes"))
            assert.strictEqual(error._tag, "ProxyFailed")
            assert.include(error.message, says)
            const leftovers = yield* (yield* ContainerRuntime).leftovers(runId)
            assert.deepStrictEqual(leftovers, [`memory-${runId}-socket`])
          })
        ),
      { concurrency: "unbounded", discard: true }
    )
  })

  it.live("continues reading where it stopped, and fails if the log was truncated", () =>
    audited({}, (audit, endpoint) =>
      Effect.gen(function* () {
        const log = path.join(audit, "access.log")
        fs.writeFileSync(log, "a\nb\nc")
        assert.deepInclude(yield* endpoint.traffic, { callsTotal: 2, unreadableRows: 2 })
        // A reader that started over would count other rows.
        fs.writeFileSync(log, `${"\n".repeat(5)}d\n`)
        assert.deepInclude(yield* endpoint.traffic, { callsTotal: 3, unreadableRows: 3 })
        fs.truncateSync(log, 1)
        assert.include((yield* Effect.flip(endpoint.traffic)).message, "truncated or removed")
      })
    )
  )

  it.live("does not log the key", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      const logger = Logger.make(({ message }) => void lines.push(String(message)))
      yield* Effect.gen(function* () {
        const endpoint = yield* (yield* LlmProxy).acquire(request)
        yield* Effect.exit(endpoint.ready)
      }).pipe(
        Effect.scoped,
        Effect.provide(
          Layer.merge(
            proxy((io) => Effect.as(io.stderr(`${secret}\n`), 1)),
            Logger.layer([logger])
          )
        )
      )
      assert.notInclude(lines.join("\n"), secret)
    })
  )
})
