/** Settings of an environment that names nothing: no upstream, no model, no packages. */
import * as Thread from "@cogni/sandbox-graph-provider/threads/Thread"
import * as CommitPolicy from "@cogni/sandbox-git-relay/CommitPolicy"
import { Result } from "effect"
import type { Settings } from "../src/Settings.ts"

export const absent: Settings["Service"] = {
  stateDirectory: "/state",
  database: Result.succeed({ address: { _tag: "Sqlite", path: "/state/cogni.db" }, variable: undefined }),
  databaseFile: undefined,
  dockerHost: undefined,
  engineRuntime: undefined,
  runtimeImage: "cogni/runtime:1",
  proxyImage: "cogni/proxy:1",
  gatewayImage: "cogni/gateway:1",
  imageOf: (image) => `cogni/${image}:1`,
  packages: Result.succeed(undefined),
  accountLimits: Result.succeed(undefined),
  connections: Result.succeed({ keys: undefined, gitHubApp: undefined }),
  httpTools: Result.succeed([]),
  mcpServers: Result.succeed([]),
  sqlTool: Result.succeed(undefined),
  prices: undefined,
  rowsSeconds: undefined,
  threads: Thread.defaultLimits,
  temporal: {},
  identityCheckModel: undefined,
  configDirectory: undefined,
  configRepository: undefined,
  configBranch: undefined,
  configModels: undefined,
  prometheusUrl: undefined,
  runKeys: { mode: "off", deployment: "test" },
  upstreamOptions: Result.succeed({ profile: {} }),
  upstreamFiles: [],
  keyFile: undefined,
  images: Result.succeed({ policy: { pull: "never" }, cosignPublicKey: undefined }),
  imageKeyFile: undefined,
  isNamed: { runtime: false, gateway: false },
  upstream: { _tag: "Absent" },
  model: undefined,
  billingAccountId: "acct",
  isAccountNamed: true,
  sandboxEnabled: false,
  git: Result.succeed({
    tokens: [],
    gitHubServer: "https://github.com",
    gitHubApi: undefined,
    gitLabServer: "https://gitlab.com",
    forges: [],
    network: { caFile: undefined, proxyUrl: undefined, noProxy: undefined },
    policies: CommitPolicy.defaults
  })
}
