/**
 * Packs the packages as a release does, installs them into an empty project, and runs the README's example and the
 * command there.
 *
 * Needs no Docker. Dependencies come from the configured registry, or from the client's cache.
 */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { existsSync, globSync, mkdtempSync, readFileSync, realpathSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { join } from "node:path"
import { expect } from "vitest"
import * as RecordedHistories from "../../packages/temporal/test/RecordedHistories.ts"
import * as BundledApp from "../harness/BundledApp.ts"
import * as OldestNode from "../harness/OldestNode.ts"
import * as PackedPackages from "../harness/PackedPackages.ts"
import * as PublicSurface from "./PublicSurface.ts"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"
import * as UnstableEffect from "./UnstableEffect.ts"

const { run } = PackedPackages

/** Removes comments from a declaration file, but not from its literals. */
const withoutComments = (declarations: string): string =>
  declarations
    .replaceAll(
      /("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`)|\/\*[\s\S]*?\*\/|\/\/.*$/gmu,
      (_whole, literal: string | undefined) => literal ?? ""
    )
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => `${line.trimEnd()}\n`)
    .join("")

interface Manifest {
  readonly name: string
  readonly scripts?: Readonly<Record<string, string>>
  readonly dependencies?: Readonly<Record<string, string>>
  readonly optionalDependencies?: Readonly<Record<string, string>>
  readonly peerDependencies?: Readonly<Record<string, string>>
}

/** The manifests of an installed package and of all packages that it needs. */
const closure = (path: string, found = new Map<string, Manifest>()): ReadonlyArray<Manifest> => {
  const real = realpathSync(path)
  if (found.has(real)) return [...found.values()]
  const manifest = JSON.parse(readFileSync(join(real, "package.json"), "utf8")) as Manifest
  found.set(real, manifest)
  const needed = {
    ...manifest.peerDependencies,
    ...manifest.optionalDependencies,
    ...manifest.dependencies
  }
  for (const name of Object.keys(needed)) {
    // The package manager installs what a package needs next to it.
    const place = join(real.slice(0, real.lastIndexOf("node_modules")), "node_modules", name)
    if (existsSync(place)) closure(place, found)
  }
  return [...found.values()]
}

interface Bundle {
  readonly bundler: "esbuild" | "vite"
  /** The bundle runs where the packages are not installed. */
  readonly alone: boolean
  readonly config?: string
  /** Name of the bundle's file, and the arguments that make it. */
  readonly bundle: (output: string) => readonly [file: string, options: ReadonlyArray<string>]
}

const withVite = (output: string) => ["app.js", ["build", "--ssr", "app.ts", "--outDir", output]] as const

/** The configurations of docs/guides/bundlers.md. */
const bundles: Readonly<Record<string, Bundle>> = {
  "by esbuild": {
    bundler: "esbuild",
    alone: true,
    bundle: (output) => [
      "app.cjs",
      ["app.ts", "--bundle", "--platform=node", `--outfile=${join(output, "app.cjs")}`]
    ]
  },
  "by esbuild as a minified module": {
    bundler: "esbuild",
    alone: true,
    bundle: (output) => [
      "app.mjs",
      [
        "app.ts",
        "--bundle",
        "--platform=node",
        "--format=esm",
        "--minify",
        `--outfile=${join(output, "app.mjs")}`
      ]
    ]
  },
  "by esbuild, without its packages": {
    bundler: "esbuild",
    alone: false,
    bundle: (output) => [
      "app.mjs",
      [
        "app.ts",
        "--bundle",
        "--platform=node",
        "--format=esm",
        "--packages=external",
        `--outfile=${join(output, "app.mjs")}`
      ]
    ]
  },
  "by Vite for a server": { bundler: "vite", alone: false, config: "export default {}", bundle: withVite },
  "by Vite for a server, with its dependencies": {
    bundler: "vite",
    alone: true,
    config: "export default { ssr: { noExternal: true } }",
    bundle: withVite
  }
}

let packed: PackedPackages.Packed

/** A file of an installed package. */
const installed = (name: string, ...path: ReadonlyArray<string>) =>
  join(packed.project, "node_modules/@cogni", `sandbox-${name}`, ...path)

describe("packages", () => {
  beforeAll(async () => {
    packed = await PackedPackages.install({ "hello.ts": SourceTree.read("examples/hello-in-memory.ts") })
  }, PackedPackages.installMillisMax)

  afterAll(() => (packed as PackedPackages.Packed | undefined)?.remove())

  it("contain the required files, and no others", async () => {
    for (const name of SourceTree.packages) {
      const tarball = packed.tarballs.get(name)!
      const listed = await run(SourceTree.root, "tar", "-tzf", tarball)
      const entries = listed.split("\n").filter((entry) => entry !== "" && !entry.endsWith("/"))
      const odd = entries.filter(
        (entry) =>
          !/^package\/(?:(?:dist|src)\/.+|package\.json|README\.md|LICENSE|CHANGELOG\.md)$/u.test(entry) &&
          !(name === "cli" && entry === "package/server.json")
      )
      assert.deepStrictEqual(odd, [], `${name} packs these unexpected files`)
      for (const needed of [
        "package.json",
        "README.md",
        "LICENSE",
        ...(SourceTree.hasIndex(name) ? ["src/index.ts", "dist/index.js", "dist/index.d.ts"] : [])
      ]) {
        assert.include(entries, `package/${needed}`, name)
      }
      const needless = entries.filter((entry) => /\.tsbuildinfo$|\/test\//u.test(entry))
      assert.deepStrictEqual(needless, [], `${name}: exclude these in files of packages/${name}/package.json`)
      if (name === "server") assert.include(entries, "package/dist/page/index.html")
      const stale = entries.filter(
        (entry) =>
          // The built page has names with hashes.
          /^package\/dist\/(?!page\/).*\.js$/u.test(entry) &&
          !["ts", "tsx"].some((ending) =>
            entries.includes(entry.replace("/dist/", "/src/").replace(/\.js$/u, `.${ending}`))
          )
      )
      assert.deepStrictEqual(stale, [], `${name}: built from removed modules; delete packages/${name}/dist`)
    }
  })

  it("contain no path of this machine and no protocol of this workspace", () => {
    for (const folder of PackedPackages.folders) {
      const manifest = readFileSync(installed(PackedPackages.nameOf(folder), "package.json"), "utf8")
      assert.notMatch(manifest, /workspace:|catalog:|"\.\/src\/[^*"]+\.ts"/u, folder)
    }
  })

  it("need few others for sealed runs, and none that runs a script when it is installed", () => {
    const found = closure(join(packed.project, "node_modules", "@cogni", "sandbox-docker"))
    const names = found.map(({ name }) => name)
    assert.includeMembers(names, ["@cogni/sandbox-core", "effect"])
    assert.isAtMost(names.length, 15, `each package is one more to trust: ${names.join(", ")}`)
    const scripted = found.filter(({ scripts = {} }) =>
      ["preinstall", "install", "postinstall"].some((script) => script in scripts)
    )
    assert.deepStrictEqual(scripted, [], "use a dependency that needs no build")
  })

  it("accept later minor versions of Effect only if they use nothing that such a version may change", () => {
    const effect = join(packed.project, "node_modules", "effect")
    const usesIn = UnstableEffect.usesIn(effect)
    assert.deepStrictEqual(
      usesIn(`import { Bytes as B, Stream as S, Array as A, pipe } from "effect"
        import * as Hex from "effect/encoding/Hex"
        type T = import("effect/sql/SqlError").SqlError | A.NonEmptyArray<S.limitBytes>`),
      ["Bytes", "Stream.limitBytes", "sql/SqlError"]
    )
    const { version } = JSON.parse(readFileSync(join(effect, "package.json"), "utf8")) as { version: string }
    const narrow = `~${version.replace(/\.\d+$/u, ".0")}`
    const manifestOf = (name: string) =>
      JSON.parse(readFileSync(installed(name, "package.json"), "utf8")) as Manifest
    const offenders = SourceTree.packages.flatMap((name) => {
      const { dependencies = {}, peerDependencies = {} } = manifestOf(name)
      // Beside an application's copy, it would be a second one in the same program.
      assert.notProperty(dependencies, "effect", name)
      const built = globSync("dist/**/*.{js,d.ts}", { cwd: installed(name) })
      assert.isNotEmpty(built, name)
      const uses = built.flatMap((file) =>
        usesIn(readFileSync(installed(name, file), "utf8")).map((use) => `${use} in ${file}`)
      )
      // An install of the package has its dependencies, and they accept no other version.
      const narrowed = Object.keys(dependencies)
        .filter((one) => one.startsWith("@cogni/sandbox-"))
        .filter(
          (one) => manifestOf(one.slice("@cogni/sandbox-".length)).peerDependencies?.["effect"] === narrow
        )
      const reasons = [...uses.map((use) => `uses ${use}`), ...narrowed.map((one) => `depends on ${one}`)]
      const range = peerDependencies["effect"] ?? "no range"
      const isRight = reasons.length === 0 ? range === "^4.1.0" : range === narrow
      return isRight ? [] : [`${name}: ${range}, and ${reasons[0] ?? "uses nothing unstable"}`]
    })
    none(
      offenders,
      `a package needs ${narrow} if it or a dependency uses an unstable part of Effect, and ^4.1.0 if not`
    )
  })

  it("name the repository of the root manifest, which alone names it", () => {
    const { author, repository } = SourceTree.readJson("package.json")
    const page = (repository.url as string).replace(/^git\+|\.git$/gu, "")
    for (const folder of PackedPackages.folders) {
      const manifest = JSON.parse(
        readFileSync(installed(PackedPackages.nameOf(folder), "package.json"), "utf8")
      )
      assert.deepInclude(
        manifest,
        {
          repository: { ...repository, directory: folder },
          homepage: `${page}/tree/HEAD/${folder}#readme`,
          bugs: `${page}/issues`,
          author,
          license: "MIT"
        },
        folder
      )
      assert.isAbove(manifest.keywords.length, 3, folder)
    }
    const address = page.replace("https://", "")
    none(
      SourceTree.files("**/*.{md,ts,json,yaml,yml}", ".github/**/*.yml", ".ci/*").filter(
        (path) => path !== "package.json" && SourceTree.read(path).includes(address)
      ),
      "these repeat the place of the repository, which changes in package.json alone"
    )
  })

  it("have an entry for the MCP registry, with the version and the repository of the command", () => {
    const page = (SourceTree.readJson("package.json").repository.url as string).replace(/^git\+|\.git$/gu, "")
    const command = PackedPackages.nameOf("packages/cli")
    const { mcpName, version } = JSON.parse(readFileSync(installed(command, "package.json"), "utf8"))
    const { packages, ...entry } = JSON.parse(readFileSync(installed(command, "server.json"), "utf8"))
    assert.strictEqual(mcpName, `io.github.${new URL(page).pathname.slice(1)}`)
    assert.deepInclude(entry, {
      name: mcpName,
      version,
      repository: { url: page, source: "github", subfolder: "packages/cli" }
    })
    assert.deepInclude(packages[0], { identifier: `@cogni/sandbox-${command}`, version })
  })

  it("have READMEs whose links work outside the repository", () => {
    const { repository } = SourceTree.readJson("package.json")
    const page = (repository.url as string).replace(/^git\+|\.git$/gu, "")
    const links = PackedPackages.folders.flatMap((folder) => {
      const readme = readFileSync(installed(PackedPackages.nameOf(folder), "README.md"), "utf8")
      return [...readme.matchAll(/\]\(([^)\s]+)\)/gu)].map(([, target]) => ({ folder, target: target! }))
    })
    assert.isAbove(links.length, 20)
    none(
      links
        .filter(({ target }) => !target.startsWith("#"))
        .filter(({ target }) => {
          if (!target.startsWith(page)) return !target.startsWith("https://")
          const [, kind, path] = /^\/(blob|tree)\/HEAD\/([^#]+)/u.exec(target.slice(page.length)) ?? []
          return kind === undefined || !existsSync(join(SourceTree.root, path!))
        })
        .map(({ folder, target }) => `${folder}/README.md → ${target}`),
      "link to a file of this repository, or to an address on the web"
    )
  })

  it("load with require, as a CommonJS host loads them", async () => {
    const names = SourceTree.packages.filter((name) => SourceTree.hasIndex(name))
    writeFileSync(
      join(packed.project, "load.cjs"),
      `for (const name of ${JSON.stringify(names)}) {
         if (Object.keys(require("@cogni/sandbox-" + name)).length === 0) throw new Error(name + " is empty")
       }
       console.log(Object.keys(require("@cogni/sandbox-core/RunId")).includes("generate"))`
    )
    assert.strictEqual(await run(packed.project, process.execPath, "load.cjs"), "true\n")
  })

  it("build the same images as this checkout, byte for byte", async () => {
    const here = await run(SourceTree.root, join(SourceTree.root, "images/build"), "--print-all")
    assert.strictEqual(await run(packed.project, "bash", installed("images", "build"), "--print-all"), here)
    assert.strictEqual(readFileSync(installed("images", "tags"), "utf8"), here)
    for (const architecture of ["x64", "arm64"]) {
      assert.match(here, new RegExp(`^${architecture} runtime=cogni-sandbox/runtime:[0-9a-f]{12}$`, "mu"))
    }
    const listed = (await run(SourceTree.root, "tar", "-tzf", packed.tarballs.get("images")!)).split("\n")
    for (const needed of [
      "build",
      "lib.sh",
      "LICENSE",
      "README.md",
      "codex/package-lock.json",
      "pi/.dockerignore"
    ])
      assert.include(listed, `package/${needed}`)
  })

  it("run the README's example in an empty project", async () => {
    const printed = await run(packed.project, process.execPath, "hello.ts")
    assert.strictEqual(printed, "exit code 0, said: hello, world\n")
  })

  for (const [title, place] of Object.entries(bundles)) {
    it(`send a large conversation through the gateway of an application bundled ${title}`, async () => {
      const { project } = packed
      writeFileSync(join(project, "conversation.ts"), SourceTree.read(BundledApp.conversationPath))
      writeFileSync(join(project, "app.ts"), BundledApp.program)
      const output = place.alone ? mkdtempSync(join(project, "../bundled-")) : join(project, "bundled")
      const [file, options] = place.bundle(output)
      const program = join(SourceTree.root, "node_modules/.bin", place.bundler)
      if (place.config !== undefined) writeFileSync(join(project, "vite.config.mjs"), place.config)
      await run(project, program, ...options)
      // Without the packages beside it, a bundle that needs them fails.
      const printed = await run(output, process.execPath, join(output, file))
      assert.strictEqual(printed, BundledApp.answer)
    })
  }

  it("run on the oldest supported line of Node", async () => {
    const node = OldestNode.path()
    assert.match(await run(packed.project, node, "--version"), /^v22\./u)
    assert.strictEqual(await run(packed.project, node, "hello.ts"), "exit code 0, said: hello, world\n")
    writeFileSync(join(packed.project, "conversation.ts"), SourceTree.read(BundledApp.conversationPath))
    writeFileSync(join(packed.project, "app.ts"), BundledApp.program)
    assert.strictEqual(await run(packed.project, node, "app.ts"), BundledApp.answer)
    const help = await run(packed.project, node, installed("cli", "dist/bin.js"), "--help")
    assert.include(help, "demo")
  })

  it("contain the workflow of durable runs, which replays recorded histories without a bundler", async () => {
    const { built } = (await import(installed("temporal", "dist/internal/WorkflowText.js"))) as {
      readonly built: { readonly sdkVersion: string; readonly code: string } | undefined
    }
    const require = createRequire(join(SourceTree.root, "packages/temporal/package.json"))
    assert.strictEqual(built?.sdkVersion, require("@temporalio/worker/package.json").version)
    assert.notInclude(built?.code, SourceTree.root)
    const { Runtime, Worker } = require("@temporalio/worker")
    const quiet = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, log() {} }
    Runtime.install({ logger: quiet, telemetryOptions: { logging: { filter: "OFF" } } })
    const failed: Array<string> = []
    const replaying = Worker.runReplayHistories({ workflowBundle: built }, RecordedHistories.all)
    for await (const { error, runId } of replaying)
      if (error !== undefined) failed.push(`${RecordedHistories.fileOf(runId)}: ${error.message}`)
    assert.deepStrictEqual(failed, [])
  })

  it("load every exported module, and refuse others", async () => {
    const specifiers = SourceTree.packages.flatMap((name) =>
      Object.keys(PublicSurface.exportsOf(name))
        // A style sheet is for bundlers.
        .filter((key) => !/\.(?:css|json)$/u.test(key) && !key.startsWith("./testing"))
        .map((key) => `@cogni/sandbox-${name}${key.slice(1)}`)
    )
    writeFileSync(
      join(packed.project, "load.mjs"),
      `for (const name of ${JSON.stringify(specifiers)}) await import(name)
       await import("@cogni/sandbox-core/internal/Release").then(() => console.log("open"), ({ code }) => console.log(code))`
    )
    assert.strictEqual(
      await run(packed.project, process.execPath, "load.mjs"),
      "ERR_PACKAGE_PATH_NOT_EXPORTED\n"
    )
  })

  for (const name of SourceTree.packages) {
    const modules = PublicSurface.publicModules(name).toSorted()
    if (modules.length === 0) continue
    it(`export the recorded types: ${name}`, async () => {
      const declarations = modules.map((module) => {
        const noun = module.replace(/\.tsx?$/u, "")
        const path = installed(name, "dist", `${noun}.d.ts`)
        return `// ${noun}\n${withoutComments(readFileSync(path, "utf8"))}`
      })
      // After an intended change: pnpm vitest run test/architecture/package.test.ts -u
      await expect(declarations.join("\n")).toMatchFileSnapshot(`api/${name}.d.txt`)
    })
  }

  it("install the command, which lists its subcommands", async () => {
    const help = await run(packed.project, join(packed.project, "node_modules/.bin/cogni-sandbox"), "--help")
    for (const command of ["run", "demo", "doctor", "images", "ps", "logs", "inspect", "prune"])
      assert.include(help, command)
  })
})
