/**
 * Prisma's query engine as WASM, from the npm package of Prisma's client, over node-postgres.
 *
 * It is the same engine as the binary that LiteLLM's Python client downloads, from a package registry instead of a host
 * of its own.
 */
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"

const require = createRequire(import.meta.url)

/** Methods of the engine. All texts are JSON. */
export interface WasmEngine {
  readonly connect: (trace: string) => Promise<void>
  readonly query: (query: string, trace: string, transaction?: string) => Promise<string>
  readonly startTransaction: (options: string, trace: string) => Promise<string>
  readonly commitTransaction: (id: string, trace: string) => Promise<string>
  readonly rollbackTransaction: (id: string, trace: string) => Promise<string>
}

interface EngineModule {
  readonly __wbg_set_wasm: (exports: object) => void
  readonly QueryEngine: new (
    config: object,
    log: (line: string) => void,
    adapter: object | undefined
  ) => WasmEngine
}

/** The part of `WebAssembly` that is used: the types of this repository have no browser. */
const { WebAssembly: Wasm } = globalThis as unknown as {
  WebAssembly: {
    Module: new (bytes: Uint8Array) => object
    Instance: new (module: object, imports: object) => { readonly exports: object }
  }
}

interface FieldDescription {
  dataTypeID: number
}

/** PostgreSQL's types that the driver adapter does not know, by the type that it reads them as. */
const knownTypes: Readonly<Record<number, number>> = {
  19: 25, // name: text
  24: 25, // regproc: text
  27: 25, // tid: text
  28: 20, // xid: int8
  705: 25, // unknown: text
  1003: 1009, // name[]: text[]
  2205: 25, // regclass: text
  2206: 25, // regtype: text
  2278: 25, // void: text
  3220: 25, // pg_lsn: text
  4089: 25 // regnamespace: text
}

/** Makes node-postgres describe columns of these types as the known ones. */
const readUnknownTypes = () => {
  const { prototype } = require("pg/lib/result") as {
    prototype: { addFields: (fields: ReadonlyArray<FieldDescription>) => void }
  }
  const { addFields } = prototype
  prototype.addFields = function (fields) {
    for (const field of fields) field.dataTypeID = knownTypes[field.dataTypeID] ?? field.dataTypeID
    return addFields.call(this, fields)
  }
}

/** Parameters of a connection URL that only Prisma understands. */
const prismaParameters = [
  "schema",
  "connection_limit",
  "pool_timeout",
  "pgbouncer",
  "socket_timeout",
  "connect_timeout",
  "statement_cache_size"
]

const connectionsDefault = 10

const adapterOf = (databaseUrl: string): object | undefined => {
  const { Pool } = require("pg") as {
    Pool: new (options: object) => { on: (event: "error", hear: (error: Error) => void) => void }
  }
  const { PrismaPg } = require("@prisma/adapter-pg") as {
    PrismaPg: new (pool: object, options: object) => object
  }
  const { bindAdapter } = require("@prisma/driver-adapter-utils") as {
    bindAdapter: (adapter: object) => object | undefined
  }
  const url = new URL(databaseUrl)
  const schema = url.searchParams.get("schema") ?? "public"
  const max = Number(url.searchParams.get("connection_limit") ?? connectionsDefault)
  for (const name of prismaParameters) url.searchParams.delete(name)
  const pool = new Pool({ connectionString: url.href, max })
  // The pool opens new connections by itself; without a listener, a lost one would end the process.
  pool.on("error", ({ message }) => console.error(`a connection was lost: ${message}`))
  return bindAdapter(new PrismaPg(pool, { schema }))
}

export const make = (options: { readonly databaseUrl: string; readonly datamodel: string }): WasmEngine => {
  readUnknownTypes()
  const path = require.resolve("@prisma/client/runtime/query_engine_bg.postgresql.js")
  const runtime = require(path) as EngineModule
  const wasm = new Wasm.Module(readFileSync(path.replace(/\.js$/u, ".wasm")))
  runtime.__wbg_set_wasm(new Wasm.Instance(wasm, { "./query_engine_bg.js": runtime }).exports)
  const config = {
    datamodel: options.datamodel,
    logLevel: "error",
    logQueries: false,
    env: {},
    ignoreEnvVarErrors: true,
    enableTracing: false
  }
  return new runtime.QueryEngine(config, () => undefined, adapterOf(options.databaseUrl))
}
