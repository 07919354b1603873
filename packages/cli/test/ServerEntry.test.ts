/**
 * The entry for the MCP registry: valid, and in agreement with the package and its command.
 *
 * The schema is a copy of `schemas/2025-12-11/server.schema.json` of modelcontextprotocol/static, under its license, next to it.
 */
import { assert, describe, it } from "@effect/vitest"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Ajv } from "ajv"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"
import { readFileSync } from "node:fs"
import * as Cli from "../src/Cli.ts"
import * as Flags from "../src/Flags.ts"
import * as Output from "../src/Output.ts"

const read = (path: string) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"))

const source = read("../server.json")
// The release adds the name, which follows from the place of the repository.
const entry = { ...source, name: "io.github.someone/cogni-sandbox" }
const manifest = read("../package.json")
const schema = read("fixtures/mcp-server.schema.json")

interface Argument {
  readonly type: "named" | "positional"
  readonly name?: string
  readonly value?: string
  readonly choices?: ReadonlyArray<string>
  readonly default?: string
  readonly isRepeated?: boolean
}

const [npm] = entry.packages
const arguments_: ReadonlyArray<Argument> = npm.packageArguments

const cli = (argv: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const code = yield* Cli.main({ argv, environment: { COGNI_STATE_DIR: "/proc/nowhere/at/all" } }).pipe(
      Effect.provide(Layer.merge(NodeServices.layer, memory.layer))
    )
    return { code, text: (yield* TestConsole.logLines).join("\n") + memory.said.stdout + memory.said.stderr }
  })

describe("the entry for the MCP registry", () => {
  it("matches the published schema", () => {
    // The schema has keywords that are notes for people.
    const validate = new Ajv({ strict: false, allErrors: true, validateFormats: false }).compile(schema)
    assert.isTrue(validate(entry), JSON.stringify(validate.errors))
    assert.strictEqual(entry.$schema, schema.$id)
    assert.isFalse(validate({ ...entry, name: "without a namespace" }))
    assert.isFalse(validate({ ...entry, packages: [{ ...npm, version: "latest" }] }))
  })

  it("has the names of the package, and is published with it", () => {
    assert.strictEqual(npm.identifier, manifest.name)
    assert.include(manifest.files, "server.json")
    // npx runs the only command of a package.
    assert.strictEqual(npm.runtimeHint, "npx")
    assert.lengthOf(Object.keys(manifest.bin), 1)
  })

  it("leaves its name, the version and the repository to the release", () => {
    // .ci/pack.ts completes them: test/architecture/package.test.ts.
    assert.strictEqual(entry.version, "0.0.0")
    assert.strictEqual(npm.version, "0.0.0")
    for (const name of ["repository", "name"]) assert.notProperty(source, name)
    assert.notProperty(manifest, "mcpName")
  })

  it.effect("has arguments that the command takes", () =>
    Effect.gen(function* () {
      const [command, ...flags] = arguments_
      assert.deepInclude(command, { type: "positional", value: "mcp" })
      const { code, text } = yield* cli(["mcp", "--help"])
      assert.strictEqual(code, 0)
      for (const { choices, default: fallback, isRepeated, name } of flags) {
        assert.match(text, new RegExp(`${name}\\b.*`, "u"))
        const line =
          text.split("\n").find((one) => one.includes(`${name} `) || one.includes(`${name},`)) ?? ""
        assert.strictEqual(isRepeated ?? false, /may be repeated/u.test(line), `${name}: ${line}`)
        if (choices !== undefined) {
          assert.include(choices, fallback)
          for (const choice of choices) {
            // A wrong choice is reported; a right one gets as far as the engine, or the next problem.
            const said = yield* cli(["mcp", `${name}=${choice}`, "--idle=1m"])
            assert.include(said.text, "--idle without --workspace", choice)
          }
          assert.include((yield* cli(["mcp", `${name}=other`])).text, name!)
        }
      }
      assert.isAtLeast(Object.keys(Flags.mcp).length, flags.length)
    })
  )

  it("has variables that the command reads", () => {
    const page = readFileSync(new URL("../../../docs/reference/environment.md", import.meta.url), "utf8")
    for (const { name } of npm.environmentVariables) assert.include(page, `| \`${name}\` |`)
  })
})
