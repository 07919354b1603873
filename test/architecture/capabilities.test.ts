/** Capabilities of each front door, compared with the code, and written to `docs/reference/capabilities.md`. */
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as ServerApi from "../../packages/server/src/ServerApi.ts"
import * as Configuration from "@cogni/sandbox-sessions/config/Configuration"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { OpenApi } from "effect/http-api"
import { TestConsole } from "effect/testing"
import { expect } from "vitest"
import * as Cli from "../../packages/cli/src/Cli.ts"
import * as Output from "../../packages/cli/src/Output.ts"
import { capabilities, type Cell, type Door, doors, ofCommand } from "./Capabilities.ts"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

const page = "docs/reference/capabilities.md"

/** Flags of a command, from its help. */
const flagsOf = (...words: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const before = (yield* TestConsole.logLines).length
    yield* Cli.main({
      argv: [...words, "--help"],
      environment: { COGNI_STATE_DIR: "/proc/nowhere/at/all" }
    }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
    const help = (yield* TestConsole.logLines).slice(before).join("\n")
    const flags = help.slice(help.indexOf("\nFLAGS"), help.indexOf("\nGLOBAL FLAGS"))
    return [...flags.matchAll(/^ +--([a-z-]+)/gmu)].map(([, name]) => name!)
  })

interface Described {
  readonly properties?: Readonly<Record<string, Described>>
  readonly $ref?: string
}

const api = OpenApi.fromApi(ServerApi.ServerApi) as unknown as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>
  readonly components: { readonly schemas: Readonly<Record<string, Described>> }
}

/** Whether a path of properties exists in a schema. */
const has = (schema: Described | undefined, [name, ...rest]: ReadonlyArray<string>): boolean => {
  const found = schema?.$ref === undefined ? schema : api.components.schemas[schema.$ref.split("/").at(-1)!]
  return name === undefined ? found !== undefined : has(found?.properties?.[name], rest)
}

const endpoints = Object.entries(api.paths).flatMap(([path, item]) =>
  Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`)
)

const beyond = (all: ReadonlyArray<string>, named: ReadonlyArray<string>) =>
  all.filter((one) => !named.includes(one))

const hasEndpoint = (text: string): boolean => endpoints.includes(text)

const hasModule = (text: string): boolean => {
  const at = text.indexOf("/")
  const { exports } = JSON.parse(SourceTree.read(`packages/${text.slice(0, at)}/package.json`)) as {
    readonly exports: Readonly<Record<string, string>>
  }
  return `./${text.slice(at + 1)}` in exports
}

const variables = new Set(
  [...SourceTree.read("docs/reference/environment.md").matchAll(/`([A-Z][A-Z_]+)`/gu)].map(
    ([, name]) => name!
  )
)

/** Returns what a cell names and the code does not have. */
const missingIn = (cell: Cell, flags: ReadonlyArray<string>, grant: ReadonlyArray<string>) => [
  ...(cell.flags ?? []).filter((name) => !flags.includes(name)).map((name) => `--${name}`),
  ...(cell.grant ?? []).filter((name) => !grant.includes(name)).map((name) => `grants create --${name}`),
  ...(cell.fields ?? []).filter((name) => !has(api.components.schemas["ChatRequest"], name.split("."))),
  ...(cell.endpoints ?? []).filter((text) => !hasEndpoint(text)),
  ...(cell.keys ?? []).filter((name) => !has(Configuration.jsonSchema() as Described, name.split("."))),
  ...(cell.spec ?? []).filter((name) => !(name in SandboxSpec.SandboxSpec.fields)),
  ...(cell.modules ?? []).filter((text) => !hasModule(text)),
  ...(cell.variables ?? []).filter((name) => !variables.has(name))
]

const code = (names: ReadonlyArray<string> = [], prefix = "") => names.map((name) => `\`${prefix}${name}\``)

const shown = (cell: Cell): string =>
  cell.why ??
  [
    ...code(cell.flags, "--"),
    ...code(cell.fields),
    ...code(cell.endpoints),
    ...code(cell.grant, "grants create --"),
    ...code(cell.keys),
    ...code(cell.spec),
    ...code(cell.modules),
    ...code(cell.variables),
    ...(cell.note === undefined ? [] : [cell.note])
  ].join(", ")

const titles: Readonly<Record<Door, string>> = {
  run: "`run`",
  task: "`task`",
  serve: "`serve`",
  chat: "`chat`",
  mcp: "`mcp`",
  acp: "`acp`",
  library: "library"
}

const render = (): string =>
  `# Capabilities

Where each capability is available. A test makes this page from the flags of the commands, the OpenAPI document of the
server, the schema of a session's configuration and the modules of the packages. Each flag of a front door and of
\`grants create\`, and each endpoint, is on it. A sentence says why a front door does not have a capability.

For \`serve\`, a name without dashes is a field of the body of \`POST /api/v1/ai/chat\`. For \`chat\`, it is a key of the
[configuration](configuration.md). For the library, it is a field of the [spec](spec.md), or a module:
\`proxy/PackageMirror\` is \`@cogni/sandbox-proxy/PackageMirror\`.

${capabilities
  .map(
    ({ cells, name }) =>
      `## ${name}\n\n| Front door | Use |\n|---|---|\n${doors.map((door) => `| ${titles[door]} | ${shown(cells[door])} |`).join("\n")}\n`
  )
  .join("\n")}`

describe("capabilities", () => {
  it.effect("each cell names what the code has, and each flag, endpoint and permission is in a cell", () =>
    Effect.gen(function* () {
      const grant = yield* flagsOf("grants", "create")
      const offenders: Array<string> = []
      for (const door of doors) {
        const flags = door === "library" ? [] : yield* flagsOf(door)
        if (door !== "library") assert.isAbove(flags.length, 4)
        const named = new Set(ofCommand[door])
        for (const { cells, name } of capabilities) {
          for (const flag of cells[door].flags ?? []) named.add(flag)
          offenders.push(...missingIn(cells[door], flags, grant).map((one) => `${name}, ${door}: ${one}`))
        }
        offenders.push(
          ...flags.filter((flag) => !named.has(flag)).map((flag) => `${door} --${flag}: in no cell`)
        )
        offenders.push(
          ...[...named].filter((flag) => !flags.includes(flag)).map((flag) => `${door} --${flag}: gone`)
        )
      }
      const inCells = capabilities.flatMap(({ cells }) => cells.serve)
      offenders.push(
        ...beyond(
          endpoints,
          inCells.flatMap((cell) => cell.endpoints ?? [])
        ).map((one) => `serve ${one}: in no cell`),
        ...beyond(grant, ["output", ...inCells.flatMap((cell) => cell.grant ?? [])]).map(
          (flag) => `grants create --${flag}: in no cell`
        )
      )
      none(offenders, "correct test/architecture/Capabilities.ts")
    })
  )

  it("no cell is empty, and a sentence stands alone", () => {
    const offenders = capabilities.flatMap(({ cells, name }) =>
      doors
        .filter((door) => {
          const { why, ...offered } = cells[door]
          const isOffered = Object.values(offered).some((value) => value.length > 0)
          return why === undefined ? !isOffered : isOffered || !/^[A-Z].{15,}\.$/u.test(why)
        })
        .map((door) => `${name}, ${door}`)
    )
    none(offenders, "offer it, or say why not in a whole sentence")
  })

  it("the page is up to date", async () => {
    await expect(render()).toMatchFileSnapshot(`../../${page}`)
  })
})
