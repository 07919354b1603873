/** CI on GitHub runs what `.ci/run` runs, with no permission that a job does not need. */
import { assert, describe, it } from "@effect/vitest"
import { existsSync } from "node:fs"
import { join } from "node:path"
import { parse } from "yaml"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

const jobMinutesMax = 10

interface Step {
  readonly uses?: string
  readonly run?: string
  readonly with?: Readonly<Record<string, unknown>>
}

interface Job {
  readonly "timeout-minutes"?: number
  readonly permissions?: object | string
  readonly strategy?: { readonly matrix?: Readonly<Record<string, ReadonlyArray<unknown>>> }
  /** Absent if the job is another workflow. */
  readonly steps?: ReadonlyArray<Step>
}

interface Workflow {
  readonly permissions?: object
  readonly jobs: Readonly<Record<string, Job>>
}

const workflows = SourceTree.files(".github/workflows/*.{yml,yaml}").map((path) => ({
  path,
  text: SourceTree.read(path),
  workflow: parse(SourceTree.read(path)) as Workflow
}))

const jobs = workflows.flatMap(({ path, workflow }) =>
  Object.entries(workflow.jobs).map(([name, job]) => ({ name: `${path}: ${name}`, job }))
)

describe("workflows", () => {
  it("a workflow has no permission, and a job names its own", () => {
    const offenders = [
      ...workflows
        .filter(({ workflow }) => JSON.stringify(workflow.permissions) !== "{}")
        .map(({ path }) => path),
      ...jobs.filter(({ job }) => typeof job.permissions !== "object").map(({ name }) => name)
    ]
    none(offenders, "permissions: {} on the workflow, and what a job needs on the job")
  })

  it(`a job takes at most ${jobMinutesMax} minutes`, () => {
    none(
      jobs
        .filter(({ job }) => job.steps !== undefined && !((job["timeout-minutes"] ?? 360) <= jobMinutesMax))
        .map(({ name }) => name),
      `timeout-minutes: ${jobMinutesMax}, or less`
    )
  })

  it("an action is pinned by its commit, with its version beside it", () => {
    const offenders = workflows.flatMap(({ path, text }) =>
      text
        .split("\n")
        .filter(
          (line) =>
            /\buses:/u.test(line) && !/uses: (?:\.\/\.github\/|[\w./-]+@[0-9a-f]{40} # v\d)/u.test(line)
        )
        .map((line) => `${path}: ${line.trim()}`)
    )
    none(offenders, "uses: OWNER/NAME@COMMIT # vVERSION: a tag can be moved, a commit cannot")
  })

  it("a checkout leaves no credential behind", () => {
    none(
      jobs
        .filter(({ job }) =>
          job.steps?.some(
            (step) =>
              step.uses?.startsWith("actions/checkout@") && step.with?.["persist-credentials"] !== false
          )
        )
        .map(({ name }) => name),
      "persist-credentials: false"
    )
  })

  it("every command of .ci/run is a job, with Docker apart", () => {
    const commands = (text: string) => [...text.matchAll(/\.\/dev ([a-z]+)/gu)].map(([, command]) => command!)
    const check = workflows.find(({ path }) => path.endsWith("/check.yml"))!
    const runs = Object.values(check.workflow.jobs).flatMap(({ steps = [] }) =>
      steps.flatMap(({ run }) => run ?? [])
    )
    const all = new Set(commands(SourceTree.read(".ci/run").replaceAll(/^ *#.*$/gmu, "")))
    assert.deepStrictEqual([...all].toSorted(), ["check", "images", "test"])
    // The command of the tests builds the images too: .ci/run only begins earlier.
    const ours = [...all].filter((command) => command !== "images")
    assert.sameMembers([...new Set(runs.flatMap(commands))], [...ours, "docs"])
    // `./dev test --unit` takes the folders that need no Docker; the other job takes the rest.
    const docker = runs.find((run) => run.includes("test/integration"))!
    const folders = SourceTree.files("test/*/").map((folder) => folder.replace(/\/$/u, ""))
    const withTests = folders.filter((folder) => SourceTree.files(`${folder}/**/*.test.ts`).length > 0)
    const rest = withTests.filter((folder) => folder !== "test/architecture")
    none(
      rest.filter((folder) => !docker.includes(folder)),
      "no job of check.yml runs these"
    )
    assert.isTrue(runs.some((run) => run.endsWith("./dev test --unit")))
  })
})

describe("jobs", () => {
  it("no step is skipped, or may fail", () => {
    none(
      workflows
        .filter(({ text }) => /continue-on-error|if: (?:false|\$\{\{ false)/u.test(text))
        .map(({ path }) => path),
      "remove continue-on-error and if: false: a check must be able to fail"
    )
  })

  it("the shards of a job are all there", () => {
    const offenders = jobs.flatMap(({ job, name }) => {
      const count = Number(
        /--shard="?\$SHARD\/(\d+)/u.exec(JSON.stringify(job.steps ?? []).replaceAll("\\", ""))?.[1] ?? 0
      )
      const expected = Array.from({ length: count }, (_, index) => index + 1)
      return JSON.stringify(job.strategy?.matrix?.["shard"] ?? []) === JSON.stringify(expected) ? [] : [name]
    })
    none(offenders, "matrix.shard is 1 to N of --shard=…/N")
  })
})

describe("CODEOWNERS", () => {
  it("every path exists", () => {
    const offenders = SourceTree.read(".github/CODEOWNERS")
      .split("\n")
      .flatMap((line) => /^(\/\S+)\s/u.exec(line)?.[1] ?? [])
      .filter((path) => !existsSync(join(SourceTree.root, path)))
    none(offenders, "these have moved")
  })
})
