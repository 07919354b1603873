import { globSync, readFileSync } from "node:fs"
import { configDefaults, defineConfig } from "vitest/config"
import { BaseSequencer, type TestSpecification } from "vitest/node"
import * as LinkedPrograms from "./test/harness/LinkedPrograms.ts"
import * as Pace from "./test/harness/Pace.ts"

/** Tests that need no process of their own, unless they are `separate`. None needs an engine or an image. */
const units = ["packages/*/test/**/*.test.ts", "test/architecture/*.test.ts"]
const others = ["test/!(architecture)/**/*.test.ts"]

/** These tests measure how far an agent gets until it is stopped, and memory: no other test may run beside them. */
const alone = ["test/integration/OutputLimit.test.ts"]

/**
 * Finds the unit tests that need a process of their own: they replace a module or a function for the whole process,
 * change its working directory or file mode, measure its memory, or start threads and programs.
 */
const separate = globSync(units).filter((path) =>
  [
    /\bvi\.|\bprocess\.(?:chdir|umask|on|memoryUsage)\b/u,
    /node:(?:child_process|worker_threads)|"\.\/Gateway\.ts"|PackedPackages/u
  ].some((sign) => sign.test(readFileSync(path, "utf8")))
)

/**
 * Files that take long, the longest first. Vitest would begin with the longest texts: at the end of a run, one worker
 * would be busy and the others idle.
 */
const slow = [
  "test/architecture/package.test.ts",
  "packages/sessions/test/HostExecutor.test.ts",
  "packages/ledger/test/ReconcilerSchedules.test.ts",
  "packages/cli/test/UsageRecovery.test.ts",
  "packages/proxy/test/GatewayFloods.test.ts",
  "packages/ledger/test/LedgerRecovery.test.ts",
  "packages/sessions/test/ToolContract.test.ts",
  "packages/sessions/test/MemoryExecutor.test.ts",
  "test/stack/DurableKills.test.ts",
  "test/stack/Package.test.ts",
  "test/integration/RelayCorpus.test.ts",
  "test/integration/EngineFaults.test.ts",
  "test/integration/SharedNginxLlmProxy.test.ts",
  "test/integration/SessionFaults.test.ts",
  "test/stack/DurableHosts.test.ts",
  "test/stack/RunKeys.test.ts",
  "test/stack/Page.test.ts",
  "test/integration/RelayKill.test.ts",
  "test/integration/Deadline.test.ts",
  "test/integration/Sql.test.ts",
  "test/stack/Relay.test.ts",
  "test/integration/RelayOriginCorpus.test.ts",
  "test/integration/Preload.test.ts",
  "test/integration/RelayOrigins.test.ts",
  "test/integration/SessionBadInput.test.ts",
  "test/stack/Threads.test.ts",
  "test/integration/GitRelay.test.ts",
  "test/integration/RelayBadInput.test.ts",
  "test/integration/ContainerRuntime.test.ts",
  "test/stack/Agents.test.ts",
  "test/stack/CliRecords.test.ts",
  "test/stack/AgentPreloads.test.ts",
  "test/stack/Evolution.test.ts",
  "test/stack/Secrets.test.ts",
  "test/stack/Acp.test.ts",
  "test/stack/CliRefusals.test.ts",
  "test/stack/Cli.test.ts",
  "test/integration/NginxLlmProxy.test.ts",
  "test/stack/Task.test.ts",
  "test/integration/Executor.test.ts",
  "test/integration/Hardening.test.ts",
  "test/stack/Serve.test.ts",
  "test/integration/HostileRequests.test.ts",
  "test/stack/CliThreads.test.ts",
  "test/integration/BadInput.test.ts",
  "test/integration/GatewayLlmProxy.test.ts",
  "test/integration/SessionIsolation.test.ts",
  "test/stack/ChatCommand.test.ts"
]

/**
 * Short tests that leave nothing in their process, so that one process has many of them. To load everything in a new
 * process takes longer than some of these tests.
 */
const shared = [
  ...[
    "CallerEnvironment",
    "Canary",
    "ConnectionRelay",
    "CostSchedules",
    "DockerApi",
    "GitHubTools",
    "HostDirectories",
    "HostNames",
    "ImagePull",
    "Network",
    "Packages",
    "PoolTrial",
    "ReadOnlyQuery",
    "ReadyNetworks",
    "RelayBadInput",
    "RunStore",
    "SessionTools",
    "Supervisor",
    "Workspace"
  ].map((name) => `test/integration/${name}.test.ts`),
  ...[
    "AiSdk",
    "CliLimits",
    "ComputeSdk",
    "Demo",
    "Examples",
    "Mastra",
    "Mcp",
    "OfficialClients",
    "OneSandbox",
    "Promises",
    "Subagents",
    "Telemetry",
    "Tools",
    "UserFiles",
    "WayOut"
  ].map((name) => `test/stack/${name}.test.ts`)
]

/**
 * Files with a process of their own come first. A process of many files takes another one only if that is the next:
 * between two that have their own, it would end, and the next one would load everything again.
 */
class SlowFirst extends BaseSequencer {
  override async sort(files: Array<TestSpecification>): Promise<Array<TestSpecification>> {
    const placeOf = ({ moduleId, project }: TestSpecification) => {
      const place = slow.findIndex((path) => moduleId.endsWith(`/${path}`))
      return (place === -1 ? slow.length : place) + (project.config.isolate ? 0 : 2 * slow.length)
    }
    // oxlint-disable-next-line unicorn/no-array-sort -- the method of a sequencer, not of an array
    const sorted = await super.sort(files)
    return sorted.toSorted((a, b) => placeOf(a) - placeOf(b))
  }
}

// Most tests wait for something other than a processor: an engine, a clock, a process. Six at once took as long.
const maxWorkers = 4

const globalSetup = ["test/harness/LinkedPrograms.ts", "test/harness/PackedPackages.ts"]

const prepared = ["test/harness/TestsPrepared.ts"]

export default defineConfig({
  plugins: [LinkedPrograms.threads],
  test: {
    setupFiles: ["test/harness/setup.ts"],
    // Only a hang takes this long: a test must not fail because the machine is busy.
    testTimeout: Pace.hangMillis,
    hookTimeout: Pace.hangMillis,
    sequence: { sequencer: SlowFirst },
    projects: [
      {
        extends: true,
        test: { name: "separate", include: separate, globalSetup, maxWorkers, sequence: { groupOrder: 0 } }
      },
      {
        extends: true,
        test: {
          name: "units",
          include: units,
          exclude: [...configDefaults.exclude, ...separate],
          // One process loads Effect once for many files, instead of once for each.
          isolate: false,
          maxWorkers,
          sequence: { groupOrder: 0 }
        }
      },
      {
        extends: true,
        test: {
          name: "together",
          include: others,
          exclude: [...configDefaults.exclude, ...alone, ...shared],
          globalSetup,
          setupFiles: prepared,
          maxWorkers,
          // After the others: images may still be built while these run.
          sequence: { groupOrder: 1 }
        }
      },
      {
        extends: true,
        test: {
          name: "shared",
          include: shared,
          globalSetup,
          setupFiles: prepared,
          isolate: false,
          maxWorkers,
          sequence: { groupOrder: 1 }
        }
      },
      {
        extends: true,
        test: {
          name: "alone",
          include: alone,
          setupFiles: prepared,
          maxWorkers: 1,
          sequence: { groupOrder: 2 }
        }
      }
    ]
  }
})
