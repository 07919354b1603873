/**
 * Packs the packages, installs them into an empty project, and runs the README's example and the command there.
 *
 * Needs no Docker. Dependencies come from the configured registry, or from the client's cache.
 */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { expect } from "vitest"
import * as Pace from "../harness/Pace.ts"
import * as PublicSurface from "./PublicSurface.ts"
import * as SourceTree from "./SourceTree.ts"

const run = async (cwd: string, file: string, ...argv: ReadonlyArray<string>): Promise<string> => {
  try {
    const { stdout } = await promisify(execFile)(file, [...argv], {
      cwd,
      timeout: Pace.hangMillis / 2,
      maxBuffer: 2 ** 26
    })
    return stdout
  } catch (thrown) {
    const { message, stderr, stdout } = thrown as Error & {
      readonly stdout?: string
      readonly stderr?: string
    }
    throw new Error(`${message}\n${stdout ?? ""}${stderr ?? ""}`, { cause: thrown })
  }
}

const version = (library: string): string =>
  SourceTree.readJson(`node_modules/${library}/package.json`).version as string

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

const directory = mkdtempSync(join(tmpdir(), "cogni-package-"))
const project = join(directory, "project")
const tarballs = new Map<SourceTree.Package, string>()

describe("packages", () => {
  beforeAll(async () => {
    for (const name of SourceTree.packages) {
      const destination = join(directory, name)
      mkdirSync(destination)
      await run(join(SourceTree.root, "packages", name), "pnpm", "pack", "--pack-destination", destination)
      tarballs.set(name, join(destination, readdirSync(destination)[0]!))
    }
    const files = Object.fromEntries(
      [...tarballs].map(([name, path]) => [`@cogni/sandbox-${name}`, `file:${path}`])
    )
    mkdirSync(project)
    writeFileSync(
      join(project, "package.json"),
      JSON.stringify({ private: true, type: "module", dependencies: { ...files, effect: version("effect") } })
    )
    // The packages are not published, so they resolve to tarballs. The build is one of Effect's optional parts.
    writeFileSync(
      join(project, "pnpm-workspace.yaml"),
      JSON.stringify({ overrides: files, allowBuilds: { "msgpackr-extract": false } })
    )
    copyFileSync(join(SourceTree.root, "examples/hello-in-memory.ts"), join(project, "hello.ts"))
    await run(project, "pnpm", "install", "--prefer-offline", "--reporter=silent")
  })

  afterAll(() => rmSync(directory, { recursive: true, force: true }))

  it("contain the required files, and no others", async () => {
    for (const [name, tarball] of tarballs) {
      const entries = (await run(directory, "tar", "-tzf", tarball)).trim().split("\n").toSorted()
      const odd = entries.filter(
        (entry) =>
          !/^package\/(?:(?:dist|src)\/.+|package\.json|README\.md|LICENSE|CHANGELOG\.md)$/u.test(entry)
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
      const stale = entries.filter(
        (entry) =>
          /^package\/dist\/.*\.js$/u.test(entry) &&
          !entries.includes(entry.replace("/dist/", "/src/").replace(/\.js$/u, ".ts"))
      )
      assert.deepStrictEqual(stale, [], `${name}: built from removed modules; delete packages/${name}/dist`)
    }
  })

  it("contain no path of this machine and no protocol of this workspace", async () => {
    for (const name of SourceTree.packages) {
      const manifest = readFileSync(
        join(project, "node_modules", "@cogni", `sandbox-${name}`, "package.json"),
        "utf8"
      )
      assert.notMatch(manifest, /workspace:|catalog:|"\.\/src\/[^*"]+\.ts"/u, name)
    }
  })

  it("need few others for sealed runs, and none that runs a script when it is installed", () => {
    const found = closure(join(project, "node_modules", "@cogni", "sandbox-docker"))
    const names = found.map(({ name }) => name)
    assert.includeMembers(names, ["@cogni/sandbox-core", "effect"])
    assert.isAtMost(names.length, 15, `each package is one more to trust: ${names.join(", ")}`)
    const scripted = found.filter(({ scripts = {} }) =>
      ["preinstall", "install", "postinstall"].some((script) => script in scripts)
    )
    assert.deepStrictEqual(scripted, [], "use a dependency that needs no build")
  })

  it("run the README's example in an empty project", async () => {
    const printed = await run(project, process.execPath, "hello.ts")
    assert.strictEqual(printed, "exit code 0, said: hello, world\n")
  })

  for (const [title, place] of Object.entries(bundles)) {
    it(`send a large conversation through the gateway of an application bundled ${title}`, async () => {
      copyFileSync(join(SourceTree.root, "test/architecture/BundledApp.ts"), join(project, "app.ts"))
      const output = place.alone ? mkdtempSync(join(directory, "bundled-")) : join(project, "bundled")
      const [file, options] = place.bundle(output)
      const program = join(SourceTree.root, "node_modules/.bin", place.bundler)
      if (place.config !== undefined) writeFileSync(join(project, "vite.config.mjs"), place.config)
      await run(project, program, ...options)
      // Without the packages beside it, a bundle that needs them fails.
      const printed = await run(output, process.execPath, join(output, file))
      assert.strictEqual(printed, "1000 200 true\n300000 200 true\n2000000 200 true\nfunction\n")
    })
  }

  it("load every exported module, and refuse others", async () => {
    const specifiers = SourceTree.packages.flatMap((name) =>
      Object.keys(PublicSurface.exportsOf(name))
        .filter((key) => key !== "./package.json" && !key.startsWith("./testing"))
        .map((key) => `@cogni/sandbox-${name}${key.slice(1)}`)
    )
    writeFileSync(
      join(project, "load.mjs"),
      `for (const name of ${JSON.stringify(specifiers)}) await import(name)
       await import("@cogni/sandbox-core/internal/Release").then(() => console.log("open"), ({ code }) => console.log(code))`
    )
    assert.strictEqual(await run(project, process.execPath, "load.mjs"), "ERR_PACKAGE_PATH_NOT_EXPORTED\n")
  })

  for (const name of SourceTree.packages) {
    const modules = PublicSurface.publicModules(name).toSorted()
    if (modules.length === 0) continue
    it(`export the recorded types: ${name}`, async () => {
      const declarations = modules.map((module) => {
        const noun = module.replace(/\.ts$/u, "")
        const path = join(project, "node_modules", "@cogni", `sandbox-${name}`, "dist", `${noun}.d.ts`)
        return `// ${noun}\n${withoutComments(readFileSync(path, "utf8"))}`
      })
      // After an intended change: pnpm vitest run test/architecture/package.test.ts -u
      await expect(declarations.join("\n")).toMatchFileSnapshot(`api/${name}.d.txt`)
    })
  }

  it("install the command, which lists its subcommands", async () => {
    const help = await run(project, join(project, "node_modules/.bin/cogni-sandbox"), "--help")
    for (const command of ["run", "demo", "doctor", "ps", "logs", "inspect", "prune"])
      assert.include(help, command)
  })
})
