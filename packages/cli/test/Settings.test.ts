/** Settings from the environment, and the secrecy of the key. */
import * as Thread from "@cogni/sandbox-graph-provider/threads/Thread"
import * as CommitPolicy from "@cogni/sandbox-git-relay/CommitPolicy"
import { builtIn } from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { assert, describe, it } from "@effect/vitest"
import * as DatabaseSettings from "../src/DatabaseSettings.ts"
import * as KeyFile from "../src/KeyFile.ts"
import * as RunKeySettings from "../src/RunKeySettings.ts"
import * as Settings from "../src/Settings.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Redacted, Result } from "effect"
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { hostname, tmpdir } from "node:os"
import { join } from "node:path"
import { inspect } from "node:util"

const key = "sk-planted-7f3c"

const read = (environment: Record<string, string>) =>
  Effect.provide(Settings.Settings, Layer.provide(Settings.layer(environment), NodeServices.layer))

const url = "http://127.0.0.1:4000"

const keyFile = (content: string | Uint8Array, mode = 0o600) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-key-"))),
      (directory) => Effect.sync(() => rmSync(directory, { recursive: true }))
    ),
    (directory) => {
      const path = join(directory, "key")
      writeFileSync(path, content)
      chmodSync(path, mode)
      return path
    }
  )

describe("Settings", () => {
  it("the key is removed from the environment", () => {
    const environment: Record<string, string | undefined> = {
      COGNI_LLM_KEY: key,
      PATH: "/bin",
      EMPTY: undefined
    }
    assert.deepStrictEqual(Settings.takeEnvironment(environment), { COGNI_LLM_KEY: key, PATH: "/bin" })
    assert.deepStrictEqual(environment, { PATH: "/bin", EMPTY: undefined })
  })

  it.effect("has a default for everything but the model", () =>
    Effect.gen(function* () {
      const { imageOf, ...settings } = yield* read({ XDG_STATE_HOME: "/state" })
      assert.strictEqual(imageOf("codex"), "cogni-sandbox/codex:latest")
      assert.deepStrictEqual(settings, {
        stateDirectory: "/state/cogni-sandbox",
        database: Result.succeed(DatabaseSettings.besideRecords("/state/cogni-sandbox")),
        databaseFile: undefined,
        dockerHost: undefined,
        engineRuntime: undefined,
        runtimeImage: "cogni-sandbox/runtime:latest",
        proxyImage: "cogni-sandbox/proxy:latest",
        gatewayImage: "cogni-sandbox/gateway:latest",
        packages: Result.succeed(undefined),
        accountLimits: Result.succeed(undefined),
        connections: Result.succeed({ keys: undefined, gitHubApp: undefined }),
        httpTools: Result.succeed([]),
        mcpServers: Result.succeed([]),
        sqlTool: Result.succeed(undefined),
        prices: undefined,
        rowsSeconds: undefined,
        threads: Thread.defaultLimits,
        temporal: {},
        identityCheckModel: undefined,
        prometheusUrl: undefined,
        runKeys: { mode: "off", deployment: RunKeySettings.nameOf(hostname()) },
        upstreamOptions: Result.succeed({ profile: {} }),
        configDirectory: undefined,
        configRepository: undefined,
        configBranch: undefined,
        configModels: undefined,
        upstreamFiles: [],
        keyFile: undefined,
        images: Result.succeed({ policy: { pull: "never" as const }, cosignPublicKey: undefined }),
        imageKeyFile: undefined,
        isNamed: { runtime: false, gateway: false },
        upstream: { _tag: "Absent" },
        model: undefined,
        billingAccountId: "local",
        isAccountNamed: false,
        sandboxEnabled: false,
        git: Result.succeed({
          tokens: [],
          gitHubServer: "https://github.com",
          gitHubApi: undefined,
          gitLabServer: "https://gitlab.com",
          forges: [{ host: "github.com" }, { host: "gitlab.com" }],
          network: { caFile: undefined, proxyUrl: undefined, noProxy: undefined },
          policies: CommitPolicy.defaults
        })
      })
    })
  )

  it.effect("reads variables; an empty one counts as unset", () =>
    Effect.gen(function* () {
      const settings = yield* read({
        COGNI_STATE_DIR: "/elsewhere",
        DOCKER_HOST: "unix:///run/other.sock",
        COGNI_RUNTIME_IMAGE: "r:1",
        COGNI_PROXY_IMAGE: "",
        COGNI_LLM_URL: "http://127.0.0.1:4000",
        COGNI_LLM_KEY: key,
        COGNI_LLM_MODEL: "m",
        COGNI_BILLING_ACCOUNT: "acct"
      })
      assert.strictEqual(settings.stateDirectory, "/elsewhere")
      assert.strictEqual(settings.dockerHost, "unix:///run/other.sock")
      assert.strictEqual(settings.runtimeImage, "r:1")
      assert.strictEqual(settings.proxyImage, "cogni-sandbox/proxy:latest")
      assert.strictEqual(settings.imageOf("runtime"), "r:1")
      assert.strictEqual(settings.upstream._tag, "Configured")
      assert.strictEqual(settings.model, "m")
      assert.strictEqual(settings.billingAccountId, "acct")
    })
  )

  it.effect("pulls no image without a key to verify it with", () =>
    Effect.gen(function* () {
      const { images } = yield* read({ COGNI_IMAGE_PULL: "missing" })
      const refused = yield* Effect.flip(Effect.fromResult(images))
      assert.strictEqual(refused.exit, "configuration")
      assert.include(refused.message, "COGNI_IMAGE_KEY_FILE")
      const unreadable = yield* read({ COGNI_IMAGE_KEY_FILE: "/proc/nowhere/cosign.pub" })
      assert.strictEqual((yield* Effect.flip(Effect.fromResult(unreadable.images))).exit, "configuration")
      const path = yield* keyFile("-----BEGIN PUBLIC KEY-----")
      const both = yield* read({ COGNI_IMAGE_PULL: "missing", COGNI_IMAGE_KEY_FILE: path })
      assert.deepStrictEqual((yield* Effect.fromResult(both.images)).policy, {
        pull: "missing",
        cosignPublicKey: "-----BEGIN PUBLIC KEY-----"
      })
      const never = yield* read({ COGNI_IMAGE_PULL: "never", COGNI_IMAGE_KEY_FILE: path })
      assert.deepStrictEqual((yield* Effect.fromResult(never.images)).policy, { pull: "never" })
    })
  )

  it("has a variable for each agent's image", () => {
    assert.strictEqual(Settings.imageVariable("claude-code"), "COGNI_CLAUDE_CODE_IMAGE")
  })

  it.effect.each(builtIn)("reads the variable for the image of $id", ({ image }) =>
    Effect.gen(function* () {
      const { imageOf } = yield* read({ [Settings.imageVariable(image)]: "registry.example/own:1" })
      assert.strictEqual(imageOf(image), "registry.example/own:1")
    })
  )

  it.effect("detects an incomplete configuration", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual((yield* read({ COGNI_LLM_URL: "http://x" })).upstream, {
        _tag: "Incomplete",
        missing: "COGNI_LLM_KEY",
        present: "COGNI_LLM_URL"
      })
      assert.deepStrictEqual((yield* read({ COGNI_LLM_KEY: key })).upstream, {
        _tag: "Incomplete",
        missing: "COGNI_LLM_URL",
        present: "COGNI_LLM_KEY"
      })
      assert.deepStrictEqual((yield* read({ COGNI_LLM_KEY_FILE: yield* keyFile(key) })).upstream, {
        _tag: "Incomplete",
        missing: "COGNI_LLM_URL",
        present: "COGNI_LLM_KEY_FILE"
      })
      assert.deepStrictEqual((yield* read({ COGNI_LLM_URL: "", COGNI_LLM_KEY: "" })).upstream, {
        _tag: "Absent"
      })
    })
  )

  it.effect("the key is in nothing that can be printed", () =>
    Effect.gen(function* () {
      const settings = yield* read({ COGNI_LLM_URL: "http://127.0.0.1:4000", COGNI_LLM_KEY: key })
      assert.notInclude(
        `${JSON.stringify(settings)} ${inspect(settings, { depth: 9 })} ${String(settings.upstream)}`,
        key
      )
    })
  )
})

describe("the upstream's options", () => {
  const file = (content: string) => keyFile(content)

  it.effect("are the profile, changes from a file, the key header, and the secret for pseudonyms", () =>
    Effect.gen(function* () {
      const path = yield* file('{"embeddings": true, "headers": {"x-title": "Acme"}}')
      const secretPath = yield* file("0123456789abcdef")
      const settings = yield* read({
        COGNI_LLM_PROFILE: "openai",
        COGNI_LLM_PROFILE_FILE: path,
        COGNI_LLM_KEY_HEADER: "api-key",
        COGNI_LLM_IDENTITY_SECRET_FILE: secretPath
      })
      const { identitySecret, profile } = Result.getOrThrow(settings.upstreamOptions)
      assert.deepStrictEqual(profile, {
        embeddings: true,
        headers: { "x-title": "Acme" },
        name: "openai",
        keyHeader: "api-key"
      })
      assert.strictEqual(Redacted.value(identitySecret!), "0123456789abcdef")
      assert.deepStrictEqual(settings.upstreamFiles, [path, secretPath])
    })
  )

  it.effect("are refused only when a model is needed, with the file and what to do", () =>
    Effect.gen(function* () {
      for (const [environment, says] of [
        [{ COGNI_LLM_PROFILE_FILE: "/proc/nowhere/profile.json" }, "cannot be read"],
        [{ COGNI_LLM_PROFILE_FILE: yield* file('{"embedings": true}') }, "is not a profile"],
        [{ COGNI_LLM_PROFILE_FILE: yield* file("no JSON") }, "is not a profile"],
        [
          { COGNI_LLM_PROFILE: "openai", COGNI_LLM_PROFILE_FILE: yield* file('{"name": "vllm"}') },
          "Name the profile once"
        ],
        [{ COGNI_LLM_IDENTITY_SECRET: key, COGNI_LLM_IDENTITY_SECRET_FILE: yield* file(key) }, "both set"]
      ] as ReadonlyArray<readonly [Record<string, string>, string]>) {
        const { upstreamOptions } = yield* read(environment)
        if (Result.isSuccess(upstreamOptions)) return assert.fail(says)
        assert.include(upstreamOptions.failure.message, says)
        assert.notInclude(upstreamOptions.failure.message, key)
      }
    })
  )

  it.effect("have the proxy of the environment if the upstream has https", () =>
    Effect.gen(function* () {
      const environment = { HTTPS_PROXY: `http://user:${key}@proxy:3128`, NO_PROXY: "localhost" }
      const through = yield* read({ ...environment, COGNI_LLM_URL: "https://api.openai.com" })
      const { egressProxy } = Result.getOrThrow(through.upstreamOptions)
      assert.strictEqual(Redacted.value(egressProxy!.url), environment.HTTPS_PROXY)
      assert.strictEqual(egressProxy!.noProxy, "localhost")
      const direct = yield* read({ ...environment, COGNI_LLM_URL: url })
      assert.deepStrictEqual(Result.getOrThrow(direct.upstreamOptions), { profile: {} })
    })
  )
})

describe("the source of the key file", () => {
  it.effect("reads a rotated key, without a restart", () =>
    Effect.gen(function* () {
      const path = yield* keyFile(key)
      const source = KeyFile.source(path, "COGNI_LLM_KEY_FILE")
      assert.strictEqual(Redacted.value(yield* source), key)
      writeFileSync(path, `${key}-2\n`)
      assert.strictEqual(Redacted.value(yield* source), `${key}-2`)
    })
  )

  it.effect("can be retried if the file is missing or empty, and not if others can open it", () =>
    Effect.gen(function* () {
      const path = yield* keyFile("")
      const isRetryable = Effect.map(
        Effect.flip(KeyFile.source(path, "COGNI_LLM_KEY_FILE")),
        (error) => error.isRetryable
      )
      assert.isTrue(yield* isRetryable)
      writeFileSync(path, key)
      chmodSync(path, 0o644)
      assert.isFalse(yield* isRetryable)
      rmSync(path)
      assert.isTrue(yield* isRetryable)
      mkdirSync(path)
      assert.isFalse(yield* isRetryable)
    })
  )
})

describe("the key file", () => {
  const refusals: ReadonlyArray<
    readonly [what: string, content: string | Uint8Array, mode: number, says: ReadonlyArray<string>]
  > = [
    ["its group can read it", key, 0o640, ["accessible to other users (mode 0640)", "chmod 600 /"]],
    ["everyone can read it", key, 0o604, ["accessible to other users (mode 0604)", "chmod 600 /"]],
    ["others can write it", key, 0o602, ["accessible to other users (mode 0602)", "chmod 600 /"]],
    ["it is empty", "", 0o600, ["is empty"]],
    ["it contains an empty line", "\n", 0o600, ["is empty"]],
    ["it is too long for a key", `${key}${"x".repeat(16 * 1024)}`, 0o600, ["larger than 16 KiB"]]
  ]
  for (const [what, content, mode, says] of refusals) {
    it.effect(`is refused if ${what}, only when a model is needed, and its content is not shown`, () =>
      Effect.gen(function* () {
        const path = yield* keyFile(content, mode)
        const settings = yield* read({ COGNI_LLM_URL: url, COGNI_LLM_KEY_FILE: path })
        if (settings.upstream._tag !== "Refused") return assert.fail(settings.upstream._tag)
        const { exit, message } = settings.upstream.refusal
        assert.strictEqual(exit, "configuration")
        for (const words of ["COGNI_LLM_KEY_FILE", path, ...says]) assert.include(message, words)
        assert.notInclude(inspect(settings, { depth: 9 }), key)
      })
    )
  }

  it.effect("is quoted for a shell in the remedy", () =>
    Effect.gen(function* () {
      const path = `${yield* keyFile(key)} of $x`
      writeFileSync(path, key, { mode: 0o644 })
      const settings = yield* read({ COGNI_LLM_URL: url, COGNI_LLM_KEY_FILE: path })
      if (settings.upstream._tag !== "Refused") return assert.fail(settings.upstream._tag)
      assert.include(settings.upstream.refusal.message, `chmod 600 '${path}'`)
    })
  )

  for (const [ends, content] of [
    ["no line ending", key],
    ["a line feed", `${key}\n`],
    ["a carriage return and a line feed", `${key}\r\n`]
  ] as const) {
    it.effect(`is the key if it ends in ${ends}`, () =>
      Effect.gen(function* () {
        const path = yield* keyFile(content, 0o400)
        const settings = yield* read({ COGNI_LLM_URL: url, COGNI_LLM_KEY_FILE: path })
        if (settings.upstream._tag !== "Configured") return assert.fail(settings.upstream._tag)
        assert.strictEqual(Redacted.value(settings.upstream.key), key)
        assert.strictEqual(settings.keyFile, path)
        assert.notInclude(`${JSON.stringify(settings)} ${inspect(settings, { depth: 9 })}`, key)
      })
    )
  }

  it.effect("loses only one line ending", () =>
    Effect.gen(function* () {
      const settings = yield* read({ COGNI_LLM_URL: url, COGNI_LLM_KEY_FILE: yield* keyFile(` ${key}\n\n`) })
      if (settings.upstream._tag !== "Configured") return assert.fail(settings.upstream._tag)
      assert.strictEqual(Redacted.value(settings.upstream.key), ` ${key}\n`)
    })
  )

  it.effect("is refused if it does not exist or is not a file", () =>
    Effect.gen(function* () {
      const path = yield* keyFile(key)
      mkdirSync(`${path}.d`)
      symlinkSync(path, `${path}-link`)
      for (const [other, says] of [
        [`${path}-not`, "cannot be read"],
        [`${path}.d`, "is not a file"],
        ["/dev/zero", "is not a file"],
        ["/dev/stdin", "is not a file"],
        [`${path}-link`, "symbolic link"]
      ] as const) {
        const { upstream } = yield* read({ COGNI_LLM_URL: url, COGNI_LLM_KEY_FILE: other })
        assert.include(upstream._tag === "Refused" ? upstream.refusal.message : upstream._tag, says)
      }
    })
  )

  it.effect("is refused if the key itself is set too", () =>
    Effect.gen(function* () {
      const environment = { COGNI_LLM_URL: url, COGNI_LLM_KEY: key, COGNI_LLM_KEY_FILE: yield* keyFile(key) }
      const { upstream } = yield* read(environment)
      assert.include(upstream._tag === "Refused" ? upstream.refusal.message : upstream._tag, "both set")
    })
  )
})
