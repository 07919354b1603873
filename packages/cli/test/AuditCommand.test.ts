/** `audit` on the state directory of a run: exit codes, and the files it reads. */
import { assert, describe, it } from "@effect/vitest"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import type { Outcome, RunRecord } from "@cogni/sandbox-core/RunRecord"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import type { AuditEntry } from "@cogni/sandbox-proxy/AuditEntry"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { record, runId } from "./RunResults.ts"

const entries: ReadonlyArray<AuditEntry> = [
  {
    type: "run.opened",
    runId,
    proxy: "gateway",
    upstream: "http://127.0.0.1:4000",
    carrier: "host directory",
    models: ["m"],
    identity: { billingAccountId: "acct-42", attempt: 0 },
    tools: [],
    canaries: "off"
  },
  {
    type: "request.refused",
    status: 404,
    code: "path_not_allowed",
    detail: "no",
    path: "/\u001b[2J\nx\u202e"
  },
  {
    type: "run.closed",
    usage: {
      calls: 0,
      inputTokens: 0,
      outputTokens: 0,
      cacheReadTokens: 0,
      cacheWriteTokens: 0,
      callsWithoutUsage: 0,
      callsWithoutCost: 0
    },
    callsTotal: 0,
    toolCallsTotal: 0,
    refusedTotal: 1
  }
]

let head = AuditLog.genesis(runId)
const lines = entries.map((entry) => {
  const next = AuditLog.append(head, "2026-01-01T00:00:00.000Z", entry)
  head = next.head
  return next.line
})

const llm = {
  proxy: "gateway (host directory)",
  upstream: "http://127.0.0.1:4000",
  calls: [],
  callsTotal: 0,
  unreadableRows: 0,
  injectedHeaders: [],
  auditHead: head
}
const access = {
  model: "m",
  models: {},
  identity: { billingAccountId: "a", attempt: 0 },
  unknownFields: "drop",
  caller: "sandbox"
} as const
const closed: Outcome = { status: "closed" }

/** A state directory with one run in it. */
const state = Effect.fnUntraced(function* (options: {
  readonly audit?: string | undefined
  readonly record?: Partial<RunRecord>
  readonly running?: boolean
  readonly sealed?: boolean
}) {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "audit-command-"))),
    (made) => Effect.sync(() => fs.rmSync(made, { recursive: true, force: true }))
  )
  const spec = options.sealed === true ? record().spec : { ...record().spec, llm: access }
  const opened = yield* RunStore.use((runs) => runs.open(runId, spec)).pipe(
    Effect.provide(FileRunStore.layer({ directory, trafficOf: "unknown" }))
  )
  if (options.running !== true)
    yield* opened.save({ ...record({ spec, outcome: closed, llm }), owner: opened.owner, ...options.record })
  const audit = path.join(opened.directory!, "audit")
  fs.mkdirSync(audit, { mode: 0o700 })
  if (options.audit !== undefined) fs.writeFileSync(path.join(audit, "audit.jsonl"), options.audit)
  const cli = Effect.fnUntraced(function* (...argv: ReadonlyArray<string>) {
    const memory = Output.makeMemory()
    const code = yield* Cli.main({
      argv: ["audit", ...argv],
      environment: { COGNI_STATE_DIR: directory }
    }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
    return { code, stdout: memory.said.stdout, stderr: memory.said.stderr }
  })
  return { audit, cli, directory }
})

const whole = lines.join("")

describe("audit verify", () => {
  it.effect("exits with 0 for an intact audit, for people and for scripts", () =>
    Effect.gen(function* () {
      const { cli } = yield* state({ audit: whole })
      assert.deepStrictEqual(yield* cli("verify", runId), {
        code: 0,
        stdout: `✓ the audit of ${runId} is intact: 3 entries, complete\n  head ${head.hash}, which matches the record\n`,
        stderr: ""
      })
      const said = yield* cli("verify", runId.slice(0, 8), "--output", "json")
      assert.strictEqual(said.code, 0)
      assert.deepStrictEqual(JSON.parse(said.stdout), {
        runId,
        ok: true,
        head,
        live: false,
        closed: true,
        headKnown: true,
        unfinishedBytes: 0,
        notes: []
      })
    })
  )

  it.effect("exits with 1 for a changed audit, and reports the position", () =>
    Effect.gen(function* () {
      const { cli } = yield* state({ audit: whole.replace("path_not_allowed", "path_now_allowed") })
      const offset = lines[0]!.length
      const said = yield* cli("verify", runId)
      assert.strictEqual(said.code, 1)
      assert.match(said.stdout, new RegExp(`^✗ the audit of ${runId} is not intact\n`, "u"))
      assert.include(said.stdout, `changed at line 2 (byte ${offset}): entry 2 was changed`)
      assert.include(said.stdout, "1 entry before it is intact")
      const json = JSON.parse((yield* cli("verify", runId, "-o", "json")).stdout)
      assert.containSubset(json, { runId, ok: false, problem: { kind: "changed", line: 2, offset } })
    })
  )

  it.effect("exits with 1 for a truncated audit, even if the record has no head", () =>
    Effect.gen(function* () {
      const { cli } = yield* state({ audit: lines.slice(0, 2).join("") })
      assert.include((yield* cli("verify", runId)).stdout, "truncated at line 3")
      const { auditHead: _, ...headless } = llm
      const second = yield* state({ audit: lines.slice(0, 2).join(""), record: { llm: headless } })
      assert.include((yield* second.cli("verify", runId)).stdout, "truncated at line 3")
      assert.strictEqual((yield* second.cli("verify", runId)).code, 1)
    })
  )

  it.effect("verifies the audit so far of an active run, and notes what it leaves open", () =>
    Effect.gen(function* () {
      const { cli } = yield* state({ running: true, audit: `${lines[0]}${lines[1]!.slice(0, 30)}` })
      const said = yield* cli("verify", runId)
      assert.strictEqual(said.code, 0)
      assert.include(said.stdout, "is intact: 1 entry\n")
      assert.include(said.stdout, "! the run is still active")
      assert.include(said.stdout, "! 30 bytes of an incomplete line at the end")
      assert.include(said.stdout, "! the record has no head")
      const json = JSON.parse((yield* cli("verify", runId, "-o", "json")).stdout)
      assert.containSubset(json, {
        ok: true,
        live: true,
        closed: false,
        headKnown: false,
        unfinishedBytes: 30
      })

      const changed = yield* state({ running: true, audit: `${lines[0]!.replace("acct", "acme")}` })
      assert.strictEqual((yield* changed.cli("verify", runId)).code, 1)
    })
  )

  it.effect("accepts a missing end if the process of the run died", () =>
    Effect.gen(function* () {
      // Such a record has no head either.
      const { auditHead: _, ...headless } = llm
      const { cli } = yield* state({
        audit: lines.slice(0, 2).join(""),
        record: { outcome: { status: "abandoned" }, llm: headless }
      })
      const said = yield* cli("verify", runId)
      assert.strictEqual(said.code, 0, said.stdout)
      assert.include(said.stdout, "! the run's process died")
    })
  )

  it.effect("detects a removed audit, and a directory or a link in its place", () =>
    Effect.gen(function* () {
      const { audit, cli, directory } = yield* state({})
      const gone = yield* cli("verify", runId)
      assert.strictEqual(gone.code, 1)
      assert.include(
        gone.stdout,
        "removed at line 1 (byte 0): the file is missing, but the record counts 3 entries"
      )

      fs.mkdirSync(path.join(audit, "audit.jsonl"))
      assert.strictEqual((yield* cli("verify", runId)).code, 1)
      fs.rmdirSync(path.join(audit, "audit.jsonl"))
      // An intact audit, but not in the run's own directory.
      const name = path.join(audit, "audit.jsonl")
      fs.writeFileSync(path.join(directory, "elsewhere"), whole)
      fs.symlinkSync(path.join(directory, "elsewhere"), name)
      const link = yield* cli("verify", runId)
      assert.strictEqual(link.code, 1)
      assert.include(link.stdout, "its path is not a file in the run's own directory, so it was not read")
      fs.rmSync(audit, { recursive: true })
      fs.mkdirSync(path.join(directory, "other"))
      fs.writeFileSync(path.join(directory, "other", "audit.jsonl"), whole)
      fs.symlinkSync(path.join(directory, "other"), audit)
      assert.strictEqual((yield* cli("verify", runId)).code, 1)
    })
  )

  it.effect("reports that the access log of nginx cannot be verified", () =>
    Effect.gen(function* () {
      const nginx = { llm: { ...record({}).llm, ...llm, proxy: "nginx" } }
      const { auditHead: _, ...headless } = nginx.llm
      const { cli } = yield* state({ record: { llm: headless } })
      for (const command of ["verify", "show"]) {
        const said = yield* cli(command, runId)
        assert.strictEqual(said.code, 66)
        assert.include(said.stderr, "was nginx: its audit is an access log, which cannot be verified")
      }
      const running = yield* state({ running: true })
      assert.include((yield* running.cli("verify", runId)).stderr, "there is no audit of")
      fs.writeFileSync(path.join(running.audit, "access.log"), "")
      assert.include((yield* running.cli("verify", runId)).stderr, "was nginx")
    })
  )

  it.effect("exits with 66 for an unknown run, and for a run without egress", () =>
    Effect.gen(function* () {
      const { cli } = yield* state({ running: true, sealed: true })
      assert.containSubset(yield* cli("verify", runId), { code: 66 })
      assert.include((yield* cli("verify", runId)).stderr, "had no egress")
      const none = yield* cli("verify", "run-none")
      assert.strictEqual(none.code, 66)
      assert.include(none.stderr, "there is no run run-none")
      assert.strictEqual((yield* cli("show", "run-none")).code, 66)
    })
  )
})

describe("audit show", () => {
  it.effect("prints one line per entry, with control characters made visible", () =>
    Effect.gen(function* () {
      const { cli } = yield* state({ audit: whole })
      const said = yield* cli("show", runId)
      assert.strictEqual(said.code, 0)
      assert.strictEqual(said.stderr, "")
      assert.strictEqual(
        said.stdout,
        [
          '  1  2026-01-01T00:00:00.000Z  run.opened  upstream=http://127.0.0.1:4000  carrier="host directory"  models=m  account=acct-42  canaries=off',
          '  2  2026-01-01T00:00:00.000Z  request.refused  404  path_not_allowed  path="/^[[2J x\\\\u{202e}"  detail=no',
          "  3  2026-01-01T00:00:00.000Z  run.closed  calls=0  refused=1  tools=0  in=0  out=0",
          ""
        ].join("\n")
      )
    })
  )

  it.effect("marks the first changed entry and all after it, and exits with 1", () =>
    Effect.gen(function* () {
      const broken = [
        lines[0],
        "\u001b]0;x\u0007\n",
        lines[1],
        lines[2]!.replace('"refusedTotal":1', '"refusedTotal":0')
      ]
      const { cli } = yield* state({ audit: broken.join("") })
      const said = yield* cli("show", runId)
      assert.strictEqual(said.code, 1)
      assert.deepStrictEqual(
        said.stdout.split("\n").map((line) => line.slice(0, 18)),
        ["  1  2026-01-01T00", "! 2 cannot be read", "! 2  2026-01-01T00", "! 3  2026-01-01T00", ""]
      )
      assert.match(
        said.stderr,
        /^cogni-sandbox: the audit of \S+ is not intact: inserted at line 2 \(byte \d+\): [^\n]+\n$/u
      )
    })
  )
})
