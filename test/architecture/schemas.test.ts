/** JSON Schemas that the code defines, and that are published in `docs/reference/schemas`. */
import * as RunFigures from "@cogni/sandbox-core/RunFigures"
import * as AuditEntry from "@cogni/sandbox-proxy/AuditEntry"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import * as Configuration from "@cogni/sandbox-sessions/config/Configuration"
import { assert, describe, it } from "@effect/vitest"
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js"
import { Arbitrary, Schema } from "effect"
import { expect } from "vitest"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

interface Published {
  readonly file: string
  readonly title: string
  readonly description: string
  readonly schema: Schema.Top
}

const published: ReadonlyArray<Published> = [
  {
    file: "audit-line.schema.json",
    title: "A line of an audit",
    description: "One line of runs/<id>/audit/audit.jsonl, as a gateway writes it.",
    schema: AuditEntry.AuditLine
  },
  {
    file: "configuration.schema.json",
    title: "Configuration of sessions",
    description: "Sessions, their agents, and which agent answers which sender.",
    schema: Configuration.File
  },
  {
    file: "llm-usage.schema.json",
    title: "Usage of one call",
    description:
      "Tokens and cost of one model call, as the upstream reported them; with `estimated`, the reserved amounts.",
    schema: RunFigures.LlmUsage
  },
  {
    file: "llm-usage-total.schema.json",
    title: "Usage of a run",
    description: "Tokens and cost of all calls of a run together.",
    schema: RunFigures.LlmUsageTotal
  }
]

const folder = "docs/reference/schemas"

const generate = ({ description, schema, title }: Published) => {
  const document = Schema.toJsonSchemaDocument(schema, { onExcessProperty: "error" })
  assert.strictEqual(document.dialect, "draft-2020-12")
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title,
    description,
    ...document.schema,
    ...(Object.keys(document.definitions).length === 0 ? {} : { $defs: document.definitions })
  }
}

const compiled = new Map<string, ValidateFunction>()

/** Compiles a published schema with an independent validator. */
const validator = (file: string): ValidateFunction => {
  const known = compiled.get(file)
  if (known !== undefined) return known
  const made = new Ajv2020({ strict: true, allErrors: true }).compile(
    SourceTree.readJson(`${folder}/${file}`)
  )
  compiled.set(file, made)
  return made
}

const accepts = (file: string, values: ReadonlyArray<unknown>) => {
  const validate = validator(file)
  none(
    values
      // Through JSON, as a reader of the file gets it.
      .filter((value) => !validate(JSON.parse(JSON.stringify(value))))
      .map((value) => `${JSON.stringify(value)} ${JSON.stringify(validate.errors)}`),
    `${file} rejects these`
  )
}

const runId = "run-4f7k2m9q0x1z"

/** Makes the lines of an audit with these entries, as they would be on disk. */
const linesOf = (entries: ReadonlyArray<AuditEntry.AuditEntry>): ReadonlyArray<unknown> => {
  let head = AuditLog.genesis(runId)
  return entries.map((entry) => {
    const next = AuditLog.append(head, new Date(0).toISOString(), entry)
    head = next.head
    return JSON.parse(next.line)
  })
}

describe("published schemas", () => {
  for (const one of published)
    it(`${one.file} matches the code`, async () => {
      // After an intended change: pnpm vitest run test/architecture/schemas.test.ts -u
      await expect(`${JSON.stringify(generate(one), undefined, 2)}\n`).toMatchFileSnapshot(
        `../../${folder}/${one.file}`
      )
    })

  it("are the only files in their folder", () => {
    assert.deepStrictEqual(
      SourceTree.files(`${folder}/*`),
      published.map(({ file }) => `${folder}/${file}`).toSorted()
    )
  })

  it("include the configuration schema that the command prints", () => {
    assert.deepStrictEqual(
      SourceTree.readJson(`${folder}/configuration.schema.json`),
      Configuration.jsonSchema()
    )
  })

  it.prop("accept every audit", [Arbitrary.array(Arbitrary.schema(AuditEntry.AuditEntry))], ([entries]) =>
    accepts("audit-line.schema.json", linesOf(entries))
  )

  it.prop(
    "accept every usage",
    [Arbitrary.schema(RunFigures.LlmUsage), Arbitrary.schema(RunFigures.LlmUsageTotal)],
    ([usage, total]) => {
      accepts("llm-usage.schema.json", [usage])
      accepts("llm-usage-total.schema.json", [total])
    }
  )

  it("reject everything else", () => {
    const validate = validator("audit-line.schema.json")
    const [line] = linesOf([
      { type: "request.answered", requestId: "r", method: "GET", path: "/v1/models", status: 200 }
    ]) as [Record<string, unknown>]
    const { hash: _, ...unhashed } = line
    const wrong: ReadonlyArray<Record<string, unknown>> = [
      unhashed,
      { ...line, more: 1 },
      { ...line, seq: 0 },
      { ...line, status: "200" },
      { ...line, type: "request.danced" },
      { ...line, hash: String(line["hash"]).toUpperCase() }
    ]
    assert.isTrue(validate(line))
    for (const one of wrong) assert.isFalse(validate(one), JSON.stringify(one))
    assert.isFalse(validator("llm-usage.schema.json")({ inputTokens: -1 }))
    assert.isFalse(validator("llm-usage-total.schema.json")({}))
  })
})
