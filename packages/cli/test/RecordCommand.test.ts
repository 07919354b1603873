/**
 * Records on the command line: from the database, including records that earlier versions left in files, and without
 * creating anything if no run was ever started.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-records-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const cli = Effect.fnUntraced(function* (
  stateDirectory: string,
  argv: ReadonlyArray<string>,
  environment: Record<string, string> = {}
) {
  const memory = Output.makeMemory()
  const code = yield* Cli.main({
    argv,
    environment: { COGNI_STATE_DIR: stateDirectory, ...environment }
  }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
  return { code, stdout: memory.said.stdout, stderr: memory.said.stderr }
})

const runId = RunId.make("run-00000000000a")

/** Leaves a record in files, as an earlier version did. */
const leave = Effect.fnUntraced(function* (path: string) {
  const spec = yield* SandboxSpec.decode({ image: "i", argv: ["a"] })
  const { store } = FileRunStore.make({ directory: path, trafficOf: "unknown" })
  yield* Effect.scoped(
    Effect.flatMap(store.open(runId, spec), ({ owner, save }) =>
      save({
        runId,
        spec,
        owner,
        startedAt: new Date(1_000).toISOString(),
        endedAt: new Date(2_000).toISOString(),
        outcome: {
          status: "failed",
          reason: "TimedOut",
          code: "timeout",
          message: "m",
          output: {
            stdout: { text: "hello from a file\n", bytes: 18, truncated: false },
            stderr: { text: "", bytes: 0, truncated: false }
          }
        },
        timings: []
      })
    )
  )
})

describe("RecordCommand", () => {
  it.effect("reading creates nothing if no run was ever started", () =>
    Effect.gen(function* () {
      const path = join(yield* directory, "state")
      const { code, stderr } = yield* cli(path, ["ps", "--all"])
      assert.strictEqual(code, 0)
      assert.include(stderr, "no runs are recorded")
      assert.isFalse(existsSync(path))
    })
  )

  it.effect("records that an earlier version left in files are imported into the database", () =>
    Effect.gen(function* () {
      const path = yield* directory
      yield* leave(path)
      const [listed] = JSON.parse((yield* cli(path, ["ps", "--all", "-o", "json"])).stdout)
      assert.strictEqual(listed.runId, runId)
      assert.strictEqual(statSync(join(path, "cogni.db")).mode & 0o777, 0o600)
      rmSync(join(path, "runs"), { recursive: true })
      assert.strictEqual((yield* cli(path, ["logs", runId])).stdout, "hello from a file\n")
      assert.include((yield* cli(path, ["inspect", runId, "-o", "json"])).stdout, '"TimedOut"')
      assert.isFalse(readdirSync(path).includes("runs"))
    })
  )

  it.effect("such records are imported into the database that a URL names", () =>
    Effect.gen(function* () {
      const path = yield* directory
      yield* leave(path)
      const other = join(yield* directory, "other.db")
      const { stdout } = yield* cli(path, ["ps", "--all", "-o", "json"], { COGNI_DATABASE_URL: other })
      assert.strictEqual(JSON.parse(stdout)[0].runId, runId)
      assert.isFalse(existsSync(join(path, "cogni.db")))
    })
  )

  it.effect("an unusable database is reported in one line, with a remedy and without its password", () =>
    Effect.gen(function* () {
      const path = yield* directory
      writeFileSync(join(path, "cogni.db"), "this is a letter\n".repeat(100))
      const broken = yield* cli(path, ["ps"])
      assert.strictEqual(broken.code, 69)
      assert.match(
        broken.stderr,
        /^cogni-sandbox: .+ cannot keep records: the database .+cogni\.db .+ COGNI_STATE_DIR .+\n$/u
      )
      const url = "postgres://u:planted-7f3c@localhost/d?host=%2Fnowhere"
      const away = yield* cli(path, ["ps", "-o", "json"], { COGNI_DATABASE_URL: url })
      assert.strictEqual(away.code, 69)
      assert.isTrue(JSON.parse(away.stdout).error.isRetryable)
      assert.notInclude(away.stdout + away.stderr, "planted-7f3c")
      const typo = yield* cli(path, ["ps"], { COGNI_DATABASE_URL: "postgress://u:planted-7f3c@h/d" })
      assert.strictEqual(typo.code, 78)
      assert.notInclude(typo.stdout + typo.stderr, "planted-7f3c")
    })
  )
})
