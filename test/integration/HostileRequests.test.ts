/**
 * Hostile requests of an agent, byte by byte, and the part of them that reaches the upstream.
 *
 * Every row is written to the run's socket from inside the sandbox, without an HTTP library. A row that passes must
 * reach the upstream with exactly our headers and exactly its own path. A row that is refused must not reach it at all.
 * The last tests remove the defenses one by one, and check that these assertions then fail.
 */
import { assert, describe, layer, type Vitest } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import * as KeyInjection from "@cogni/sandbox-proxy/KeyInjection"
import * as NginxRun from "../harness/NginxRun.ts"
import { builderOf, chat, type Row, rowsOf } from "./hostileRequests.ts"

/** Silence after an answer, in which a request that is hidden in another would get one too, on a busy machine. */
const idleMillis = 200

/** Silence after which an answer counts as one that never arrives. */
const silentMillis = 3000

const body = '{"model":"m","messages":[]}'
const http = builderOf(body)
const rows = rowsOf(body)

/** Headers that the upstream must receive: exactly these, each name once. */
const expectedHeaders = [
  "accept",
  "accept-encoding",
  "authorization",
  "connection",
  "content-type",
  "host",
  "x-litellm-customer-id",
  "x-litellm-end-user-id",
  "x-litellm-spend-logs-metadata",
  "x-request-id"
]

/** Headers for the length of a body. nginx chooses one, depending on how much of the body it has received. */
const framing = new Set(["content-length", "transfer-encoding"])

interface Outcome {
  readonly run: NginxRun.NginxRun["Service"]
  readonly answer: NginxRun.Answer
  readonly received: ReadonlyArray<Received>
}

type Received = Effect.Success<NginxRun.NginxRun["Service"]["upstream"]["received"]>[number]

const requestIdOf = ({ headers }: Received) =>
  headers.find(([name]) => name.toLowerCase() === "x-request-id")?.[1]

/**
 * Sends the rows, and returns the upstream requests of each. A request that matches no answer counts for every row.
 */
const sendRows = (all: ReadonlyArray<Row>, options?: NginxRun.SendOptions) =>
  Effect.gen(function* () {
    const run = yield* NginxRun.NginxRun
    const before = (yield* run.upstream.received).length
    const answers = yield* run.sendAll(
      all.map(([, bytes]) => bytes),
      { idleMillis, ...options }
    )
    const received = (yield* run.upstream.received).slice(before)
    const idsOf = answers.map(({ text }) => /^X-Request-Id: (\S+)/mu.exec(text)?.[1])
    return answers.map((answer, index): Outcome => ({
      run,
      answer,
      received: received.filter((request) => {
        const id = requestIdOf(request)
        return id === idsOf[index] || !idsOf.includes(id)
      })
    }))
  })

const checkRow = ([, , expected, more = {}]: Row, { answer, received, run }: Outcome) => {
  const refused =
    expected === "refused" || (more.statuses !== undefined && answer.status !== 200 && received.length === 0)
  if (refused) {
    assert.deepStrictEqual(received, [])
    if (more.statuses !== undefined) assert.include(more.statuses, answer.status)
    else assert.isTrue(answer.status === undefined || answer.status >= 400, `answered ${answer.status}`)
    // The error has OpenAI's shape. It is not a page of nginx.
    if (answer.status !== undefined) assert.notInclude(answer.text, "<html>")
    return
  }
  assert.strictEqual(received.length, 1, answer.text)
  const [{ headers, method, target }] = received as [(typeof received)[0]]
  assert.strictEqual(method, more.method ?? "POST")
  assert.strictEqual(target, more.target ?? chat)
  const names = headers.map(([name]) => name.toLowerCase())
  assert.deepStrictEqual(names.filter((name) => !framing.has(name)).toSorted(), expectedHeaders)
  assert.strictEqual(names.filter((name) => framing.has(name)).length, method === "GET" ? 0 : 1)
  const values = new Map(
    headers.map(([name, value]) => [name.toLowerCase(), Buffer.from(value, "latin1").toString("utf8")])
  )
  assert.strictEqual(values.get("authorization"), `Bearer ${NginxRun.key}`)
  assert.strictEqual(values.get("x-litellm-customer-id"), NginxRun.identity.billingAccountId)
  assert.strictEqual(values.get("x-litellm-end-user-id"), NginxRun.identity.billingAccountId)
  assert.strictEqual(
    values.get("x-litellm-spend-logs-metadata"),
    KeyInjection.spendMetadata(run.runId, NginxRun.identity)
  )
  assert.strictEqual(values.get("host"), new URL(run.upstream.url).host)
  assert.strictEqual(values.get("accept"), "*/*")
  assert.strictEqual(values.get("accept-encoding"), "identity")
  assert.strictEqual(values.get("connection"), "close")
  assert.strictEqual(values.get("content-type"), "application/json")
  assert.match(values.get("x-request-id") ?? "", /^[0-9a-f]{32}$/u)
}

/** Reports whether the answer has headers to identify it by. HTTP/0.9 has none. */
const isNamed = ([, bytes]: Row) => !bytes.startsWith("GET /v1/models\r\n")

/** Sends all rows at once, because entering the sandbox is slow. */
const Outcomes = Context.Service<"Outcomes", ReadonlyMap<Row, Outcome>>("test/Outcomes")

const outcomes = (proxy: "nginx" | "nginx-shared") =>
  Layer.effect(
    Outcomes,
    Effect.gen(function* () {
      const named = rows.filter(isNamed)
      const found = yield* sendRows(named)
      const rest = rows.filter((row) => !isNamed(row))
      const others = yield* Effect.forEach(rest, (row) =>
        Effect.map(sendRows([row]), ([outcome]) => outcome!)
      )
      return new Map([...named, ...rest].map((row, index) => [row, [...found, ...others][index]!]))
    })
  ).pipe(Layer.provideMerge(NginxRun.layer({ proxy })))

const hostile = (it: Vitest.MethodsNonLive<Layer.Success<ReturnType<typeof outcomes>>>): void => {
  for (const row of rows) {
    it.effect(`${row[2] === "passes" ? "harmless" : "refused"}: ${row[0].replaceAll(/[^ -~]/gu, "?")}`, () =>
      Effect.map(Outcomes, (all) => checkRow(row, all.get(row)!))
    )
  }

  it.effect("a request hidden in the body of another is not executed", () =>
    Effect.gen(function* () {
      const run = yield* NginxRun.NginxRun
      const before = (yield* run.upstream.received).length
      yield* run.send(http({ body: http({ target: "/key/generate" }) }), { idleMillis })
      const received = (yield* run.upstream.received).slice(before)
      assert.deepStrictEqual(
        received.map(({ target }) => target),
        [chat]
      )
    })
  )

  it.effect("requests on one connection are checked separately", () =>
    Effect.gen(function* () {
      const run = yield* NginxRun.NginxRun
      const before = (yield* run.upstream.received).length
      const answer = yield* run.send(
        `${http()}${http({ target: "/key/generate" })}${http({ headers: ["x-litellm-customer-id: evil"] })}`,
        { answers: 3, idleMillis }
      )
      const received = (yield* run.upstream.received).slice(before)
      assert.deepStrictEqual(
        received.map(({ target }) => target),
        [chat, chat]
      )
      assert.notInclude(JSON.stringify(received), "evil")
      assert.match(answer.text, /200 OK[\s\S]*403 Forbidden[\s\S]*200 OK/u)
    })
  )

  it.effect("forwards only the accept header and the API version of a client", () =>
    Effect.gen(function* () {
      const run = yield* NginxRun.NginxRun
      yield* run.send(
        http({
          target: "/v1/messages",
          headers: ["Accept: text/event-stream", "anthropic-version: 2023-06-01"]
        })
      )
      const headers = new Map((yield* run.upstream.received).at(-1)!.headers)
      assert.strictEqual(headers.get("accept"), "text/event-stream")
      assert.strictEqual(headers.get("anthropic-version"), "2023-06-01")
    })
  )
}

layer(outcomes("nginx"), { excludeTestServices: true })("Hostile requests", hostile)
layer(outcomes("nginx-shared"), { excludeTestServices: true })(
  "Hostile requests, to an nginx for many runs",
  hostile
)

/** Defenses, each with the row that must fail without it. */
const defences: ReadonlyArray<readonly [defence: string, tamper: (config: string) => string, row: string]> = [
  [
    "proxy_pass_request_headers off",
    (config) => config.replace("proxy_pass_request_headers off;", "proxy_pass_request_headers on;"),
    'header "Cookie: session=evil"'
  ],
  [
    "our own customer header",
    (config) =>
      config
        .replace("proxy_pass_request_headers off;", "proxy_pass_request_headers on;")
        .replace(/proxy_set_header x-litellm-customer-id [^;]*;/u, ""),
    'header "x-litellm-customer-id: evil"'
  ],
  [
    "exact locations",
    (config) =>
      config.replace(/location \/ \{[^}]*/u, "location / { proxy_pass http://unix:/upstream/upstream.sock;"),
    "path /key/generate"
  ],
  [
    "the check of the raw path",
    (config) => config.replaceAll(/if \(\$target_path[^}]*\}/gu, ""),
    "path /v1/%63hat/completions"
  ],
  [
    "the check of the method",
    (config) => config.replaceAll(/if \(\$request_method[^}]*\}/gu, ""),
    "DELETE on a POST path"
  ],
  ["the removal of queries", (config) => config.replaceAll(/set \$args [^;]*;/gu, ""), "a query"],
  [
    "the limit on bodies",
    (config) => config.replace(/client_max_body_size \d+;/u, "client_max_body_size 0;"),
    "a body over the limit"
  ]
]

/** The same defenses of an nginx for many runs, where another directive provides them. */
const ofMany: Readonly<Record<string, (config: string) => string>> = {
  "exact locations": (config) =>
    config.replace(
      /location \/ \{[^}]*/u,
      'location / { access_by_lua "require(\\"cogni\\").pass()"; proxy_pass http://unix:/upstream/$cogni_place.sock;'
    )
}

// Each waits for an answer that does not come, and has a proxy of its own.
describe.concurrent("Hostile requests, with one defense less", () => {
  for (const proxy of ["nginx", "nginx-shared"] as const) {
    const where = proxy === "nginx" ? "" : ", in an nginx for many runs"
    for (const [defence, tamperOne, name] of defences) {
      const tamper = proxy === "nginx" ? tamperOne : (ofMany[defence] ?? tamperOne)
      layer(NginxRun.layer({ proxy, tamper }), { excludeTestServices: true })(
        `Without ${defence}${where}`,
        (it) => {
          it.effect(`the row ${JSON.stringify(name)} fails`, () =>
            Effect.gen(function* () {
              const row = rows.find(([candidate]) => candidate === name)
              assert.isDefined(row)
              // An answer may never arrive without the defense, so the request is cut.
              const [outcome] = yield* sendRows([row!], { cut: true, idleMillis: silentMillis })
              assert.throws(() => checkRow(row!, outcome!))
            })
          )
        }
      )
    }
  }
})
