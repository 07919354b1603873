/**
 * Tasks over real Docker: the provider, the AI SDK on the run's own socket, the real gateway, and a scripted model.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as Forge from "@cogni/sandbox-git-relay/forge/Forge"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import * as HostGitRelay from "@cogni/sandbox-git-relay/HostGitRelay"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import type { GraphFinal, GraphRun } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import * as GrantStore from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as TaskGraphProvider from "@cogni/sandbox-graph-provider/graphs/TaskGraphProvider"
import * as AiSdkChatModel from "@cogni/sandbox-loop/AiSdkChatModel"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as RelayRepositories from "@cogni/sandbox-server/RelayRepositories"
import { Effect, Layer, Redacted, Stream } from "effect"
import { execFileSync } from "node:child_process"
import { chownSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import * as GraphHarness from "./GraphHarness.ts"
import * as Images from "./Images.ts"
import * as RunHarness from "./RunHarness.ts"

export const key = "sk-planted-52c9e1-for-tasks"

/** A new run ID. It is random, because two test files that run at once name containers on the same engine. */
export const nextRunId = () => RunId.make(`run-tasks-${crypto.randomUUID()}`)

const git = (directory: string, args: ReadonlyArray<string>): string =>
  execFileSync(
    "git",
    ["-c", "safe.directory=*", "-c", "user.name=t", "-c", "user.email=t@example.org", ...args],
    {
      cwd: directory,
      encoding: "utf8",
      stdio: "pipe",
      env: { PATH: "/usr/local/bin:/usr/bin:/bin", HOME: directory, GIT_CONFIG_NOSYSTEM: "1" }
    }
  )

const files = (directory: string): ReadonlyArray<string> =>
  readdirSync(directory, { recursive: true, withFileTypes: true }).map((entry) =>
    join(entry.parentPath, entry.name)
  )

export interface Project {
  /** The repository that both were cloned from. */
  readonly origin: string
  /** A clone for the run, owned by an ordinary user whose ID no image knows. */
  readonly workspace: string
  /** Another clone of the same commit, for applying the patch. */
  readonly fresh: string
  readonly git: typeof git
}

/** Makes a repository with one commit, and clones it twice. */
export const project = (content: Readonly<Record<string, string>>) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-task-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
    ),
    (home): Project => {
      const [origin, workspace, fresh] = ["origin", "workspace", "fresh"].map((name) => join(home, name))
      mkdirSync(origin!)
      for (const [file, text] of Object.entries(content)) {
        mkdirSync(dirname(join(origin!, file)), { recursive: true })
        writeFileSync(join(origin!, file), text)
      }
      git(origin!, ["init", "-q", "-b", "main"])
      git(origin!, ["add", "."])
      git(origin!, ["commit", "-qm", "Begin"])
      for (const clone of [workspace!, fresh!]) git(home, ["clone", "-q", origin!, clone])
      if (process.getuid?.() === 0)
        for (const path of [workspace!, ...files(workspace!)]) chownSync(path, 4711, 4711)
      return { origin: origin!, workspace: workspace!, fresh: fresh!, git }
    }
  )

/** A graph executor with the task graph, and the services of {@link RunHarness}. */
export const layer = <E = never, R = never>(
  upstreamUrl: string,
  options: Omit<TaskGraphProvider.TaskGraphOptions, "enabled" | "imageOf" | "models"> = {},
  repositories: Layer.Layer<Repositories.Repositories, E, R> = Repositories.layerNoop as Layer.Layer<
    Repositories.Repositories,
    E,
    R
  >
) =>
  AggregatingGraphExecutor.layer([TaskGraphProvider.TaskGraphProvider]).pipe(
    Layer.provide(
      TaskGraphProvider.layer({ ...options, models: ["**"], enabled: true, imageOf: Images.ofAgent })
    ),
    Layer.provide(Layer.mergeAll(AiSdkChatModel.layer(), GraphObserver.layerNone, repositories)),
    Layer.provideMerge(GrantStore.layerMemory),
    Layer.provideMerge(
      RunHarness.layer(
        GatewayLlmProxy.layer({ url: upstreamUrl, key: Redacted.make(key), image: Images.gateway }).pipe(
          Layer.provide(UsageObserver.layerNone)
        )
      )
    )
  )

/** Repositories of this host, through the relay. */
export const repositories = RelayRepositories.layer({ hostOrigins: true }).pipe(
  Layer.provide(
    Layer.unwrap(
      Effect.map(RunHarness.Directory, (directory) =>
        HostGitRelay.layer({ directory: join(directory, "relays"), image: Images.runtime, owners: HostOwner })
      )
    )
  ),
  Layer.provide(Forge.layer({ forges: {} })),
  Layer.provide(GitCredentials.layerTokens([]))
)

export interface Told {
  readonly events: ReadonlyArray<AiEvent>
  readonly final: GraphFinal
}

/** Executes one run to its end; `meanwhile` is called for each event. */
export const told = Effect.fnUntraced(function* <E = never, R = never>(
  over: Parameters<typeof GraphHarness.request>[0],
  runId: RunId,
  grant: Partial<Pick<ExecutionGrant, "allowSandbox" | "scopes">> = {},
  meanwhile: (run: GraphRun, event: AiEvent) => Effect.Effect<void, E, R> = () => Effect.void
) {
  const store = yield* GrantStore.GrantStore
  const { grant: granted } = yield* store.issue({
    userId: "user-tasks",
    billingAccountId: GraphHarness.account,
    scopes: ["graph:execute:*"],
    allowSandbox: true,
    permissions: { tools: ["**"], repositories: ["**"] },
    expiresAt: null,
    ...grant
  })
  const executor = yield* AggregatingGraphExecutor.GraphExecutor
  return yield* Effect.scoped(
    Effect.gen(function* () {
      const run = yield* executor.run(GraphHarness.request(over), {
        runId,
        attempt: 0,
        ingressRequestId: "in-tasks",
        grantId: granted.id
      })
      const events: Array<AiEvent> = []
      yield* Stream.runForEach(run.events, (event) => {
        events.push(event)
        return meanwhile(run, event)
      })
      return { events, final: yield* run.final } satisfies Told
    })
  )
})
