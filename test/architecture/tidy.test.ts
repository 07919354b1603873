/**
 * The conventions of this code base, as one test each.
 *
 * Every rule reports what to do instead. A ratchet lists the remaining exceptions: it may only get shorter, and it
 * fails if an entry is no longer needed.
 */
import { assert, describe, it } from "@effect/vitest"
import { basename } from "node:path"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

const lineCharactersMax = 120
const functionLinesMax = 70
const moduleLinesMax = 600

/** Joins text that must not appear in this file itself, which follows its own rules. */
const spelled = (...parts: ReadonlyArray<string>) => parts.join("")

const isSource = (path: string) => /^packages\/[a-z-]+\/src\//u.test(path)
const isTest = (path: string) =>
  path.endsWith(".test.ts") || /^(?:packages\/[a-z-]+\/test|test)\//u.test(path)
const isBench = (path: string) => path.startsWith("test/bench/")
/** On the test clock, a sleep takes no time, so a simulated program may sleep. */
const usesRealTime = (path: string) =>
  /\bit\.live\b|\.withLive\b|excludeTestServices: true/u.test(SourceTree.read(path))

interface Ban {
  /** The rule, as a sentence. */
  readonly title: string
  readonly call: RegExp
  readonly instead: string
  readonly where: (path: string) => boolean
  /** Exempt files, each with its reason. */
  readonly except?: Readonly<Record<string, string>>
}

const calls: ReadonlyArray<Ban> = [
  {
    title: "no code runs an Effect by hand",
    call: /^Effect\.run(?:Promise|Sync|Fork|PromiseExit|SyncExit|Callback)(?:With)?$/u,
    instead:
      "return the Effect (it.effect in a test; NodeRuntime.runMain in the program; a FiberSet for a callback)",
    where: (path) => (isSource(path) || isTest(path)) && !isBench(path),
    except: {
      "packages/cli/src/LogFormat.ts":
        "a logger is called by Effect, and returns nothing that could be awaited",
      "packages/proxy/src/internal/shards/ShardWorker.ts": "the program of a thread",
      "test/harness/BundledConversation.ts": "an application outside this repository"
    }
  },
  {
    title: "the environment is read in one place",
    call: /^process\.env$/u,
    instead: "Config, or an option that the command fills in",
    where: () => true,
    except: {
      "packages/cli/src/bin.ts":
        "the program: the only place that reads the environment, and removes the key from it",
      "test/bench/gateway.ts": "a program: where its options come from",
      "test/bench/neighbours.ts": "a program: where its options come from",
      "test/bench/pool.ts": "a program: where its options come from",
      "test/bench/RelayRepository.ts": "a program: where its options come from",
      "test/bench/relay.ts": "a program: where its options come from",
      "test/bench/run.ts": "a program: where its options come from",
      "test/bench/sharing.ts": "a program: where its options come from",
      "test/harness/Engine.ts": "the engine and the OCI runtime that a user of ./dev has chosen",
      "test/harness/LiteLlm.ts": "the path of the LiteLLM that ./dev installed",
      "test/harness/LinkedPrograms.ts": "the directory that a run of vitest hands to its processes",
      "test/harness/PackedPackages.ts": "the directory that a run of vitest hands to its processes",
      "test/harness/litellm/engine/QueryEngine.ts": "a program: LiteLLM passes its options so",
      "test/harness/PostgresServer.ts": "the path of the PostgreSQL that ./dev installed",
      "test/harness/Prometheus.ts": "the path of the Prometheus that ./dev unpacked",
      "test/harness/TestsPrepared.ts": "where ./dev says that images and programs are ready",
      "test/harness/TemporalDevServer.ts": "the path of the Temporal that ./dev installed",
      "test/harness/Browser.ts": "the Chromium that ./dev installed, and where pictures are kept",
      "test/harness/Images.ts": "the images that ./dev built"
    }
  },
  {
    title: "no unit test waits for real time",
    call: /^Effect\.sleep$/u,
    instead:
      "TestClock.adjust, a Deferred or a Latch: a test that waits for real time is slow, and fails when busy",
    where: (path) => /^packages\/[a-z-]+\/test\//u.test(path) && usesRealTime(path),
    except: {
      "packages/proxy/test/HostRelay.test.ts": "back-pressure: nothing more arrives after any wait",
      "packages/proxy/test/NginxLlmProxy.test.ts": "it tests an interruption after a number of milliseconds"
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
    instead: "vitest run FILE -t TITLE; a committed .only skips every other test",
    where: isTest
  },
  {
    title: "core turns no error into a defect",
    call: /^Effect\.orDie$/u,
    instead: "map the error to a reason: a defect has no remedy",
    where: (path) => path.startsWith("packages/core/src/") && !path.includes("/testing/")
  }
]

/** Functions of `node:child_process` that use a shell, and functions that block. */
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
    title: "no comment defers work",
    word: new RegExp(spelled("\\bTO", "DO\\b|\\bFIX", "ME\\b|\\bXX", "X\\b"), "u"),
    instead: "open an issue, or do the work",
    where: () => true
  },
  {
    title: "no name is from an older version of Effect",
    word: new RegExp(spelled("@effect/", "schema|effect/", "unstable|Context\\.", "Tag\\b"), "u"),
    instead: "the name in Effect 4 (docs/adr/0001-effect-4-and-its-schema.md)",
    where: (path) => /\.tsx?$/u.test(path)
  },
  {
    title: "tests use the engine that DOCKER_HOST names, as their docker command does",
    word: /\bDocker(?:Api\.layer|ContainerRuntime\.layer(?:Api)?)\(\)/u,
    instead: "Engine.api(), or Engine.options or Engine.runtime as options (test/harness/Engine.ts)",
    where: (path) => /^test\/(?:harness|integration|stack)\//u.test(path)
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
      none(idle, "these no longer need their exception: remove them from the list")
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

  it("a library does not use any", () => {
    const offenders = SourceTree.sources()
      .filter((path) => isSource(path))
      .flatMap((path) =>
        [...SourceTree.walk(SourceTree.tree(path))]
          .filter(({ type }) => type === "TSAnyKeyword")
          .map(({ start }) => `${path}:${SourceTree.lineOf(path, start)}`)
      )
    none(offenders, "a type, or unknown and a schema")
  })

  it("core gets time and randomness from services", () => {
    const offenders = SourceTree.sources()
      .filter((path) => path.startsWith("packages/core/src/") && !path.includes("/testing/"))
      .flatMap((path) =>
        SourceTree.members(path)
          .filter(({ text }) => text === "Date.now" || text === "Math.random" || text === "performance.now")
          .map(({ offset, text }) => `${path}:${SourceTree.lineOf(path, offset)} ${text}`)
      )
    none(offenders, "use Clock and Random: services that a test can replace")
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

  it("no file contains a path of a developer's machine", () => {
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

  it("the lockfile contains no registry URL", () => {
    const urls = linesOf("pnpm-lock.yaml").filter(
      (line) => /https?:\/\//u.test(line) && !/deprecated:/u.test(line)
    )
    none(urls, "install with the registry of the client's configuration, and commit no URL")
  })
})

/** Functions that are too long, not counting the functions inside them. Shrink this list. */
const longFunctions: ReadonlySet<string> = new Set([])

/** Modules that still import each other in a cycle. A ratchet: it only gets shorter. */
const circular: ReadonlySet<string> = new Set([])

/** Modules that are too long. Shrink this list. */
const longModules: ReadonlySet<string> = new Set([])

describe("form", () => {
  it(`no line is longer than ${lineCharactersMax} characters, except for a text that cannot be broken`, () => {
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
      "move conditions to callers and loops to callees, and keep leaf functions pure"
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
      "the module defines more than one noun: split it"
    )
    none(
      [...longModules].filter((path) => !found.includes(path)),
      "these are short enough: take them off the list"
    )
  })

  it("no modules import each other in a cycle, not even for a type", () => {
    const found = SourceTree.circles(SourceTree.files("packages/*/src/**/*.{ts,tsx}"))
    none(
      found
        .filter((circle) => !circle.every((path) => circular.has(path)))
        .map((circle) => circle.join(" ↔ ")),
      "move the shared type to the module that it belongs to, below both; or they are one noun: join them"
    )
    none(
      [...circular].filter((path) => !found.flat().includes(path)),
      "these are in no cycle: remove them from the list"
    )
  })

  it("a module is named after its noun, in PascalCase, and never utils or similar", () => {
    const drawers = /^(?:utils?|helpers?|common|types?|constants?|misc|shared|index\.[a-z]+)$/iu
    const offenders = SourceTree.files("packages/*/src/**/*", "test/harness/**/*")
      .filter((path) => /\.tsx?$/u.test(path))
      .filter((path) => !["index.ts", "bin.ts", "setup.ts"].includes(basename(path)))
      .filter(
        (path) =>
          !/^[A-Z][A-Za-z0-9]*\.tsx?$/u.test(basename(path)) ||
          drawers.test(basename(path).replace(/\.tsx?$/u, ""))
      )
    none(offenders, "name the file after the noun it defines")
    const folders = SourceTree.files("packages/*/src/**/*")
      .filter((path) => /\.tsx?$/u.test(path))
      .flatMap((path) => path.split("/").slice(3, -1))
      .filter((folder) => drawers.test(folder))
    none([...new Set(folders)], "name a folder after a noun too")
  })

  it("a test file is named after its module, or after the behaviour that it tests", () => {
    const offenders = SourceTree.packages.flatMap((name) =>
      SourceTree.files(`packages/${name}/test/**/*.test.ts`)
        .filter((path) => {
          const noun = basename(path).split(".")[0]
          return !SourceTree.modules(name).some((module) => basename(module).replace(/\.tsx?$/u, "") === noun)
        })
        .filter((path) => !behaviours.has(path))
    )
    none(offenders, "list tests of the behaviour of several modules in `behaviours`, in this file")
  })

  it("every module begins with a docstring", () => {
    const offenders = SourceTree.files("packages/*/src/**/*.{ts,tsx}", "test/**/*.ts")
      .filter((path) => basename(path) !== "index.ts" && linesOf(path).length > 10)
      .filter((path) => !/^(?:#!.*\n)?\/\*\*/u.test(SourceTree.read(path)))
    none(offenders, "begin with /** … */: the purpose of the module, and what it must not do")
  })

  it("every module of a library is imported", () => {
    const imported = new Set(
      SourceTree.sources().flatMap((path) =>
        SourceTree.imports(path).map(({ specifier }) => basename(specifier).replace(/\.tsx?$/u, ""))
      )
    )
    const dead = SourceTree.files("packages/*/src/**/*.{ts,tsx}").filter((path) => {
      const noun = basename(path).replace(/\.tsx?$/u, "")
      // The module of a thread is loaded by its URL, and that of the page by index.html.
      return (
        noun !== "index" &&
        noun !== "bin" &&
        noun !== "Main" &&
        !noun.endsWith("Worker") &&
        !imported.has(noun)
      )
    })
    none(dead, "nothing imports these")
  })

  it("a service ID consists of its package and its module", () => {
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
    none(offenders, "use the package and the module as the service ID")
  })
})

/** Test files about the behaviour of several modules together. */
const behaviours: ReadonlySet<string> = new Set([
  "packages/docker/test/Interruption.test.ts",
  "packages/host-files/test/Interruption.test.ts",
  "packages/temporal/test/DurableFleet.test.ts",
  "packages/temporal/test/Replay.test.ts",
  "packages/cli/test/DurableCommands.test.ts",
  "packages/graph-provider/test/OpenClawPreload.test.ts",
  "packages/graph-provider/test/OpenClawRehearsal.test.ts",
  "packages/proxy/test/CogniTool.test.ts",
  "packages/core/test/RunAdmission.test.ts",
  "packages/proxy/test/GatewayAccounts.test.ts",
  "packages/connections/test/Sources.test.ts",
  "packages/ledger/test/AccountSchedules.test.ts",
  "packages/server/test/ConcurrentRequests.test.ts",
  "packages/server/test/SignIn.test.ts",
  "packages/server/test/SubmittedRuns.test.ts",
  "packages/server/test/ReadOnlyGrant.test.ts",
  "packages/ledger/test/ReconcilerSchedules.test.ts",
  "packages/ledger/test/ReconcilerKeys.test.ts",
  "packages/core/test/Fault.test.ts",
  "packages/server/test/RunParts.test.ts",
  "packages/server/test/Runs.test.ts",
  "packages/cli/test/ServerEntry.test.ts",
  "packages/cli/test/UsageRecovery.test.ts",
  "packages/core/test/ResourceLedger.test.ts",
  "packages/loop/test/ToolAdapters.test.ts",
  "packages/sessions/test/MemoryExecutor.test.ts",
  "packages/sessions/test/ToolContract.test.ts",
  "packages/openai-agents/test/Refusals.test.ts",
  "packages/proxy/test/Charging.test.ts",
  "packages/proxy/test/Overshoot.test.ts",
  "packages/proxy/test/GatewayBadInput.test.ts",
  "packages/proxy/test/GatewayDoor.test.ts",
  "packages/proxy/test/GatewayFloods.test.ts",
  "packages/proxy/test/GatewayKeys.test.ts",
  "packages/proxy/test/GatewayUpstreams.test.ts",
  "packages/proxy/test/PackageMetadata.test.ts",
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
  SourceTree.pages().filter((path) => path.endsWith(".md") && !/^\.(?:changeset|github)\//u.test(path))

describe("pages", () => {
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

  it("the README of every package has the package name as its title", () => {
    const offenders = SourceTree.packages
      .map((name) => ({ name, path: `packages/${name}/README.md` }))
      .filter(({ path }) => SourceTree.files(path).length === 1)
      .filter(({ name, path }) => !SourceTree.read(path).startsWith(`# @cogni/sandbox-${name}\n`))
      .map(({ path }) => path)
    none(offenders, "use the package name as the title of its README")
  })
})

const linesOf = (path: string): ReadonlyArray<string> => SourceTree.read(path).split("\n")

/** All files that people write by hand. */
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
