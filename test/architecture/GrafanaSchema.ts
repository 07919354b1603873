/** The JSON schema of the dashboards that we ship, generated from the types of `@grafana/schema`. */
import { Ajv, type SchemaObject } from "ajv"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { createGenerator } from "ts-json-schema-generator"

const path = fileURLToPath(new URL("GrafanaTypes.ts", import.meta.url))
const type = "ShippedDashboard"

/** The generator's own compiler cannot read our configuration, which is for a later one. */
const compilerOptions = {
  target: "ES2024",
  module: "NodeNext",
  moduleResolution: "NodeNext",
  skipLibCheck: true,
  strict: true,
  types: []
}

/** Returns a check that describes each problem of a dashboard. Unknown fields are problems. Takes seconds. */
export const make = (): ((dashboard: unknown) => ReadonlyArray<string>) => {
  const directory = mkdtempSync(join(tmpdir(), "cogni-grafana-schema-"))
  try {
    const tsconfig = join(directory, "tsconfig.json")
    writeFileSync(tsconfig, JSON.stringify({ compilerOptions, files: [path] }))
    const schema: object = createGenerator({
      path,
      type,
      tsconfig,
      skipTypeCheck: true,
      additionalProperties: false
    }).createSchema(type)
    const validate = new Ajv({ strict: false, allErrors: true }).compile(schema as SchemaObject)
    return (dashboard) =>
      validate(dashboard)
        ? []
        : (validate.errors ?? []).map(
            ({ instancePath, message, params }) => `${instancePath}: ${message} ${JSON.stringify(params)}`
          )
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}
