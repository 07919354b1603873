/**
 * Canaries in the sandbox: read-only files in the agent's home and beside its inputs, which are detected when they
 * leave.
 */
import { assert, layer } from "@effect/vitest"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Effect } from "effect"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as Pace from "../harness/Pace.ts"

const spec = (script: string, over: Partial<SandboxSpecInput> = {}): SandboxSpecInput => ({
  image: Images.runtime,
  argv: ["bash", "-c", script],
  canaries: "warn",
  limits: { runtimeSecondsMax: Pace.runSecondsMax },
  ...over
})

const run = (input: SandboxSpecInput) => SandboxRunner.use((runner) => runner.run(input))

/** Attempts to change the canary files. All must fail. */
const attempts = [
  "echo x > ~/.aws/credentials",
  "echo x >> ~/.aws/credentials",
  "rm -f ~/.aws/credentials",
  "chmod 600 ~/.aws/credentials",
  "touch ~/.aws/new",
  "mv ~/.aws ~/.elsewhere",
  "rm -rf ~/.aws",
  "mount -o remount,rw ~/.aws",
  "umount ~/.aws",
  "echo x > /cogni/.env",
  "rm -f /workspace/.cogni/.env",
  "mv /workspace/.cogni/.env /workspace/.env"
]

layer(RunHarness.layer(), { excludeTestServices: true })("canaries", (it) => {
  it.effect("are read-only in the home and the control directory, and the posture reports their mount", () =>
    Effect.gen(function* () {
      const result = yield* run(
        spec(`
          sha256sum ~/.aws/credentials ~/.aws/config /cogni/.env /workspace/.cogni/.env | cut -c1-64 > before
          ${attempts.map((attempt, index) => `(${attempt}) 2>/dev/null && echo 'did ${index}'`).join("\n")}
          sha256sum ~/.aws/credentials ~/.aws/config /cogni/.env /workspace/.cogni/.env | cut -c1-64 > after
          cmp before after && echo same
          ls -A ~/.aws
          touch ~/.aws/new /cogni/new 2>&1 | sed 's/.*: //'
          echo more > ~/mine && cat ~/mine
          stat -c %a ~/.aws ~/.aws/credentials`)
      )
      assert.strictEqual(result.output.stderr.text, "")
      assert.deepStrictEqual(result.output.stdout.text.trim().split("\n"), [
        "same",
        "config",
        "credentials",
        // The mount is read-only: permissions are not the only protection.
        "Read-only file system",
        "Read-only file system",
        "more",
        "755",
        "644"
      ])
      assert.deepStrictEqual(result.suspicions, [], "reading a canary raises no suspicion")
      const aws = result.posture.mounts.find(({ target }) => target === "/home/agent/.aws")
      assert.isTrue(aws?.readOnly)
      assert.isDefined(result.posture.mounts.find(({ target }) => target === "/home/agent"))
    })
  )

  it.effect("are absent if the spec turns them off", () =>
    Effect.gen(function* () {
      const result = yield* run(spec("ls -A ~/.aws /cogni", { canaries: "off" }))
      assert.strictEqual(result.output.stdout.text, "/cogni:\n")
      assert.include(result.output.stderr.text, ".aws")
    })
  )

  it.effect("warn: output of a canary raises a suspicion, in any supported encoding", () =>
    Effect.gen(function* () {
      const result = yield* run(
        spec(`cat ~/.aws/credentials; base64 /cogni/.env >&2; rev /workspace/.cogni/.env; echo on; exit 3`)
      )
      assert.strictEqual(result.exitCode, 3)
      assert.include(result.output.stdout.text, "on\n", "the agent went on")
      const seen = result.suspicions.map(
        ({ canary, channel, encoding }) => `${canary} ${encoding} on ${channel}`
      )
      for (const canary of ["aws_access_key_id", "aws_secret_access_key"])
        for (const way of ["plain on stdout", "reversed on stdout", "base64 on stderr"])
          assert.include(seen, `${canary} ${way}`)
      assert.include(seen, "database_password base64 on stderr")
      const kept = yield* RunStore.use((store) => store.get(result.runId))
      assert.deepStrictEqual(kept?.suspicions, result.suspicions)
    })
  )

  it.effect("stop: the agent is ended at once, and nothing is left behind", () =>
    Effect.gen(function* () {
      const startedMs = performance.now()
      const error = yield* Effect.flip(
        run(spec("echo first; cat ~/.aws/credentials; sleep 500; echo never", { canaries: "stop" }))
      )
      assert.isBelow(performance.now() - startedMs, Pace.allowed(20_000))
      assert.strictEqual(error.reason._tag, "ExfiltrationSuspected", error.message)
      assert.include(error.partial?.output.stdout.text, "first\n")
      assert.notInclude(error.partial?.output.stdout.text, "never")
      assert.deepStrictEqual(yield* LeakCheck.staying, [])
      assert.deepStrictEqual(LeakCheck.directories(yield* RunHarness.Directory), [])
    })
  )

  it.effect("stop: a command in an open sandbox that leaks a canary fails, and so does the next one", () =>
    Effect.gen(function* () {
      const { argv: _argv, ...openSpec } = spec("true", { canaries: "stop" })
      const sandbox = yield* SandboxRunner.use((runner) => runner.open(openSpec))
      assert.strictEqual((yield* sandbox.exec(["ls", "/home/agent/.aws"])).exitCode, 0)
      const leaked = yield* Effect.flip(sandbox.exec(["cat", "/cogni/.env"]))
      assert.strictEqual(leaked.reason._tag, "ExfiltrationSuspected", leaked.message)
      assert.strictEqual((yield* Effect.flip(sandbox.exec(["true"]))).reason._tag, "ExfiltrationSuspected")
    }).pipe(Effect.scoped)
  )
})
