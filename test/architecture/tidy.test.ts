/**
 * The habits of this code base, as one test each.
 *
 * Every rule says what to do instead. A ratchet lists what is not yet as it should be: it may only get shorter, and it
 * fails when an entry is no longer needed.
 */
import { assert, describe, it } from "@effect/vitest"
import { basename } from "node:path"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

const lineCharactersMax = 120
const functionLinesMax = 70
const moduleLinesMax = 600

/** Text that is written without being written here, so that this file keeps its own rules. */
const spelled = (...parts: ReadonlyArray<string>) => parts.join("")

const isSource = (path: string) => /^packages\/[a-z-]+\/src\//u.test(path)
const isTest = (path: string) =>
  path.endsWith(".test.ts") || /^(?:packages\/[a-z-]+\/test|test)\//u.test(path)
const isBench = (path: string) => path.startsWith("test/bench/")
/** On the test clock a sleep takes no time, so a pretend program may well sleep. */
const usesRealTime = (path: string) =>
  /\bit\.live\b|\.withLive\b|excludeTestServices: true/u.test(SourceTree.read(path))

interface Ban {
  /** What is true when nobody does it. */
  readonly title: string
  readonly call: RegExp
  readonly instead: string
  readonly where: (path: string) => boolean
  /** Files that may, each with its reason. */
  readonly except?: Readonly<Record<string, string>>
}

const calls: ReadonlyArray<Ban> = [
  {
    title: "nobody runs an Effect by hand",
    call: /^Effect\.run(?:Promise|Sync|Fork|PromiseExit|SyncExit|Callback)(?:With)?$/u,
    instead:
      "return the Effect (it.effect in a test; NodeRuntime.runMain in the program; a FiberSet for a callback)",
    where: (path) => (isSource(path) || isTest(path)) && !isBench(path),
    except: {
      "packages/cli/src/Cli.ts": "a logger is called by Effect, and returns nothing that could be waited for",
      "packages/proxy/src/internal/shards/ShardWorker.ts": "the program of a thread"
    }
  },
  {
    title: "the environment is read in one place",
    call: /^process\.env$/u,
    instead: "Config, or an option that the command fills in",
    where: () => true,
    except: {
      "packages/cli/src/bin.ts":
        "the program: the only place that reads the environment, and takes the key out of it",
      "test/bench/gateway.ts": "a program: where its options come from",
      "test/bench/neighbours.ts": "a program: where its options come from",
      "test/bench/RelayRepository.ts": "a program: where its options come from",
      "test/bench/relay.ts": "a program: where its options come from",
      "test/bench/run.ts": "a program: where its options come from",
      "test/harness/LiteLlm.ts": "where tests learn what ./dev has installed",
      "test/harness/PostgresServer.ts": "likewise",
      "test/harness/Images.ts": "where tests learn which images ./dev has built"
    }
  },
  {
    title: "no unit test waits for real time",
    call: /^Effect\.sleep$/u,
    instead:
      "TestClock.adjust, a Deferred or a Latch: a test that waits for real time is slow, and fails when busy",
    where: (path) => /^packages\/[a-z-]+\/test\//u.test(path) && usesRealTime(path),
    except: {
      "packages/proxy/test/HostRelay.test.ts":
        "back-pressure: that nothing more comes, however long one waits",
      "packages/proxy/test/NginxLlmProxy.test.ts":
        "an interruption after so many milliseconds is what it is about"
    }
  },
  {
    title: "a library prints nothing",
    call: /^console\./u,
    instead: "Effect.log…, or Console in the command",
    where: isSource
  },
  {
    title: "no test is committed with .only",
    call: /^\w*\.only$/u,
    instead: "vitest run FILE -t TITLE; a committed .only silences every other test",
    where: isTest
  },
  {
    title: "core turns no error into a defect",
    call: /^Effect\.orDie$/u,
    instead: "map the error to a reason: a defect has no remedy",
    where: (path) => path.startsWith("packages/core/src/") && !path.includes("/testing/")
  }
]

/** Of `node:child_process`: what goes through a shell, and what blocks. */
const shellImports = new Set(["exec", "execSync"])
const blockingImports = new Set(["execFileSync", "spawnSync"])

const words: ReadonlyArray<{
  readonly title: string
  readonly word: RegExp
  readonly instead: string
  readonly where: (path: string) => boolean
}> = [
  {
    title: "no diagnostic is silenced without a reason",
    word: new RegExp(spelled("@ts-", "(?:ignore|nocheck)"), "u"),
    instead: "a type, or @ts-expect-error with its reason",
    where: () => true
  },
  {
    title: "no comment promises work",
    word: new RegExp(spelled("\\bTO", "DO\\b|\\bFIX", "ME\\b|\\bXX", "X\\b"), "u"),
    instead: "an issue, or doing it",
    where: () => true
  },
  {
    title: "no name is of an older Effect",
    word: new RegExp(spelled("@effect/", "schema|effect/", "unstable|Context\\.", "Tag\\b"), "u"),
    instead: "Effect 4's own (docs/adr/0001-effect-4-and-its-schema.md)",
    where: (path) => path.endsWith(".ts")
  }
]

describe("banned", () => {
  for (const ban of calls) {
    it(`${ban.title}`, () => {
      const found = SourceTree.sources()
        .filter((path) => ban.where(path))
        .flatMap((path) =>
          SourceTree.members(path)
            .filter(({ text }) => ban.call.test(text))
            .map(({ offset, text }) => ({
              path,
              sentence: `${path}:${SourceTree.lineOf(path, offset)} ${text}`
            }))
        )
      const excepted = Object.keys(ban.except ?? {})
      const offenders = found.filter(({ path }) => !excepted.includes(path)).map(({ sentence }) => sentence)
      none(offenders, `instead: ${ban.instead}`)
      const idle = excepted.filter((path) => !found.some((one) => one.path === path))
      none(idle, "these no longer need their exception: take them off the list")
    })
  }

  it("nothing goes through a shell, and no library blocks on a process", () => {
    const offenders = SourceTree.sources().flatMap((path) =>
      SourceTree.importedNames(path, /^(?:node:)?child_process$/u)
        .filter((name) => shellImports.has(name) || (isSource(path) && blockingImports.has(name)))
        .map((name) => `${path} imports ${name}`)
    )
    none(offenders, "execFile or spawn, with an argv array")
  })

  it("a library has no any", () => {
    const offenders = SourceTree.sources()
      .filter((path) => isSource(path))
      .flatMap((path) =>
        [...SourceTree.walk(SourceTree.tree(path))]
          .filter(({ type }) => type === "TSAnyKeyword")
          .map(({ start }) => `${path}:${SourceTree.lineOf(path, start)}`)
      )
    none(offenders, "a type, or unknown and a schema")
  })

  it("core asks services for time and chance", () => {
    const offenders = SourceTree.sources()
      .filter((path) => path.startsWith("packages/core/src/") && !path.includes("/testing/"))
      .flatMap((path) =>
        SourceTree.members(path)
          .filter(({ text }) => text === "Date.now" || text === "Math.random" || text === "performance.now")
          .map(({ offset, text }) => `${path}:${SourceTree.lineOf(path, offset)} ${text}`)
      )
    none(offenders, "Clock, Random: services that a test can set")
  })

  for (const { instead, title, where, word } of words) {
    it(`${title}`, () => {
      const offenders = written().flatMap((path) =>
        where(path)
          ? linesOf(path).flatMap((line, index) =>
              word.test(line) ? [`${path}:${index + 1} ${line.trim()}`] : []
            )
          : []
      )
      none(offenders, `instead: ${instead}`)
    })
  }

  it("no path of somebody's machine is in the tree", () => {
    const place = new RegExp(
      spelled("(?:^|[\\s\"'`(=:])/(?:wo", "rk|ro", "ot|Users|home/(?!agent\\b)[a-z]+)/"),
      "u"
    )
    const offenders = written().flatMap((path) =>
      linesOf(path).flatMap((line, index) =>
        place.test(line) ? [`${path}:${index + 1} ${line.trim()}`] : []
      )
    )
    none(offenders, "a path relative to the repository, or a temporary directory made on the spot")
  })

  it("the lockfile names no registry", () => {
    const urls = linesOf("pnpm-lock.yaml").filter(
      (line) => /https?:\/\//u.test(line) && !/deprecated:/u.test(line)
    )
    none(urls, "install with the registry of the client's configuration, and commit no URL")
  })
})

/** Longer than a function should be, counted without the functions in it. A smell list: shrink it. */
const longFunctions: ReadonlySet<string> = new Set([])

/** Modules that still import each other in a circle. A ratchet: it only gets shorter. */
const circular: ReadonlySet<string> = new Set([])

/** Longer than a module should be. A smell list: shrink it. */
const longModules: ReadonlySet<string> = new Set([])

describe("form", () => {
  it(`no line is longer than ${lineCharactersMax} characters, except for one text that cannot be broken`, () => {
    const offenders = SourceTree.sources().flatMap((path) =>
      linesOf(path).flatMap((line, index) =>
        line.length > lineCharactersMax && !/(["'`/]).{40,}\1/u.test(line)
          ? [`${path}:${index + 1} (${line.length})`]
          : []
      )
    )
    none(offenders, "pnpm format breaks most; shorten the others")
  })

  it(`no function is longer than ${functionLinesMax} lines`, () => {
    const found = SourceTree.sources()
      .filter((path) => isSource(path))
      .flatMap((path) =>
        SourceTree.functions(path)
          .filter(({ lines }) => lines > functionLinesMax)
          .map(({ line, lines }) => ({ path, sentence: `${path}:${line} (${lines} lines)` }))
      )
    none(
      found.filter(({ path }) => !longFunctions.has(path)).map(({ sentence }) => sentence),
      "push ifs up and loops down, and leave leaves pure"
    )
    none(
      [...longFunctions].filter((path) => !found.some((one) => one.path === path)),
      "these are short enough: take them off the list"
    )
  })

  it(`no module is longer than ${moduleLinesMax} lines`, () => {
    const found = SourceTree.sources().filter(
      (path) => isSource(path) && linesOf(path).length - 1 > moduleLinesMax
    )
    none(
      found.filter((path) => !longModules.has(path)),
      "there is a second noun in it"
    )
    none(
      [...longModules].filter((path) => !found.includes(path)),
      "these are short enough: take them off the list"
    )
  })

  it("no modules import each other in a circle, not even for a type", () => {
    const found = SourceTree.circles(SourceTree.files("packages/*/src/**/*.ts"))
    none(
      found
        .filter((circle) => !circle.every((path) => circular.has(path)))
        .map((circle) => circle.join(" ↔ ")),
      "move the shared type to the module that it belongs to, below both; or they are one noun: join them"
    )
    none(
      [...circular].filter((path) => !found.flat().includes(path)),
      "these are in no circle: take them off the list"
    )
  })

  it("a module is called by its noun, in PascalCase; never a drawer", () => {
    const drawers = /^(?:utils?|helpers?|common|types?|constants?|misc|shared|index\.[a-z]+)$/iu
    const offenders = SourceTree.files("packages/*/src/**/*", "test/harness/**/*")
      .filter((path) => path.endsWith(".ts"))
      .filter((path) => !["index.ts", "bin.ts", "setup.ts"].includes(basename(path)))
      .filter(
        (path) => !/^[A-Z][A-Za-z0-9]*\.ts$/u.test(basename(path)) || drawers.test(basename(path, ".ts"))
      )
    none(offenders, "name the file after the noun it defines")
    const folders = SourceTree.files("packages/*/src/**/*")
      .filter((path) => path.endsWith(".ts"))
      .flatMap((path) => path.split("/").slice(3, -1))
      .filter((folder) => drawers.test(folder))
    none([...new Set(folders)], "a folder is a noun too")
  })

  it("a test file is called after its module, or after the behaviour it looks at", () => {
    const offenders = SourceTree.packages.flatMap((name) =>
      SourceTree.files(`packages/${name}/test/**/*.test.ts`)
        .filter((path) => {
          const noun = basename(path).split(".")[0]
          return !SourceTree.modules(name).some((module) => basename(module, ".ts") === noun)
        })
        .filter((path) => !behaviours.has(path))
    )
    none(offenders, "a behaviour of several modules is listed in `behaviours`, here")
  })

  it("every module begins with what it is for", () => {
    const offenders = SourceTree.files("packages/*/src/**/*.ts", "test/**/*.ts")
      .filter((path) => basename(path) !== "index.ts" && linesOf(path).length > 10)
      .filter((path) => !/^(?:#!.*\n)?\/\*\*/u.test(SourceTree.read(path)))
    none(offenders, "begin with /** … */: what it is for, what it must not do")
  })

  it("no module of a library is dead", () => {
    const imported = new Set(
      SourceTree.sources().flatMap((path) =>
        SourceTree.imports(path).map(({ specifier }) => basename(specifier).replace(/\.ts$/u, ""))
      )
    )
    const dead = SourceTree.files("packages/*/src/**/*.ts").filter((path) => {
      const noun = basename(path, ".ts")
      // A thread's own module is named by its URL.
      return noun !== "index" && noun !== "bin" && !noun.endsWith("Worker") && !imported.has(noun)
    })
    none(dead, "nothing imports these")
  })

  it("a service is called by its package and its module", () => {
    const offenders = SourceTree.packages.flatMap((name) =>
      SourceTree.modules(name).flatMap((module) => {
        const path = `packages/${name}/src/${module}`
        return [...SourceTree.strings(path)]
          .filter((text) => /^@cogni\/sandbox-[a-z-]+\/[A-Z]\w*$/u.test(text))
          .filter((text) => !text.startsWith(`@cogni/sandbox-${name}/`))
          .filter((text) => !SourceTree.imports(path).some(({ specifier }) => specifier === text))
          .map((text) => `${path} ${text}`)
      })
    )
    none(offenders, "a service id is its package and its module")
  })
})

/** Test files about what several modules do together. */
const behaviours: ReadonlySet<string> = new Set([
  "packages/core/test/Fault.test.ts",
  "packages/core/test/ResourceLedger.test.ts",
  "packages/loop/test/ToolAdapters.test.ts",
  "packages/sessions/test/MemoryExecutor.test.ts",
  "packages/sessions/test/ToolContract.test.ts",
  "packages/proxy/test/Charging.test.ts",
  "packages/proxy/test/GatewayBadInput.test.ts",
  "packages/proxy/test/GatewayDoor.test.ts",
  "packages/proxy/test/GatewayFloods.test.ts",
  "packages/proxy/test/RunBounds.test.ts",
  "packages/proxy/test/Shards.test.ts",
  "packages/proxy/test/RequestBodyAgents.test.ts",
  "packages/proxy/test/RequestBodyAllowlist.test.ts",
  "packages/proxy/test/RequestBodyAttacks.test.ts",
  "packages/proxy/test/RequestBodyProperties.test.ts",
  "packages/react/test/Bundle.test.ts",
  "packages/server/test/Surface.test.ts",
  "packages/server/test/Refusals.test.ts",
  "packages/server/test/ServerStreams.test.ts"
])

const documents = () =>
  SourceTree.files(
    "*.md",
    "docs/**/*.md",
    "packages/*/README.md",
    "images/**/*.md",
    "test/**/*.md",
    "examples/**/*.md"
  )

describe("prose", () => {
  it("a Markdown file has exactly one title, first", () => {
    const offenders = documents().filter((path) => {
      const text = SourceTree.read(path).replaceAll(/^(```|~~~)[\s\S]*?^\1/gmu, "")
      const titles = text.match(/^# .+$/gmu) ?? []
      return titles.length !== 1 || !text.startsWith("# ")
    })
    none(offenders, "one # title, on the first line; ## for the rest")
  })

  it("AGENTS.md stays short enough to be read", () => {
    assert.isAtMost(linesOf("AGENTS.md").length - 1, 120)
  })

  it("every package says in its README what it is, and how to install it", () => {
    const offenders = SourceTree.packages
      .map((name) => ({ name, path: `packages/${name}/README.md` }))
      .filter(({ path }) => SourceTree.files(path).length === 1)
      .filter(({ name, path }) => !SourceTree.read(path).startsWith(`# @cogni/sandbox-${name}\n`))
      .map(({ path }) => path)
    none(offenders, "the title of a package's README is its name")
  })
})

const linesOf = (path: string): ReadonlyArray<string> => SourceTree.read(path).split("\n")

/** Everything that people write. */
const written = (): ReadonlyArray<string> => [
  ...SourceTree.sources(),
  ...documents(),
  ...SourceTree.files(
    "*.json",
    "*.yaml",
    ".*rc.json",
    ".changeset/*",
    ".ci/*",
    "packages/*/*.json",
    "docs/**/*.txt"
  ).filter((path) => path !== "pnpm-lock.yaml"),
  ...SourceTree.files("dev", "images/**/*").filter(
    (path) => !/\.(?:tar|gz|png)$/u.test(path) && /\.[a-z]+$|Dockerfile$|dev$|build$|entrypoint$/u.test(path)
  )
]
