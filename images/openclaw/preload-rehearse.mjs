/**
 * Calls functions of OpenClaw in a thread that has loaded its modules, so that they are compiled, and what they keep is
 * made, before a run. They get nothing but texts of OpenClaw and of the image build, and databases in memory.
 */
import { DatabaseSync } from "node:sqlite"

/** Returns a function that a module exports. Names of its file and of the export contain hashes of the version. */
export const functionOf = async (modules, file, name) => {
  for (const url of modules.filter((url) => url.includes(`/${file}`))) {
    const found = Object.values(await import(url)).find(
      (one) => typeof one === "function" && one.name === name
    )
    if (found !== undefined) return found
  }
  throw new Error(`this version of OpenClaw has no ${name} in ${file}`)
}

/**
 * Makes what OpenClaw keeps of the schemas of its databases. It compares each database that it opens with its schema:
 * it reads the schema out of a database in memory, once in each thread.
 */
export const rehearseSchemas = async (modules, schemas) => {
  if (schemas.length === 0) return
  const migrate = await functionOf(modules, "sqlite-strict-", "migrateSqliteSchemaToStrict")
  const repair = await functionOf(modules, "openclaw-state-db-", "repairCanonicalSqliteIndexes")
  const compare = await functionOf(modules, "sqlite-schema-contract-", "collectSqliteSchemaIssues")
  for (const schema of schemas) {
    const database = new DatabaseSync(":memory:")
    database.exec(schema)
    migrate(database, schema)
    repair(database, "rehearsal", schema, { verifyPhysicalIntegrity: false })
    const issues = compare(database, schema)
    database.close()
    if (issues.length > 0) throw new Error(`OpenClaw does not know its own schema: ${JSON.stringify(issues)}`)
  }
}

/** Makes the checks of a configuration. They are made for each part of it at its first use. */
export const rehearseConfiguration = async (modules, configuration) => {
  const validate = await functionOf(modules, "validation-core-", "validateConfigObjectRaw")
  const { issues, ok } = validate(configuration)
  if (!ok) throw new Error(`OpenClaw refuses the configuration of the image build: ${JSON.stringify(issues)}`)
}

/** Loads OpenClaw's library of native code, if there is one for this machine. */
export const loadNative = async (modules) => (await functionOf(modules, "native.js", "getNativeBinding"))()
