/** Arguments and environment of the build script, and its failures. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import * as DockerSocket from "@cogni/sandbox-docker/DockerSocket"
import * as ImageScript from "../src/ImageScript.ts"
import * as ImagesCommand from "../src/ImagesCommand.ts"
import * as Output from "../src/Output.ts"

const secrets = {
  COGNI_LLM_KEY: "sk-planted",
  GITHUB_TOKEN: "ghp-planted",
  ANTHROPIC_API_KEY: "sk-planted",
  NODE_OPTIONS: "--require=./planted.cjs",
  BASH_ENV: "/tmp/planted",
  DOCKER_CONTEXT: "planted"
}

const flags = {
  all: false,
  base: undefined,
  names: [],
  noCache: false,
  only: false,
  output: "text",
  quiet: true
} as const

describe("environment of the build script", () => {
  it("has the settings of npm, proxies and the cache, and no secret", () => {
    const given = {
      PATH: "/bin",
      HOME: "/home/ana",
      https_proxy: "http://p",
      npm_config_registry: "http://r"
    }
    const found = ImageScript.environmentOf({ ...secrets, ...given })
    assert.deepInclude(found, given)
    assert.notInclude(JSON.stringify(found), "planted")
  })

  it("names the engine that runs use", () => {
    assert.deepInclude(ImageScript.environmentOf({ DOCKER_HOST: "/run/mine.sock" }), {
      DOCKER_HOST: "/run/mine.sock"
    })
    assert.notProperty(ImageScript.environmentOf({ DOCKER_CONTEXT: "mine" }), "DOCKER_HOST")
  })
})

const script = fileURLToPath(new URL("../../../images/build", import.meta.url))

describe("the engine of the build script", () => {
  it("is the one that runs use, in the form that docker accepts", () => {
    const host = (address?: string) =>
      execFileSync(
        "bash",
        [
          "-c",
          `eval "$(sed -n '/^use_engine_of_runs()/,/^}/p' "$0")"
           use_engine_of_runs
           printenv DOCKER_HOST`,
          script
        ],
        {
          env: { PATH: "/usr/bin:/bin", ...(address !== undefined && { DOCKER_HOST: address }) },
          encoding: "utf8"
        }
      ).trimEnd()
    assert.strictEqual(host(), `unix://${DockerSocket.defaultPath}`)
    assert.strictEqual(host(""), "unix:///var/run/docker.sock")
    assert.strictEqual(host("/run/mine.sock"), "unix:///run/mine.sock")
    assert.strictEqual(host("tcp://10.0.0.1:2375"), "tcp://10.0.0.1:2375")
  })
})

describe("the build script", () => {
  it("prints its options for --help, with the name of the program", () => {
    const help = execFileSync("bash", [script, "--help"], {
      env: { PATH: "/usr/bin:/bin", HOME: "/nonexistent", CALLER: "cogni-sandbox-images" },
      encoding: "utf8"
    })
    assert.match(help, /^ {2}cogni-sandbox-images --only NAME… {2,}build only the images that you name/mu)
    assert.notInclude(help, "set -euo")
  })
})

describe("the base from a registry", () => {
  it("is built from the digest that its tag has, which is recorded", () => {
    const digest = `debian@sha256:${"a1".repeat(32)}`
    const said = execFileSync(
      "bash",
      [
        "-c",
        `timeout() { shift; "$@"; }
         docker() { case "$1" in image) echo "$DIGEST";; build) echo "$*"; cat;; esac; }
         declare -A TAG=([base]=base:tag)
         BASE_FROM_REGISTRY=debian:bookworm-slim
         eval "$(sed -n '/^from_registry()/,/^}/p' "$0")"
         from_registry`,
        script
      ],
      { env: { PATH: "/usr/bin:/bin", DIGEST: digest }, encoding: "utf8" }
    )
    assert.deepStrictEqual(said.trimEnd().split("\n"), [
      "build --quiet --tag base:tag -",
      `FROM ${digest}`,
      `LABEL dev.cogni.sandbox.image=base dev.cogni.sandbox.base=${digest}`
    ])
  })
})

describe("images build", () => {
  it("passes its flags to the script, options first", () => {
    assert.deepStrictEqual(ImagesCommand.argvOf({ ...flags, names: ["codex"] }), ["codex"])
    assert.deepStrictEqual(
      ImagesCommand.argvOf({
        ...flags,
        only: true,
        noCache: true,
        base: "debian:bookworm",
        names: ["gateway"]
      }),
      ["--no-cache", "--base", "debian:bookworm", "--only", "gateway"]
    )
  })

  it.effect("reports a wrong name with its exit code and the names that exist", () =>
    Effect.gen(function* () {
      const script = yield* ImageScript.ImageScript
      const refused = yield* Effect.flip(script.run(["no-such-image"]))
      assert.strictEqual(refused.exit, "usage")
      assert.match(
        refused.message,
        /unknown image no-such-image\. Images: runtime proxy gateway claude-code/u
      )
      assert.notInclude(refused.message, "cogni-sandbox: ")
    }).pipe(
      Effect.provide([ImageScript.layer({ PATH: "/usr/local/bin:/usr/bin:/bin" }), Output.makeMemory().layer])
    )
  )

  it.effect("shows what the script reports, unless it is quiet", () =>
    Effect.gen(function* () {
      const script = yield* ImageScript.ImageScript
      const shown = Output.makeMemory()
      yield* Effect.ignore(script.run(["no-such-image"])).pipe(Effect.provide(shown.layer))
      assert.include(shown.said.stderr, "unknown image no-such-image")
      const hidden = Output.makeMemory()
      yield* Effect.ignore(script.run(["no-such-image"], { quiet: true })).pipe(Effect.provide(hidden.layer))
      assert.strictEqual(hidden.said.stderr, "")
    }).pipe(Effect.provide(ImageScript.layer({ PATH: "/usr/local/bin:/usr/bin:/bin" })))
  )

  it("reads the tags that the script prints", () => {
    assert.deepStrictEqual(ImagesCommand.tagsOf("base=a/base:1\nruntime=a/runtime:2\n"), [
      ["base", "a/base:1"],
      ["runtime", "a/runtime:2"]
    ])
  })
})
