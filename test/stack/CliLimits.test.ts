/** Broken limits on the command line: the exit code, the flag that raises the limit, and no leftovers. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as CliProcess from "../harness/CliProcess.ts"
import { complaint } from "../harness/CliWorld.ts"

const suite = layer(CliProcess.layer, { excludeTestServices: true })

const limits: ReadonlyArray<
  readonly [what: string, argv: ReadonlyArray<string>, code: number, reason: string, flag: string]
> = [
  ["time", ["--timeout", "1s", "--", "sleep", "60"], 124, "TimedOut", "--timeout"],
  [
    "time, for a process that ignores SIGTERM",
    ["--timeout", "1s", "--grace", "1s", "--", "sh", "-c", 'trap "" TERM; while :; do sleep 1; done'],
    124,
    "TimedOut",
    "--timeout"
  ],
  [
    "memory",
    ["--memory", "32m", "--", "sh", "-c", "head -c 400m /dev/zero | tail"],
    137,
    "OomKilled",
    "--memory"
  ],
  [
    "processes",
    [
      "--processes",
      "16",
      "--timeout",
      "20s",
      "--",
      // bash retries a refused fork for a while; sh gives up at once.
      "bash",
      "-c",
      "for i in $(seq 100); do sleep 5 & done; wait"
    ],
    121,
    "PidsExhausted",
    "--processes"
  ],
  ["output", ["--output-limit", "64k", "--", "yes"], 122, "OutputLimitExceeded", "--output-limit"],
  [
    "disk",
    [
      "--disk",
      "1m",
      "--",
      "sh",
      "-c",
      "for i in 1 2 3 4; do head -c 900k /dev/zero > /workspace/$i; done; sleep 30"
    ],
    123,
    "DiskFull",
    "--disk"
  ]
]

suite("a limit", (it) => {
  for (const [what, argv, code, reason, flag] of limits) {
    it.effect(`${what}: ${reason} exits with ${code}, names ${flag}, and leaves nothing`, () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const ended = yield* cli.run(["run", "--output", "json", "--quiet", ...argv])
        assert.strictEqual(ended.code, code, ended.stderr)
        assert.include(complaint(ended.stderr), flag)
        const json = JSON.parse(ended.stdout.toString())
        assert.containSubset(json, { ok: false, exitCode: code, error: { reason } })
        assert.hasAllKeys(json.partial.output, ["stdout", "stderr"])
        assert.deepStrictEqual(yield* cli.leftovers, [])
      })
    )
  }
})
