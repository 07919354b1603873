/** Functions that OpenClaw's preload calls before a run, and the child process that begins its script. */
import { assert, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { copyFileSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

interface Module {
  readonly functionOf: (modules: ReadonlyArray<string>, file: string, name: string) => Promise<() => unknown>
  readonly rehearseSchemas: (modules: ReadonlyArray<string>, schemas: ReadonlyArray<string>) => Promise<void>
}

const images = new URL("../../../images/", import.meta.url)

const { functionOf, rehearseSchemas }: Module = await import(
  new URL("openclaw/preload-rehearse.mjs", images).href
)

/** Address of a module whose file name begins with `file`. */
const moduleOf = (file: string, code: string) =>
  `data:text/javascript,${encodeURIComponent(code)}//x/${file}A.mjs`

const schema = "CREATE TABLE a (b TEXT) STRICT"

const modulesOf = (issues: string) => [
  moduleOf("sqlite-strict-", "export function migrateSqliteSchemaToStrict() {}"),
  moduleOf("openclaw-state-db-", "export function other() {}"),
  moduleOf("openclaw-state-db-", "export const a = function repairCanonicalSqliteIndexes() {}"),
  moduleOf(
    "sqlite-schema-contract-",
    `export function collectSqliteSchemaIssues(database, schema) {
      const names = database.prepare("SELECT name FROM sqlite_schema").all()
      globalThis.rehearsed = [database.location(), names.length, schema]
      return ${issues}
    }`
  )
]

describe("a rehearsal of OpenClaw before its run", () => {
  it("compares schemas with databases in memory", async () => {
    await rehearseSchemas(modulesOf("[]"), [schema])
    assert.deepStrictEqual(Reflect.get(globalThis, "rehearsed"), [null, 1, schema])
  })

  it("fails if OpenClaw has no such function, or does not know its schema", async () => {
    const messageOf = (promise: Promise<unknown>) => promise.then(() => "", String)
    assert.include(await messageOf(rehearseSchemas([], [schema])), "has no migrateSqliteSchemaToStrict")
    assert.include(await messageOf(functionOf(modulesOf("[]"), "openclaw-state-db-", "gone")), "has no gone")
    assert.include(await messageOf(rehearseSchemas(modulesOf("['b']"), [schema])), "its own schema")
  })
})

/** Runs a child process whose script says when it begins, and then its arguments and two variables. */
const childOf = (line: string) => {
  const root = mkdtempSync(join(tmpdir(), "cogni-openclaw-"))
  const script = join(root, "openclaw", "script.mjs")
  for (const directory of ["openclaw", "cogni"]) mkdirSync(join(root, directory))
  for (const [from, to] of [
    ["openclaw/preload-child.mjs", "openclaw/preload-child.mjs"],
    ["runtime/preload-node.mjs", "cogni/preload-node.mjs"],
    ["runtime/preload.mjs", "cogni/preload.mjs"]
  ] as const)
    copyFileSync(new URL(from, images), join(root, to))
  writeFileSync(
    script,
    `import { writeSync } from "node:fs"
    const kept = process.env.KEPT
    writeSync(1, "begun ")
    writeSync(1, JSON.stringify([process.argv.slice(2), kept, process.env.LATER]))`
  )
  writeFileSync(
    join(root, "openclaw", "loaded.json"),
    JSON.stringify({ children: [{ script, modules: [] }] })
  )
  writeFileSync(join(root, "line"), line.replace("SCRIPT", script))
  const { status, stderr, stdout } = spawnSync(
    process.execPath,
    [join(root, "openclaw", "preload-child.mjs"), script],
    {
      env: { KEPT: "1" },
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe", openSync(join(root, "line"), "r")],
      timeout: 20_000
    }
  )
  rmSync(root, { recursive: true })
  return [status, stdout, stderr]
}

const lineOf = (env: Readonly<Record<string, string>>) => JSON.stringify({ args: ["SCRIPT", "a"], env })

describe("a child process that begins the script of OpenClaw", () => {
  it("begins it before its arguments come, and goes on with the arguments and variables of its call", () => {
    const seen = childOf(lineOf({ KEPT: "1", LATER: "2" }))
    assert.deepStrictEqual(seen, [0, `begun [["a"],"1","2"]`, ""])
  })

  it("begins again if a variable that it has read is another one in its call", () => {
    assert.deepStrictEqual(childOf(lineOf({ KEPT: "3" })), [0, `begun begun [["a"],"3",null]`, ""])
  })

  it("ends if OpenClaw does not need it", () => {
    assert.deepStrictEqual(childOf(""), [0, "begun ", ""])
  })
})
