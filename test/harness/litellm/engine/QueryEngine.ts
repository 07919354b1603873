#!/usr/bin/env node
/**
 * A stand-in for the binary of Prisma's query engine, for tests. It speaks the binary's HTTP protocol to LiteLLM's
 * Python client.
 */
import { createServer, type IncomingMessage } from "node:http"
import { readFileSync } from "node:fs"
import { text } from "node:stream/consumers"
import * as PrismaQuery from "./PrismaQuery.ts"
import * as WasmEngine from "./WasmEngine.ts"

/** Version of the engine that the Python client 0.11 expects. */
const version = "393aa359c9ad4a4bb28630fb5613f9c281cde053"

const trace = "{}"

interface Batch {
  readonly batch: ReadonlyArray<{ readonly query: string }>
  readonly transaction?: boolean
  readonly isolationLevel?: string
}

interface Answer {
  readonly data?: Readonly<Record<string, unknown>>
  readonly errors?: unknown
}

const serve = (engine: WasmEngine.WasmEngine, models: PrismaQuery.Models) => {
  const told = ({ data, errors }: Answer, alias: string) =>
    errors === undefined
      ? { data: { [alias]: PrismaQuery.answerOf(Object.values(data ?? {})[0]) } }
      : { errors }

  const query = async (body: { readonly query: string } | Batch, transaction: string | undefined) => {
    if (!("batch" in body)) {
      const { alias, query } = PrismaQuery.translate(body.query, models)
      return told(JSON.parse(await engine.query(JSON.stringify(query), trace, transaction)), alias)
    }
    const parts = body.batch.map((part) => PrismaQuery.translate(part.query, models))
    const batch = {
      batch: parts.map(({ query }) => query),
      ...(body.transaction === true ? { transaction: { isolationLevel: body.isolationLevel } } : {})
    }
    const answer = JSON.parse(await engine.query(JSON.stringify(batch), trace, transaction))
    return answer.batchResult === undefined
      ? answer
      : { batchResult: answer.batchResult.map((one: Answer, at: number) => told(one, parts[at]!.alias)) }
  }

  const transaction = async (id: string, end: string | undefined, body: string) => {
    if (id === "start") return JSON.parse(await engine.startTransaction(body, trace))
    const ended = await (end === "commit"
      ? engine.commitTransaction(id, trace)
      : engine.rollbackTransaction(id, trace))
    return ended === undefined || ended === "" ? {} : JSON.parse(ended)
  }

  return async (request: IncomingMessage): Promise<unknown> => {
    const body = await text(request)
    const path = (request.url ?? "/").split("?")[0]!
    if (path === "/status") return { status: "ok" }
    if (path === "/metrics") return { counters: [], gauges: [], histograms: [] }
    const [, id, end] = /^\/transaction\/([^/]+)(?:\/(commit|rollback))?$/u.exec(path) ?? []
    if (id !== undefined) return transaction(id, end, body)
    const header = request.headers["x-transaction-id"]
    return query(JSON.parse(body), typeof header === "string" ? header : undefined)
  }
}

const run = async () => {
  const port = Number(process.argv[process.argv.indexOf("-p") + 1])
  const datamodel = readFileSync(process.env["PRISMA_DML_PATH"]!, "utf8")
  const overwritten = JSON.parse(process.env["OVERWRITE_DATASOURCES"] ?? "[]") as ReadonlyArray<{
    readonly url?: string
  }>
  const databaseUrl = overwritten[0]?.url ?? process.env["DATABASE_URL"]!
  const engine = WasmEngine.make({ databaseUrl, datamodel })
  await engine.connect(trace)
  const handle = serve(engine, PrismaQuery.modelsOf(datamodel))
  const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    const answer = (status: number, value: unknown) => {
      response.writeHead(status, { "content-type": "application/json" })
      response.end(JSON.stringify(value))
    }
    handle(request).then(
      (value) => answer(200, value),
      (error: unknown) => {
        console.error(request.url, error)
        answer(500, { errors: [{ error: String(error) }] })
      }
    )
  })
  server.listen(port, "localhost")
}

if (process.argv.includes("--version")) {
  console.log(`query-engine ${version}`)
} else {
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(0))
  await run()
}
