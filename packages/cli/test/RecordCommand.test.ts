/**
 * Records on the command line: from the database, including records that earlier versions left in files, and without
 * creating anything if no run was ever started.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Asciicast from "../../../test/harness/Asciicast.ts"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as FileRunJournal from "@cogni/sandbox-docker/FileRunJournal"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
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
  const spec = yield* SpecDecoder.decode({ image: "i", argv: ["a"] })
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

  it.effect("a recording goes to standard output or to a file, and only the host of the run has it", () =>
    Effect.gen(function* () {
      const path = yield* directory
      yield* leave(path)
      const none = yield* cli(path, ["logs", runId, "-o", "asciicast"])
      assert.strictEqual(none.code, 66)
      assert.match(none.stderr, /no recording of run-00000000000a is stored here .+ --output asciicast\n$/u)
      const journal = FileRunJournal.make({ directory: path })
      yield* journal.write(runId, { type: "run.started" })
      yield* journal.write(runId, {
        type: "output.written",
        channel: "stderr",
        from: 0,
        text: "\u001b[1mhello\n"
      })
      yield* journal.close(runId)
      const printed = yield* cli(path, ["logs", runId, "-o", "asciicast"])
      assert.deepStrictEqual([printed.code, printed.stderr], [0, ""])
      const cast = Asciicast.parse(printed.stdout)
      assert.strictEqual(Asciicast.outputOf(cast), "\u001b[1mhello\n")
      // The process that wrote the journal did not live to write the end, which is in the record.
      assert.deepStrictEqual(Asciicast.markersOf(cast), ["run started", "run ended: TimedOut"])
      assert.strictEqual((yield* cli(path, ["logs", "-f", runId, "-o", "asciicast"])).stdout, printed.stdout)
      const file = join(path, "run.cast")
      const saved = yield* cli(path, ["logs", runId, "-o", "asciicast", "--file", file])
      assert.deepStrictEqual([saved.code, saved.stdout, saved.stderr], [0, "", `· recording in ${file}\n`])
      assert.strictEqual(readFileSync(file, "utf8"), printed.stdout)
      const link = join(path, "link.cast")
      symlinkSync(file, link)
      const refused = yield* cli(path, ["logs", runId, "-o", "asciicast", "--file", link])
      assert.strictEqual(refused.code, 65)
      assert.include(refused.stderr, "is a symbolic link")
    })
  )

  it.effect("a recording has both channels, and no other output goes to a file", () =>
    Effect.gen(function* () {
      const path = yield* directory
      for (const argv of [
        ["logs", runId, "--stderr", "-o", "asciicast"],
        ["logs", runId, "--file", join(path, "run.txt")]
      ])
        assert.strictEqual((yield* cli(path, argv)).code, 64, argv.join(" "))
      assert.isFalse(existsSync(join(path, "run.txt")))
    })
  )
})
