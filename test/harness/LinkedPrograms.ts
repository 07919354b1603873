/**
 * Links the programs that tests start as separate processes: the command, and the second halves of the harness.
 *
 * From their sources, a program loads 400 modules, which takes longer than most of what a test then asks it to do. A
 * linked program is the same code in a few files. `vitest.config.ts` links once, before the first test. Without a link,
 * as in a bench, `pathOf` returns the source, which behaves in the same way.
 */
import { createHash } from "node:crypto"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { createRequire } from "node:module"
import { basename, dirname, join, relative } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import type { Plugin } from "esbuild"

const root = fileURLToPath(new URL("../..", import.meta.url))

/** Ignored by git. */
const home = join(root, ".cogni", "programs")

/** Age at which linked programs are removed. A run of vitest does not last so long. */
const oldMillis = 24 * 60 * 60_000

/** Variable with the directory of the linked programs. */
const variable = "LINKED_PROGRAMS"

/** Sources of the programs, relative to the root, by their linked names. */
const programs: Readonly<Record<string, string>> = {
  bin: "packages/cli/src/bin.ts",
  BillingHost: "test/harness/billing/BillingHost.ts",
  BillingProcess: "packages/cli/test/BillingProcess.ts",
  BoundDirectory: "test/harness/pool/BoundDirectory.ts",
  HostProcess: "test/harness/HostProcess.ts",
  LedgerProcess: "test/harness/LedgerProcess.ts",
  RelayProcess: "test/harness/RelayProcess.ts",
  RunKeyProcess: "test/harness/RunKeyProcess.ts",
  SessionProcess: "test/harness/SessionProcess.ts",
  StoreProcess: "test/harness/StoreProcess.ts",
  // The workflow as one text, for workers in a test's own process.
  WorkflowText: "packages/temporal/src/internal/WorkflowText.ts",
  // Threads of a gateway, which `ThreadCode` finds beside itself.
  "shards/ShardWorker": "packages/proxy/src/internal/shards/ShardWorker.ts",
  "gateway/InspectionWorker": "packages/proxy/src/internal/gateway/InspectionWorker.ts",
  "nginx/RelayWorker": "packages/proxy/src/internal/nginx/RelayWorker.ts"
}

const threadCode = join(root, "packages/proxy/src/internal/ThreadCode.ts")

const workflowText = join(root, "packages/temporal/src/internal/WorkflowText.ts")

/** The module that workers make into one text. */
const workflow = join(root, "packages/temporal/src/internal/SandboxAgentRun.ts")

/** Marks a module that the plugin below looks up. */
const isResolved = "resolved"

/** Packages that become part of a program. It loads all others from where they are installed. */
const isLinked = (specifier: string): boolean => /^(?:effect|@effect|@cogni)(?:\/|$)/u.test(specifier)

/** Lets a linked module see the place of its source, as `import.meta` of the source does. */
const inPlace = (path: string, text: string): string => {
  const require = createRequire(path)
  const place = { url: pathToFileURL(path).href, filename: path, dirname: dirname(path) }
  return text
    .replaceAll(/import\.meta\.resolve\("([^"]+)"\)/gu, (_, name: string) =>
      JSON.stringify(pathToFileURL(require.resolve(name)).href)
    )
    .replaceAll(/import\.meta\.(url|filename|dirname)\b/gu, (_, name: keyof typeof place) =>
      JSON.stringify(place[name])
    )
}

/** Its filters are regular expressions of Go, which has no flag `u`. */
const pluginWith = (built: string): Plugin => ({
  name: "linked-programs",
  setup: (build) => {
    build.onResolve({ filter: /^[^./]/ }, async ({ importer, kind, path, pluginData, resolveDir }) => {
      if (pluginData === isResolved || kind === "entry-point" || isLinked(path)) return undefined
      const found = await build.resolve(path, { importer, kind, resolveDir, pluginData: isResolved })
      return { path: found.path, errors: found.errors, external: true, sideEffects: false }
    })
    build.onLoad({ filter: /\.ts$/ }, ({ path }) => {
      if (path === workflowText) return { loader: "js", contents: `export const built = ${built}\n` }
      const text = readFileSync(path, "utf8")
      if (path === threadCode || !text.includes("import.meta")) return undefined
      return { loader: "ts", contents: inPlace(path, text) }
    })
  }
})

/** Links these programs. */
const link = async (entryPoints: Readonly<Record<string, string>>, built: string) => {
  const { build } = await import("esbuild")
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints,
    outdir: home,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node24",
    logLevel: "error",
    write: false,
    plugins: [pluginWith(built)]
  })
  return outputFiles
}

/**
 * Returns the workflow as the published package contains it, as JSON. Each worker of a checkout would bundle it again,
 * which takes seconds. The file of an earlier run of vitest serves if no module of the workflow has changed.
 */
const builtWorkflow = async (): Promise<string> => {
  const { load, sdkVersion } = await import("../../packages/temporal/src/internal/WorkflowCode.ts")
  const version = sdkVersion()
  const hash = createHash("sha256").update(version)
  for (const { contents } of await link({ workflow }, "undefined")) hash.update(contents)
  const path = join(home, `workflow-${hash.digest("hex").slice(0, 12)}.json`)
  if (existsSync(path)) {
    utimesSync(path, new Date(), new Date())
    return readFileSync(path, "utf8")
  }
  const { code } = await load()
  const text = JSON.stringify({ sdkVersion: version, code })
  mkdirSync(home, { recursive: true })
  writeFileSync(`${path}.${process.pid}`, text)
  renameSync(`${path}.${process.pid}`, path)
  return text
}

/** Links all programs, for vitest, into a directory that is named after their content. Once for all projects. */
export const setup = async (): Promise<void> => {
  if (process.env[variable] !== undefined) return
  const outputFiles = await link(programs, await builtWorkflow())
  const hash = createHash("sha256")
  for (const { contents, path } of outputFiles) hash.update(path).update("\0").update(contents)
  const directory = join(home, hash.digest("hex").slice(0, 12))
  process.env[variable] = directory
  forgetOld()
  if (existsSync(directory)) return utimesSync(directory, new Date(), new Date())
  mkdirSync(home, { recursive: true })
  const made = mkdtempSync(join(home, "linking-"))
  for (const { contents, path } of outputFiles) {
    const file = join(made, relative(home, path))
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, contents)
  }
  try {
    renameSync(made, directory)
  } catch (error) {
    // Another run of vitest was faster.
    rmSync(made, { recursive: true, force: true })
    if (!existsSync(directory)) throw error
  }
}

/** Removes what no run of vitest can still be using. */
const forgetOld = (): void => {
  for (const name of existsSync(home) ? readdirSync(home) : []) {
    const path = join(home, name)
    if (Date.now() - statSync(path).mtimeMs > oldMillis) rmSync(path, { recursive: true, force: true })
  }
}

/** The part of this process's environment that lets a program load its compiled code. */
export const environment: Readonly<Record<string, string>> =
  process.env["NODE_COMPILE_CACHE"] === undefined
    ? {}
    : { NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"] }

/** Plugin of vitest: gateways and workers in a test's own process use the linked threads and the linked workflow too. */
export const threads = {
  name: "linked-threads",
  transform: (code: string, id: string): string | undefined => {
    if (id === workflowText)
      return (
        `const linked = process.env.${variable}\n` +
        "export const built = linked && (await import(/* @vite-ignore */ `file://${linked}/WorkflowText.mjs`)).built\n"
      )
    if (id !== threadCode) return undefined
    const place = /String\(import\.meta\.url\)/u
    if (!place.test(code)) throw new Error(`${id} does not ask for its place. Correct LinkedPrograms.ts`)
    const linked = `\`file://\${process.env.${variable}}/ThreadCode.mjs\``
    return code.replace(place, (own) => `(process.env.${variable} === undefined ? ${own} : ${linked})`)
  }
}

/** Returns the path to start for a program, given the path of its source. */
export const pathOf = (source: string): string => {
  const directory = process.env[variable]
  if (directory === undefined) return source
  const linked = join(directory, `${basename(source, ".ts")}.mjs`)
  if (!existsSync(linked))
    throw new Error(`${source} is not linked. Add it to test/harness/LinkedPrograms.ts`)
  return linked
}
