/** Runs every example, and compares the first one with the README. */
import { assert, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import { promisify } from "node:util"
import * as Pace from "../harness/Pace.ts"
import * as SourceTree from "./SourceTree.ts"

const run = async (...argv: ReadonlyArray<string>) => {
  const { stderr, stdout } = await promisify(execFile)(process.execPath, [...argv], {
    cwd: SourceTree.root,
    timeout: Pace.hangMillis / 2
  })
  return { stderr: stderr.replaceAll(/^\(.*Warning.*\n|^\(Use `node.*\n/gmu, ""), stdout }
}

/** Lines that each example prints. */
const printed: Readonly<Record<string, ReadonlyArray<string>>> = {
  "graph-in-memory": ["assistant_final\nusage_report\ndone", "ok true: Lima."],
  "hello-in-memory": ["exit code 0, said: hello, world"],
  "opentelemetry-in-memory": [
    "SandboxRunner.agent in SandboxRunner.run",
    "SandboxRunner.run in handle request\nhandle request in nothing",
    "run RUN ended: exit code 0, in the same trace: true"
  ],
  "own-agent-in-memory": [
    `{"type":"text_delta","delta":"review --model gpt-5: no problem found\\n"}`,
    "ok true: review --model gpt-5: no problem found"
  ],
  "recover-from-a-limit": [
    "the kernel killed the agent at the memory limit of 256 MiB",
    "kept: half an answer"
  ],
  "session-in-memory": [
    "the same session: {\n  exit_code: 0,\n  stdout: 'hello',",
    "another one: {\n  exit_code: 1,"
  ],
  "stream-in-memory": ["run-example00001 started", "stdout: 42", "ended with exit code 0"]
}

/** Examples that are type-checked with the others, but not run here. */
const needDocker = ["chat-on-docker", "own-agent-on-docker", "sealed-run-on-docker"]

describe("examples", () => {
  it("are either run here or need Docker", () => {
    const names = SourceTree.files("examples/*.ts")
      .map((path) => path.replace(/^examples\/|\.ts$/gu, ""))
      .filter((name) => name !== "run")
    assert.sameMembers(
      names,
      [...Object.keys(printed), ...needDocker],
      "list here the lines that a new example prints"
    )
  })

  for (const [name, lines] of Object.entries(printed)) {
    it(`${name} runs with nothing installed`, async () => {
      const { stderr, stdout } = await run("examples/run.ts", name)
      for (const line of lines) assert.include(stdout, line)
      assert.strictEqual(stderr, "")
    })
  }

  it("the README's example is exactly hello-in-memory, and has at most fifteen lines", () => {
    const fence = /```ts\n([\s\S]*?)```/u.exec(SourceTree.read("README.md"))?.[1]
    const example = SourceTree.read("examples/hello-in-memory.ts")
    assert.strictEqual(fence, example, "copy examples/hello-in-memory.ts into README.md")
    assert.isAtMost(example.trimEnd().split("\n").length, 15)
  })

  it("the README shows the output of hello-in-memory", async () => {
    const { stdout } = await run("examples/hello-in-memory.ts")
    assert.include(SourceTree.read("README.md"), stdout.trim())
  })
})
