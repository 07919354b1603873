/**
 * Package managers inside a sealed sandbox install through the host's mirror, and only what the spec names. The test
 * has a registry of its own.
 */
import { assert, layer } from "@effect/vitest"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import { Context, Effect, Layer } from "effect"
import { execFileSync } from "node:child_process"
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as Npm from "../harness/Npm.ts"
import * as PackageRegistry from "../harness/PackageRegistry.ts"
import * as RunHarness from "../harness/RunHarness.ts"

class Registry extends Context.Service<Registry, PackageRegistry.PackageRegistry>()("test/Registry") {}

const world = Layer.unwrap(
  Effect.map(Registry, ({ origin }) =>
    RunHarness.layer(
      GatewayLlmProxy.layerPackages({
        image: Images.gateway,
        packages: {
          npm: { url: `${origin}/npm` },
          pypi: { url: `${origin}/simple` },
          cargo: { url: `sparse+${origin}/index/` }
        }
      })
    )
  )
).pipe(Layer.provideMerge(Layer.effect(Registry, PackageRegistry.acquire)))

const spec = (script: string, over: Partial<SandboxSpecInput> = {}): SandboxSpecInput => ({
  image: Images.runtime,
  argv: ["bash", "-ec", script],
  packages: ["npm:app-a", "npm:@acme/*"],
  limits: { runtimeSecondsMax: 300 },
  ...over
})

const run = (input: SandboxSpecInput) => SandboxRunner.use((runner) => runner.run(input))

/** Publishes a package with a dependency, and one that no sandbox of this test may install. */
const published = Effect.gen(function* () {
  const registry = yield* Registry
  registry.npm({ name: "@acme/b", version: "1.2.3" })
  registry.npm({ name: "app-a", version: "1.0.0", dependencies: { "@acme/b": "^1.0.0" } })
  registry.npm({ name: "evil", version: "1.0.0" })
  return registry
})

const asked = (registry: PackageRegistry.PackageRegistry) => registry.asked.map(({ path }) => path).join("\n")

/** A directory with npm itself, which is only JavaScript, for a sandbox whose image has none. */
const withNpm = Effect.acquireRelease(
  Effect.sync(() => {
    const directory = mkdtempSync(join(tmpdir(), "cogni-npm-"))
    cpSync(Npm.directory, join(directory, "npm"), { recursive: true })
    writeFileSync(join(directory, "package.json"), '{"name":"project","version":"1.0.0"}')
    execFileSync("chown", ["-R", "1000:1000", directory])
    return directory
  }),
  (directory) => Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
)

layer(world, { excludeTestServices: true })("packages in a sealed sandbox", (it) => {
  it.effect("pnpm installs a package with its dependencies, without a network", () =>
    Effect.gen(function* () {
      const registry = yield* published
      const result = yield* run(
        spec(`mkdir project; cd project; echo '{"name":"project"}' >package.json
          pnpm add app-a >&2
          node -p 'require("app-a")'
          node -p 'require(require.resolve("@acme/b", { paths: [require.resolve("app-a")] }))'
          grep -c localhost pnpm-lock.yaml || :
          ls /sys/class/net`)
      )
      assert.strictEqual(result.exitCode, 0, result.output.stderr.text)
      assert.deepStrictEqual(result.output.stdout.text.trim().split("\n"), [
        "app-a@1.0.0",
        "@acme/b@1.2.3",
        "0",
        "lo"
      ])
      assert.isAtLeast(result.llm?.packagesTotal ?? 0, 4)
      assert.deepInclude(result.llm, { upstream: "none", callsTotal: 0 })
      assert.include(asked(registry), "/npm/@acme%2fb")
    })
  )

  it.effect("a package that is not allowed is refused by name, and its registry never hears it", () =>
    Effect.gen(function* () {
      const registry = yield* published
      const before = registry.asked.length
      const result = yield* run(
        spec(`mkdir project; cd project; echo '{"name":"project"}' >package.json
          pnpm add evil 2>&1 || echo "failed"`)
      )
      assert.match(result.output.stdout.text, /npm:evil is not a package that this sandbox may install/u)
      assert.include(result.output.stdout.text, "failed")
      assert.notInclude(
        registry.asked
          .slice(before)
          .map(({ path }) => path)
          .join("\n"),
        "evil"
      )
    })
  )

  it.effect("npm installs, writes a lockfile without the mirror's address, and prints refusals", () =>
    Effect.gen(function* () {
      yield* published
      const path = yield* withNpm
      const result = yield* run(
        spec(
          `cp package.json npm ~ -r; cd ~
          npm() { node ~/npm/bin/npm-cli.js "$@"; }
          npm install app-a >&2
          node -p 'require("app-a")'
          grep -c localhost package-lock.json || :
          rm -rf node_modules
          node -e '
            const lock = JSON.parse(fs.readFileSync("package-lock.json"))
            lock.packages["node_modules/app-a"].resolved = "https://registry.example.com/app-a/-/app-a-1.0.0.tgz"
            fs.writeFileSync("package-lock.json", JSON.stringify(lock))'
          npm ci >&2
          node -p 'require("app-a")'
          npm install evil 2>&1 || echo failed`,
          { workspace: { type: "directory", path } }
        )
      )
      assert.match(
        result.output.stdout.text,
        /^app-a@1\.0\.0\n0\napp-a@1\.0\.0\n/u,
        result.output.stderr.text
      )
      assert.match(
        result.output.stdout.text,
        /403 .*npm:evil is not a package that this sandbox may install/u
      )
    }).pipe(Effect.scoped)
  )

  it.effect("a command of an open sandbox installs too", () =>
    Effect.gen(function* () {
      yield* published
      const { argv: _, ...open } = spec("")
      const runner = yield* SandboxRunner
      const sandbox = yield* runner.open(open)
      const done = yield* sandbox.exec(
        `mkdir project && cd project && echo '{"name":"project"}' >package.json && pnpm add app-a >&2 && node -p 'require("app-a")'`,
        { timeoutSecondsMax: 200 }
      )
      assert.strictEqual(done.output.stdout.text.trim(), "app-a@1.0.0", done.output.stderr.text)
    }).pipe(Effect.scoped)
  )

  it.effect("without packages in its spec, a sandbox has no way to the mirror", () =>
    Effect.gen(function* () {
      const result = yield* run(
        spec("env | grep -i registry || :; ls -d /.cargo /llm-sock/* 2>&1 | sed 's/.*: //'", { packages: [] })
      )
      assert.notInclude(result.output.stdout.text, "localhost")
      assert.isUndefined(result.llm)
    })
  )

  it.effect("cargo finds the mirror in a file that the sandbox cannot change", () =>
    Effect.gen(function* () {
      const result = yield* run(
        spec(
          "cat /.cargo/config.toml; grep ' /.cargo ' /proc/mounts; echo x >>/.cargo/config.toml || echo kept",
          {
            packages: ["cargo:serde"]
          }
        )
      )
      assert.include(
        result.output.stdout.text,
        'registry = "sparse+http://localhost:8080/packages/cargo/index/"'
      )
      assert.match(result.output.stdout.text, / \/\.cargo \S+ ro,/u)
      assert.match(result.output.stdout.text, /\nkept\n$/u)
    })
  )

  it.effect("nothing is left", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* LeakCheck.staying, [])
      assert.deepStrictEqual(LeakCheck.directories(yield* RunHarness.Directory), [])
    })
  )
})
