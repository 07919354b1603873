/**
 * Compares the documentation with the code.
 *
 * A test that a page names must exist. Every exit code, error reason and variable of the code must be on a page.
 */
import { assert, describe, it } from "@effect/vitest"
import * as ExitCode from "../../packages/cli/src/ExitCode.ts"
import * as SandboxError from "@cogni/sandbox-core/SandboxError"
import { Arbitrary, Effect } from "effect"
import { existsSync } from "node:fs"
import { dirname, join, normalize } from "node:path"
import { anchorOf } from "../../docs/.vitepress/anchor.ts"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

/** Not the forms of GitHub, whose links are relative to its own pages. */
const pages = () => SourceTree.pages().filter((path) => !path.startsWith(".github/"))

const exists = (path: string) => existsSync(join(SourceTree.root, path))

/** A page without its code blocks. */
const prose = (path: string): string => SourceTree.read(path).replaceAll(/^```[\s\S]*?^```/gmu, "")

describe("links", () => {
  it("every link has a target that exists", () => {
    const offenders = pages().flatMap((page) =>
      [...prose(page).matchAll(/\]\(([^)\s]+)\)/gu)].flatMap(([, target]) => {
        const [path = "", fragment] = target!.split("#")
        if (/^[a-z]+:/u.test(target!)) return []
        const file = path === "" ? page : normalize(join(dirname(page), path))
        if (!exists(file)) return [`${page} → ${target}`]
        if (fragment === undefined) return []
        const anchors = [...prose(file).matchAll(/^#+ (.+)$/gmu)].map(([, heading]) => anchorOf(heading!))
        return anchors.includes(fragment) ? [] : [`${page} → ${target}`]
      })
    )
    none(offenders, "these links are broken")
  })

  it("every command that installs packages takes the version of Effect that they accept", () => {
    const accepted = (name: string): string =>
      SourceTree.readJson(`packages/${name}/package.json`).peerDependencies?.effect ?? "no range"
    const offenders = pages().flatMap((page) =>
      SourceTree.read(page)
        .replaceAll("\\\n", " ")
        .split("\n")
        .flatMap((line) => {
          const [, range] = /npm install .*\beffect@(\S+)/u.exec(line) ?? []
          if (range === undefined) return []
          const named = [...line.matchAll(/@cogni\/sandbox-([a-z-]+)/gu)].map(([, name]) => accepted(name!))
          // Tarballs from a clone, which are those of the package promise.
          const ranges = named.length === 0 ? [accepted("promise")] : named
          const right = ranges.find((one) => one.startsWith("~")) ?? ranges[0]!
          return range === right ? [] : [`${page}: effect@${range}, not effect@${right}`]
        })
    )
    none(offenders, "name the range of the packages' peer dependency")
  })

  it("every file that is mentioned exists", () => {
    const offenders = pages().flatMap((page) =>
      [...prose(page).matchAll(/`((?:packages|test|docs|images|examples|node_modules)\/[\w./-]+\.\w+)`/gu)]
        .map(([, path]) => path!)
        .filter((path) => !exists(path))
        .map((path) => `${page} mentions ${path}`)
    )
    none(offenders, "these files do not exist")
  })

  it("every page is in the index", () => {
    const index = SourceTree.read("docs/README.md")
    const missing = SourceTree.files("docs/**/*.md")
      .map((path) => path.slice("docs/".length))
      .filter((path) => path !== "README.md" && !index.includes(`(${path})`))
    none(missing, "add these to docs/README.md")
  })
})

describe("threat model", () => {
  const page = "docs/threat-model.md"
  const invariants = [...prose(page).matchAll(/^(\d+)\. \*\*[\s\S]*?(?=^\d+\. \*\*|^#)/gmu)].map(
    ([text, number]) => ({
      number: Number(number),
      tests: [...text.matchAll(/`([^`]+\.ts)`\s›\s“([^”]+)”/gu)].map(([, path, title]) => ({
        path: path!,
        title: title!.replaceAll(/\s+/gu, " ")
      }))
    })
  )

  it("its invariants are numbered without gaps", () => {
    assert.deepStrictEqual(
      invariants.map(({ number }) => number),
      invariants.map((_, index) => index + 1)
    )
    assert.isAbove(invariants.length, 20)
  })

  it("every invariant names a test that exists", () => {
    const offenders = invariants.flatMap(({ number, tests }) =>
      tests.length === 0
        ? [`${number} names no test`]
        : tests
            .filter(({ path, title }) => !exists(path) || !SourceTree.hasTest(path, title))
            .map(({ path, title }) => `${number}: ${path} › ${title}`)
    )
    none(offenders, "name an existing test that enforces each invariant")
  })

  it("every attack names an invariant that exists, or a dash", () => {
    const section = /## Attacks[\s\S]*?(?=\n## )/u.exec(prose(page))![0]
    const rows = section.split("\n").filter((line) => /^\| (?!Attack|-)/u.test(line))
    const offenders = rows.filter((row) => {
      const ends = row.split("|")[2]!.trim()
      return (
        ends !== "–" && !ends.split(", ").every((one) => Number(one) >= 1 && Number(one) <= invariants.length)
      )
    })
    none(offenders, "name invariants by their numbers")
    assert.isAbove(rows.length, 10)
  })

  it("every invariant counters an attack", () => {
    const named = new Set(
      [.../## Attacks[\s\S]*?(?=\n## )/u.exec(prose(page))![0].matchAll(/\b\d+\b/gu)].map(([number]) =>
        Number(number)
      )
    )
    none(
      invariants.filter(({ number }) => !named.has(number)).map(({ number }) => `invariant ${number}`),
      "name each of these invariants in the table of attacks"
    )
  })
})

describe("README", () => {
  it("names the commands for which ./dev cli starts no engine, as dev does", () => {
    const [, body] = /^needs_no_engine\(\) \{\n([^]*?)^\}/mu.exec(SourceTree.read("dev")) ?? []
    const [, list] = /^ +((?:[a-z]+ \| )+[a-z]+)\) ;;$/mu.exec(body ?? "") ?? []
    const [, flag] = /^ +serve\) \[\[.*" (--[a-z]+) ".*\]\] ;;$/mu.exec(body ?? "") ?? []
    const [, sentence] =
      /`\.\/dev cli` first starts Docker[^]*?except for ([^.]*)\./u.exec(SourceTree.read("README.md")) ?? []
    assert.deepStrictEqual(
      [...(sentence ?? "").matchAll(/`([^`]+)`/gu)].map(([, name]) => name),
      [...(list ?? "").split(" | "), `serve ${flag}`],
      "list the same commands in README.md and in needs_no_engine of dev"
    )
  })

  it("its table of packages names what each imports, as the manifests do", () => {
    const prefix = "@cogni/sandbox-"
    const rows = [
      ...SourceTree.read("README.md").matchAll(
        /^\| \[`@cogni\/sandbox-([a-z-]+)`\]\(([a-z/-]+)\/README\.md\) \|.*\| ([^|]+) \|$/gmu
      )
    ].map(([, name, folder, imports]) => ({ name: name!, folder: folder!, imports: imports! }))
    assert.sameMembers(
      rows.map(({ name }) => name),
      [...SourceTree.packages, "images"]
    )
    const offenders = rows
      // The command needs most packages, so its row says which it does not need.
      .filter(({ name }) => name !== "cli")
      .flatMap(({ folder, imports, name }) => {
        const { dependencies = {}, peerDependencies = {} } = SourceTree.readJson(`${folder}/package.json`)
        const needed = Object.keys({ ...dependencies, ...peerDependencies })
          .filter((one) => one.startsWith(prefix))
          .map((one) => one.slice(prefix.length))
          .toSorted()
        const said = imports.split(", ").filter((one) => one !== "–" && one !== "`effect`")
        return said.toSorted().join() === needed.join() ? [] : [`${name}: ${needed.join(", ")}`]
      })
    none(offenders, "correct the last column of the table of packages in README.md")
  })
})

describe("reference", () => {
  it("every exit code of the command is on its page, with its name", () => {
    const rows = [...SourceTree.read("docs/reference/exit-codes.md").matchAll(/^\| (\d+) \| `(\w+)` \|/gmu)]
    assert.deepStrictEqual(
      Object.fromEntries(rows.map(([, code, name]) => [name!, Number(code)])),
      { ...ExitCode.exitCode },
      "docs/reference/exit-codes.md must have a row for each entry of ExitCode.ts, and no others"
    )
  })

  it.effect("every reason is on the same page, with its code, its exit code, and whether to retry", () =>
    Effect.gen(function* () {
      const page = SourceTree.read("docs/reference/exit-codes.md")
      const rows = yield* Effect.forEach(SandboxError.Reason.members, (member) =>
        Effect.map(
          Arbitrary.sampleEffect(Arbitrary.schema(member as unknown as typeof SandboxError.Reason), {
            count: 20,
            seed: 1
          }),
          (samples) => {
            const [reason] = samples
            // It is retryable if a retry can help in some cases.
            const retry = samples.some(({ isRetryable }) => isRetryable) ? "yes" : "no"
            return (
              `| \`${reason!._tag}\` | \`${reason!.code}\` | ${ExitCode.exitCode[ExitCode.ofReason(reason!._tag)]} | ` +
              `${retry} |`
            )
          }
        )
      )
      none(
        rows.filter((row) => !page.includes(`\n${row}`)),
        "docs/reference/exit-codes.md needs these rows"
      )
    })
  )

  it("the environment page lists exactly the variables that the code reads", () => {
    const page = SourceTree.read("docs/reference/environment.md")
    const pattern = /\b(?:COGNI|SANDBOX|LITELLM)_[A-Z0-9_]+\b/gu
    const code = [
      ...SourceTree.files("packages/*/src/**/*.{ts,tsx}", "test/harness/*.ts", "examples/*.ts"),
      ...SourceTree.files("dev", "images/{build,lib.sh}", ".ci/run"),
      ...SourceTree.files("images/*/*").filter((path) => /entrypoint$|Dockerfile$/u.test(path)),
      ...SourceTree.files("images/*/agent/*.mjs")
    ]
    const inCode = new Set(code.flatMap((path) => SourceTree.read(path).match(pattern) ?? []))
    const inPage = new Set(page.match(pattern) ?? [])
    none(
      [...inCode].filter((name) => !inPage.has(name) && !internalVariables.has(name)),
      "add a row to docs/reference/environment.md"
    )
    none(
      [...inPage].filter((name) => !inCode.has(name)),
      "nothing reads these variables: remove them from docs/reference/environment.md"
    )
  })
})

/** Variables that are internal to scripts, and are not set by users. */
const internalVariables: ReadonlySet<string> = new Set([
  "COGNI_CACHE",
  // Variables of the LiteLLM that tests start.
  "COGNI_RECORDS",
  "LITELLM_LOCAL_MODEL_COST_MAP",
  "LITELLM_MASTER_KEY",
  "LITELLM_SALT_KEY"
])

describe("follow one prompt", () => {
  const stopsMax = 25
  const stops = [
    ...prose("docs/follow-one-prompt.md").matchAll(/^(\d+)\. \*\*[\s\S]*?(?=^\d+\. \*\*|^#|$(?![\s\S]))/gmu)
  ]

  it(`has at most ${stopsMax} stops, numbered without gaps`, () => {
    assert.deepStrictEqual(
      stops.map(([, number]) => Number(number)),
      stops.map((_, index) => index + 1)
    )
    assert.isAbove(stops.length, 10)
    assert.isAtMost(stops.length, stopsMax)
  })

  it("names an existing file at each stop", () => {
    const offenders = stops.flatMap(([text, number]) => {
      const named = [...text.matchAll(/`((?:packages|images)\/[\w./-]+)`/gu)].map(([, path]) => path!)
      return named.length === 0
        ? [`${number} names no file`]
        : named.filter((path) => !exists(path)).map((path) => `${number}: ${path}`)
    })
    none(offenders, "correct these paths in docs/follow-one-prompt.md")
  })
})

describe("agents", () => {
  it("have an image folder, and a row in the guide", () => {
    const guide = SourceTree.read("docs/guides/adding-an-agent.md")
    const missing = SourceTree.files("packages/graph-provider/src/agents/!(Agent*).ts").flatMap((path) => {
      const id = /AgentId\.make\("([a-z0-9-]+)"\)|id: "([a-z0-9-]+)"/u
        .exec(SourceTree.read(path))
        ?.slice(1)
        .find(Boolean)
      const image = /image: (?:"([^"]+)"|\w+\("([^"]+)"\))/u
        .exec(SourceTree.read(path))
        ?.slice(1)
        .find(Boolean)
      if (id === undefined) return [`${path} has no recognizable ID`]
      return [
        ...(guide.includes(`| \`${id}\` |`) ? [] : [`${id} has no row in docs/guides/adding-an-agent.md`]),
        ...(image === undefined || exists(`images/${image.replace(/^.*\//u, "").replace(/:.*$/u, "")}`)
          ? []
          : [`${id} has no folder for its image ${image}`])
      ]
    })
    none(missing, "an agent needs its data, its image and its row in the guide")
  })
})

describe("form", () => {
  it("an ADR has status, context, decision and consequences, and lists the rejected alternatives", () => {
    const offenders = SourceTree.files("docs/adr/*.md").filter((path) => {
      const headings = [...prose(path).matchAll(/^## (.+)$/gmu)].map(([, heading]) => heading)
      return (
        headings.join() !== "Status,Context,Decision,Consequences" ||
        !/^### Rejected$/mu.test(prose(path)) ||
        !/^docs\/adr\/\d{4}-[a-z0-9-]+\.md$/u.test(path)
      )
    })
    none(offenders, "title, ## Status, ## Context, ## Decision, ## Consequences with ### Rejected")
    const numbers = SourceTree.files("docs/adr/*.md").map((path) => Number(path.slice(9, 13)))
    assert.deepStrictEqual(
      numbers,
      numbers.map((_, index) => index + 1),
      "number decisions without gaps"
    )
  })

  it("a port has a row in the glossary", () => {
    const glossary = SourceTree.read("docs/glossary.md")
    const ports = SourceTree.files("packages/*/src/*.ts")
      .filter((path) => !path.startsWith("packages/cli/"))
      .filter((path) => /^export class (\w+) extends Context\.Service</mu.test(SourceTree.read(path)))
      .map((path) => path.slice(path.lastIndexOf("/") + 1).replace(/\.ts$/u, ""))
      .filter((noun) => !glossary.includes(`\`${noun}\``))
    none(ports, "add a new port to docs/glossary.md before the code")
  })
})
