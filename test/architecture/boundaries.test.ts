/**
 * The packages that each package may import, and the modules that may have effects outside of the process.
 *
 * `drawing` lists the first, `boundaries` the second. Only the command, examples and tests compose packages.
 */
import { assert, describe, it } from "@effect/vitest"
import { existsSync } from "node:fs"
import { dirname, join } from "node:path"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

const ours = "@cogni/sandbox-"

interface Boundary {
  /** External libraries that the package may import. `src/testing` may also use `@effect/vitest`. */
  readonly libraries: ReadonlyArray<string>
  /**
   * Modules that may access the world (files, sockets, processes, an engine), and the imports that they use for it.
   * Shrink it when you can; a new entry needs a reason in its pull request.
   */
  readonly world: Readonly<Record<string, ReadonlyArray<string>>>
}

/**
 * The accepted imports between our packages, floor by floor. An import only leads to a lower floor, so there are no
 * cycles. A new import needs a reason in its pull request. Code that two packages of one floor need belongs to a floor
 * below.
 */
const drawing: ReadonlyArray<
  Readonly<Partial<Record<SourceTree.Package, ReadonlyArray<SourceTree.Package>>>>
> = [
  {
    core: []
  },
  {
    "host-files": ["core"],
    connections: ["core"],
    ledger: ["core"],
    loop: ["core"]
  },
  {
    docker: ["core", "host-files"],
    proxy: ["core", "host-files", "ledger", "loop", "connections"],
    "git-relay": ["core", "host-files", "connections", "loop"],
    "graph-provider": ["core", "loop", "connections"],
    sessions: ["core", "host-files", "loop"]
  },
  {
    sql: ["core", "host-files", "connections", "graph-provider", "ledger"],
    // The configuration's own files: a change of them is checked before it is proposed.
    server: ["core", "connections", "git-relay", "graph-provider", "ledger", "proxy", "sessions"],
    promise: ["core", "host-files", "docker", "proxy", "graph-provider", "ledger"],
    react: ["graph-provider"],
    acp: ["core", "graph-provider"],
    temporal: ["core", "graph-provider"]
  },
  {
    deepagents: ["promise"],
    "ai-sdk": ["core", "promise"],
    "openai-agents": ["core", "host-files", "promise"],
    mastra: ["core", "promise"],
    page: ["core", "ledger", "react"]
  },
  {
    cli: [
      "core",
      "host-files",
      "connections",
      "docker",
      "proxy",
      "git-relay",
      "graph-provider",
      "ledger",
      "sql",
      "server",
      "loop",
      "sessions",
      "acp",
      "temporal"
    ]
  }
]

/** Our own packages that a package may import. */
const importable = (name: SourceTree.Package): ReadonlyArray<SourceTree.Package> =>
  drawing.flatMap((floor) => floor[name] ?? [])

const boundaries: Record<SourceTree.Package, Boundary> = {
  core: { libraries: ["effect"], world: {} },
  // Host access: the only package that opens paths for writing, and that starts the process's own programs.
  "host-files": {
    libraries: ["effect"],
    world: {
      "Descriptor.ts": ["node:fs", "node:fs/promises"],
      "HeldDirectory.ts": ["node:fs", "node:fs/promises"],
      "HostFile.ts": ["node:fs", "node:fs/promises"],
      "HostPath.ts": ["node:fs/promises"],
      "HostProgram.ts": ["node:child_process"],
      "HostTree.ts": ["node:fs/promises"],
      "KeptDirectory.ts": ["node:fs/promises"],
      "KernelFile.ts": ["node:fs"],
      "MountIdentity.ts": ["node:fs/promises"],
      "OwnFiles.ts": ["node:fs", "node:fs/promises", "node:os"],
      // Only compares addresses.
      "PublicAddress.ts": ["node:net"],
      "StateDirectory.ts": ["node:os"],
      "WorkspaceFiles.ts": ["node:fs", "node:fs/promises"],
      "WorkspaceWalk.ts": ["node:fs", "node:fs/promises"],
      "internal/InheritedDescriptor.ts": ["node:fs", "node:fs/promises", "node:net"]
    }
  },
  loop: {
    libraries: [
      "@ai-sdk/openai-compatible",
      "@ai-sdk/provider",
      "@modelcontextprotocol/client",
      "@modelcontextprotocol/server",
      "effect"
    ],
    world: { "internal/HostFetch.ts": ["node:http", "node:https"] }
  },
  // JOSE's own library encrypts stored secrets. It uses the platform's cryptography.
  connections: { libraries: ["effect", "jose"], world: {} },
  docker: {
    libraries: ["effect"],
    world: {
      "DockerContainerRuntime.ts": ["node:os"],
      "DockerDoctor.ts": ["node:fs", "node:fs/promises"],
      "FileRunJournal.ts": ["node:fs", "node:fs/promises"],
      "FileRunStore.ts": ["node:fs/promises"],
      "HostOwner.ts": ["node:fs", "node:os"],
      "HostWorkspace.ts": ["node:fs", "node:fs/promises", "node:os"],
      "RunSpool.ts": ["node:fs/promises"],
      "internal/container/HostsFile.ts": ["node:fs/promises", "node:os"],
      "internal/container/KernelFacts.ts": ["node:fs"],
      "internal/container/Supervisor.ts": ["node:os"],
      "internal/engine/EngineHttp.ts": ["node:http"],
      "internal/host/DiskLooks.ts": ["node:fs/promises"],
      "internal/host/PoolReports.ts": ["node:fs/promises"],
      "internal/host/SpecialFiles.ts": ["node:fs", "node:fs/promises"],
      "internal/host/UnsettledRuns.ts": ["node:fs/promises"],
      "internal/host/WaitingDirectories.ts": ["node:fs/promises"],
      "WaitingRemains.ts": ["node:fs/promises"],
      "internal/host/WorkspaceClaims.ts": ["node:fs/promises"],
      "internal/host/WorkspaceMeasure.ts": ["node:fs/promises"]
    }
  },
  proxy: {
    // Tunnels through the HTTP proxy of a company. Node's own support is missing before 22.21.
    libraries: ["effect", "hpagent"],
    world: {
      "GatewayLlmProxy.ts": ["node:os"],
      "internal/HostDisk.ts": ["node:fs/promises"],
      "internal/ManagementRequest.ts": ["node:http", "node:https"],
      "internal/ThreadCode.ts": ["node:worker_threads"],
      "internal/audit/AuditFile.ts": ["node:fs/promises"],
      "internal/audit/AuditReading.ts": ["node:fs"],
      "internal/audit/AuditRecovery.ts": ["node:fs"],
      "internal/carrier/HostDirectoryCarrier.ts": ["node:fs/promises"],
      "internal/carrier/SocketTunnel.ts": ["node:http2", "node:net"],
      "internal/gateway/GatewayServer.ts": ["node:http"],
      "internal/gateway/InspectionWorker.ts": ["node:os", "node:worker_threads"],
      "internal/gateway/SocketListener.ts": ["node:fs", "node:fs/promises"],
      "internal/gateway/UpstreamClient.ts": ["node:http", "node:https", "node:tls"],
      "internal/packages/FileCache.ts": ["node:fs/promises"],
      "internal/packages/RegistryClient.ts": ["node:dns", "node:http", "node:https", "node:zlib"],
      "internal/nginx/AuditDirectory.ts": ["node:fs", "node:fs/promises"],
      "internal/nginx/HostRelay.ts": ["node:fs/promises", "node:tls"],
      "internal/nginx/RelaySocket.ts": ["node:net", "node:tls"],
      "internal/nginx/RelayWorker.ts": ["node:fs/promises", "node:tls", "node:worker_threads"],
      "internal/nginx/SharedNginx.ts": ["node:fs/promises"],
      "internal/shards/ShardPool.ts": ["node:module", "node:worker_threads"],
      "internal/shards/ShardWorker.ts": ["node:module", "node:worker_threads"],
      // Requests of tools: compares the addresses of a name before it connects.
      "internal/tools/GuardedRequest.ts": ["node:dns", "node:http", "node:https", "node:net", "node:os"],
      "ScriptedModelApi.ts": ["node:http"],
      "SharedNginxLlmProxy.ts": ["node:fs/promises"]
    }
  },
  "git-relay": {
    libraries: ["@secretlint/core", "@secretlint/secretlint-rule-preset-recommend", "effect", "picomatch"],
    world: {
      "internal/git/HostRepository.ts": ["node:fs/promises"],
      "internal/git/RelayFiles.ts": ["node:fs/promises"],
      "internal/origin/MirrorCache.ts": ["node:fs/promises"],
      "internal/origin/OriginRoute.ts": ["node:dns/promises", "node:net", "node:os"],
      "internal/origin/RootDelivery.ts": ["node:fs", "node:fs/promises"],
      "internal/policy/SecretScan.ts": ["node:module"],
      "internal/steps/BundleExport.ts": ["node:fs/promises"],
      "internal/steps/BundleImport.ts": ["node:fs/promises"],
      "internal/steps/KeptRuns.ts": ["node:fs/promises"]
    }
  },
  "graph-provider": { libraries: ["effect"], world: {} },
  ledger: { libraries: ["effect"], world: {} },
  sql: {
    libraries: ["@effect/sql-pg", "effect"],
    world: { "SqliteDatabase.ts": ["node:sqlite"] }
  },
  sessions: {
    libraries: ["effect", "yaml"],
    // Commands on the host itself go through the process module of Effect.
    world: {
      "internal/HostCommand.ts": ["node:os"]
    }
  },
  // Which format a scraper of metrics prefers, and the text of both.
  server: { libraries: ["effect", "negotiator", "prom-client"], world: {} },
  promise: { libraries: ["effect"], world: {} },
  deepagents: { libraries: ["deepagents"], world: {} },
  "ai-sdk": { libraries: [], world: {} },
  "openai-agents": {
    libraries: ["@openai/agents-core", "effect"],
    // Removes snapshots that it has written.
    world: { "internal/Snapshots.ts": ["node:fs/promises"] }
  },
  mastra: { libraries: ["@mastra/core", "effect"], world: {} },
  acp: { libraries: ["@agentclientprotocol/sdk", "effect"], world: {} },
  temporal: {
    libraries: [
      "@temporalio/activity",
      "@temporalio/client",
      "@temporalio/common",
      "@temporalio/worker",
      "@temporalio/workflow",
      "effect"
    ],
    world: {
      // Certificates are parsed before they are used.
      "internal/Connecting.ts": ["node:tls"],
      // The cores and the memory that a host offers.
      "internal/HostWorker.ts": ["node:os"],
      // Why the SDK could not connect.
      "internal/Reaching.ts": ["node:net", "node:tls"],
      // The version of the SDK.
      "internal/WorkflowCode.ts": ["node:module"]
    }
  },
  react: {
    libraries: ["@tanstack/react-query", "effect", "react"],
    world: {}
  },
  page: {
    libraries: [
      "@tanstack/react-query",
      "@tanstack/react-router",
      "@tanstack/react-table",
      "@xterm/addon-fit",
      "@xterm/xterm",
      "effect",
      "eventsource-parser",
      "react",
      "react-aria-components",
      "react-diff-view",
      "react-dom",
      "recharts"
    ],
    world: {}
  },
  cli: {
    libraries: ["@effect/platform-node", "csv-stringify", "effect"],
    world: {
      "CompiledCode.ts": ["node:module"],
      "MetricsPort.ts": ["node:http", "node:perf_hooks"],
      "ServeCommand.ts": ["node:http"],
      "bin.ts": ["node:module"]
    }
  }
}

/** Modules of Node that only compute, or move the bytes of streams that other code has opened. */
const pureModules = new Set([
  "node:buffer",
  "node:crypto",
  "node:path",
  "node:stream",
  "node:stream/promises",
  "node:url",
  "node:util"
])

const fileOf = (name: SourceTree.Package, module: string) => `packages/${name}/src/${module}`

/** `effect/testing/TestClock` → `effect`, `@cogni/sandbox-core/RunId` → `@cogni/sandbox-core`. */
const libraryOf = (specifier: string): string =>
  specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/")

const isWorld = (specifier: string) => specifier.startsWith("node:") && !pureModules.has(specifier)

describe("package boundaries", () => {
  it("list every package, and only packages that exist", () => {
    const found = SourceTree.files("packages/*/package.json").map((path) => path.split("/")[1])
    assert.sameMembers(
      found,
      [...SourceTree.packages],
      "list a new package in SourceTree.ts and in this file"
    )
    const empty = SourceTree.packages.filter(
      (name) => SourceTree.hasIndex(name) && !existsSync(join(SourceTree.root, fileOf(name, "index.ts")))
    )
    none(empty, "these packages have no src/index.ts")
  })

  it("have every package once, with imports only from floors below", () => {
    const floors = drawing.map((floor) => Object.keys(floor))
    assert.sameMembers(floors.flat(), [...SourceTree.packages])
    const up = SourceTree.packages.flatMap((name) => {
      const own = floors.findIndex((floor) => floor.includes(name))
      const below = new Set(floors.slice(0, own).flat())
      return importable(name)
        .filter((other) => !below.has(other))
        .map((other) => `${name} → ${other}`)
    })
    none(up, "a package may import only packages on a floor below it")
  })

  it("are the same in docs/architecture.md", () => {
    const all = SourceTree.packages.filter((name) => name !== "cli")
    const rows = drawing.flatMap((floor, index) =>
      SourceTree.packages.flatMap((name) => {
        const imported = floor[name]
        if (imported === undefined) return []
        const missing = all.filter((other) => !imported.includes(other))
        const list =
          imported.length === 0
            ? "–"
            : name === "cli"
              ? `all but ${missing.map((other) => `\`${other}\``).join(", ")}`
              : imported.map((other) => `\`${other}\``).join(", ")
        return [`| ${index + 1} | \`${name}\` | ${list} |`]
      })
    )
    const page = SourceTree.read("docs/architecture.md")
    none(
      rows.filter((row) => !page.includes(`\n${row} `)),
      "docs/architecture.md needs these rows"
    )
  })

  for (const name of SourceTree.packages) {
    const { libraries, world } = boundaries[name]
    const packages = importable(name)

    it(`${name} imports ${packages.length === 0 ? "no other package of ours" : `only ${packages.join(", ")}`}`, () => {
      const offenders = SourceTree.modules(name).flatMap((module) =>
        SourceTree.imports(fileOf(name, module))
          .map(({ specifier }) => specifier)
          .filter((specifier) => specifier.startsWith(ours))
          .filter((specifier) => !packages.some((other) => libraryOf(specifier) === `${ours}${other}`))
          .map((specifier) => `${fileOf(name, module)} → ${specifier}`)
      )
      none(offenders, "compose packages in cli, examples or test; shared code belongs to core")
    })

    it(`${name} imports no external libraries except ${libraries.join(", ")}`, () => {
      const offenders = SourceTree.modules(name).flatMap((module) =>
        SourceTree.imports(fileOf(name, module))
          .map(({ specifier }) => libraryOf(specifier))
          .filter((library) => !/^(?:\.{1,2}$|node:|@cogni\/sandbox-)/u.test(library))
          .filter((library) => !libraries.includes(library))
          .filter((library) => !(module.startsWith("testing/") && library === "@effect/vitest"))
          .map((library) => `${fileOf(name, module)} → ${library}`)
      )
      none(offenders, "a new dependency needs an ADR that explains what it replaces")
    })

    it(`${name} accesses the world only in the listed modules`, () => {
      const found = Object.fromEntries(
        SourceTree.modules(name).flatMap((module) => {
          const used = SourceTree.imports(fileOf(name, module))
            .filter(({ specifier, typeOnly }) => !typeOnly && isWorld(specifier))
            .map(({ specifier }) => specifier)
          return used.length === 0 ? [] : [[module, [...new Set(used)].toSorted()] as const]
        })
      )
      assert.deepStrictEqual(
        found,
        world as typeof found,
        "keep decisions pure and effects at the edge; remove entries that are no longer needed"
      )
    })
  }

  it("core imports nothing from Node, not even a type", () => {
    const offenders = SourceTree.modules("core").flatMap((module) =>
      SourceTree.imports(fileOf("core", module))
        .filter(({ specifier }) => specifier.startsWith("node:"))
        .map(({ specifier }) => `${fileOf("core", module)} → ${specifier}`)
    )
    none(offenders, "core defines ports; a package that accesses the world implements them")
  })

  it("a gateway thread loads only the modules of Effect that it needs", () => {
    const loaded = new Set<string>()
    const load = (path: string): ReadonlyArray<string> => {
      if (loaded.has(path)) return []
      loaded.add(path)
      return SourceTree.imports(path).flatMap(({ specifier, typeOnly }) => {
        if (typeOnly) return []
        if (specifier === "effect") return [`${path} → ${specifier}`]
        const [, name, module] = /^@cogni\/sandbox-([a-z-]+)\/(.+)$/u.exec(specifier) ?? []
        if (module !== undefined) return load(`packages/${name}/src/${module}.ts`)
        return specifier.startsWith(".") ? load(join(dirname(path), specifier)) : []
      })
    }
    none(
      load("packages/proxy/src/internal/shards/Shard.ts"),
      "import single modules such as effect/Schema: otherwise each thread loads all of Effect, which takes 10 MB"
    )
    assert.isTrue(loaded.has("packages/proxy/src/internal/policy/RequestBody.ts"))
  })

  it("no module imports another package's internal modules", () => {
    const offenders = SourceTree.sources().flatMap((path) =>
      SourceTree.imports(path)
        .filter(({ specifier }) => /^@cogni\/sandbox-[a-z-]+\/(?:internal|src|dist)\//u.test(specifier))
        .map(({ specifier }) => `${path} → ${specifier}`)
    )
    none(offenders, "export the module, or test it through the package's exports")
  })

  it("only KeyInjection unwraps an upstream key, CredentialUse a git credential, GrantToken a grant's token, Connecting one for Temporal, and SecretUse others", () => {
    const users = SourceTree.files("packages/*/src/**/*.{ts,tsx}").filter((path) =>
      SourceTree.members(path).some(({ text }) => text === "Redacted.value")
    )
    assert.deepStrictEqual(
      users,
      [
        fileOf("connections", "internal/SecretUse.ts"),
        // The token of a run, for the environment of its own sandbox.
        fileOf("core", "internal/WayOut.ts"),
        fileOf("git-relay", "internal/git/CredentialUse.ts"),
        // A caller's token is only compared by its hash.
        fileOf("graph-provider", "grants/GrantToken.ts"),
        fileOf("proxy", "KeyInjection.ts"),
        // The credentials of the host's own connection to Temporal.
        fileOf("temporal", "internal/Connecting.ts")
      ],
      "pass on the Redacted value; see docs/threat-model.md"
    )
  })

  it("only ResourceLabels contains label names, and only Telemetry contains span attributes", () => {
    const spelled = (pattern: RegExp, except: string) =>
      SourceTree.files("packages/*/src/**/*.{ts,tsx}")
        .filter((path) => path !== except && [...SourceTree.strings(path)].some((text) => pattern.test(text)))
        .map((path) => `${path} contains ${String(pattern)}`)
    none(
      [
        ...spelled(/dev\.cogni\.sandbox/u, fileOf("core", "ResourceLabels.ts")),
        ...spelled(
          /^(?:(?:sandbox|gen_ai|container)\.|cogni\.[a-z_]+\.)[a-z_.]+$/u,
          fileOf("core", "Telemetry.ts")
        )
      ],
      "use the constant from that module, or add one there"
    )
  })

  it("packages declare their imports, and tsconfig.json references the same packages", () => {
    for (const name of SourceTree.packages) {
      const manifest = SourceTree.readJson(`packages/${name}/package.json`)
      const declared = [
        ...Object.keys(manifest.dependencies ?? {}),
        ...Object.keys(manifest.peerDependencies ?? {})
      ]
      const imported = SourceTree.modules(name)
        .flatMap((module) => SourceTree.imports(fileOf(name, module)))
        .map(({ specifier }) => libraryOf(specifier))
        .filter((library) => !library.startsWith("node:") && !library.startsWith("."))
      // The package of images has no modules.
      const missing = [...new Set(imported)].filter((library) => !declared.includes(library))
      none(missing, `packages/${name}/package.json does not declare these`)
      const references = (
        SourceTree.readJson(`packages/${name}/tsconfig.json`).references as ReadonlyArray<{ path: string }>
      )
        .map(({ path }) => `${ours}${path.replace("../", "")}`)
        .toSorted()
      const internal = declared
        .filter((library) => library.startsWith(ours) && library !== `${ours}images`)
        .toSorted()
      assert.deepStrictEqual(
        references,
        internal,
        `packages/${name}/tsconfig.json must reference the dependencies of package.json`
      )
    }
  })
})
