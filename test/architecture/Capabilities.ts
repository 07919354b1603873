/**
 * Capabilities of each front door: the command's flags, the HTTP API, the configuration of sessions, the library.
 *
 * Data only. `capabilities.test.ts` compares it with the code and writes `docs/reference/capabilities.md`.
 */

/** One way to use the product. */
export const doors = ["run", "task", "serve", "chat", "mcp", "acp", "library"] as const

export type Door = (typeof doors)[number]

/** How a door offers a capability, or a sentence why it does not. */
export interface Cell {
  /** Flags of the command, without dashes. */
  readonly flags?: ReadonlyArray<string>
  /** Fields of the body of `POST /api/v1/ai/chat`. */
  readonly fields?: ReadonlyArray<string>
  /** Endpoints, such as `GET /api/v1/approvals`. */
  readonly endpoints?: ReadonlyArray<string>
  /** Flags of `grants create`. */
  readonly grant?: ReadonlyArray<string>
  /** Keys of a session's configuration, such as `sandbox.network`. */
  readonly keys?: ReadonlyArray<string>
  /** Fields of the spec of a run. */
  readonly spec?: ReadonlyArray<string>
  /** Modules of the packages, such as `proxy/PackageMirror`. */
  readonly modules?: ReadonlyArray<string>
  /** Environment variables. */
  readonly variables?: ReadonlyArray<string>
  /** A remark, or another command. */
  readonly note?: string
  /** Why the door does not offer it. A whole sentence; excludes all of the above. */
  readonly why?: string
}

export interface Capability {
  readonly name: string
  readonly cells: Readonly<Record<Door, Cell>>
}

const flags = (...names: ReadonlyArray<string>): Cell => ({ flags: names })
const keys = (...names: ReadonlyArray<string>): Cell => ({ keys: names })
const spec = (...names: ReadonlyArray<string>): Cell => ({ spec: names })
const modules = (...names: ReadonlyArray<string>): Cell => ({ modules: names })
const variables = (...names: ReadonlyArray<string>): Cell => ({ variables: names })
const why = (sentence: string): Cell => ({ why: sentence })
const note = (text: string): Cell => ({ note: text })

const noModelInMcp = why("Its sandbox has no model; the client has one.")
const onlyRuns = why("Its sandbox runs commands of the client, and no agent.")
const noRepository = why("It works in a directory, and its changes stay there.")

export const capabilities: ReadonlyArray<Capability> = [
  {
    name: "Agents and their personalities",
    cells: {
      run: flags("agent", "personality"),
      task: why("The loop of the host is its only agent."),
      serve: {
        fields: ["graphId", "personality"],
        endpoints: ["GET /api/v1/ai/agents", "GET /api/v1/host", "POST /api/v1/ai/chat"],
        grant: ["graph", "allow-sandbox"]
      },
      chat: keys("agent_configs", "routing"),
      mcp: onlyRuns,
      acp: flags("agent", "personality"),
      library: modules("graph-provider/agents/AgentRegistry", "promise/SandboxHost")
    }
  },
  {
    name: "Personalities, skills and subagents of a repository",
    cells: {
      run: variables("COGNI_CONFIG_DIR", "COGNI_CONFIG_MODELS"),
      task: why("The loop of the host has no personalities."),
      serve: {
        variables: ["COGNI_CONFIG_DIR", "COGNI_CONFIG_MODELS", "COGNI_CONFIG_REPOSITORY"],
        endpoints: [
          "POST /api/v1/personalities",
          "PATCH /api/v1/personalities/{name}",
          "POST /api/v1/skills",
          "PATCH /api/v1/skills/{name}"
        ],
        grant: ["propose"]
      },
      chat: why("Its agents are those of its own file."),
      mcp: onlyRuns,
      acp: variables("COGNI_CONFIG_DIR", "COGNI_CONFIG_MODELS"),
      library: modules(
        "sessions/config/PersonalityCatalog",
        "graph-provider/agents/AgentsWithPersonalities",
        "server/ConfigurationProposals"
      )
    }
  },
  {
    name: "A command instead of an agent",
    cells: {
      run: { flags: ["no-model"], note: "`run -- CMD`" },
      task: why("It exists for tasks in words."),
      serve: why("A caller over HTTP names an agent, so that an operator knows what runs."),
      chat: note("the tools of an agent"),
      mcp: flags("profile", "allow", "deny"),
      acp: why("An editor speaks with an agent."),
      library: spec("argv")
    }
  },
  {
    name: "Model",
    cells: {
      run: flags("model", "strict"),
      task: flags("model"),
      serve: { flags: ["model", "offer-model"], fields: ["model"], grant: ["model"] },
      chat: { flags: ["model"], keys: ["models"] },
      mcp: noModelInMcp,
      acp: flags("model", "strict"),
      library: spec("llm")
    }
  },
  {
    name: "Account, user and session",
    cells: {
      run: { variables: ["COGNI_BILLING_ACCOUNT"], flags: ["user", "session"] },
      task: { variables: ["COGNI_BILLING_ACCOUNT"], flags: ["user", "session"] },
      serve: { grant: ["account", "user"], fields: ["threadId"] },
      chat: { variables: ["COGNI_BILLING_ACCOUNT"], note: "for the sender and the session of each message" },
      mcp: noModelInMcp,
      acp: { variables: ["COGNI_BILLING_ACCOUNT"], flags: ["user"] },
      library: spec("llm")
    }
  },
  {
    name: "Proof of the billed account at the start",
    cells: {
      run: why("The proof costs a call and up to a minute; `spend reconcile` compares the rows later."),
      task: why("The proof costs a call and up to a minute; `spend reconcile` compares the rows later."),
      serve: variables("COGNI_IDENTITY_CHECK_MODEL"),
      chat: variables("COGNI_IDENTITY_CHECK_MODEL"),
      mcp: noModelInMcp,
      acp: why("It starts with each editor, and the proof costs a call and up to a minute."),
      library: modules("proxy/IdentityCheck")
    }
  },
  {
    name: "Budget of model calls",
    cells: {
      run: flags(
        "max-calls",
        "max-input-tokens",
        "max-output-tokens",
        "max-cost",
        "subagent-share",
        "stop-when-spent"
      ),
      task: {
        flags: ["max-calls", "max-input-tokens", "max-output-tokens", "max-cost"],
        note:
          "a refused call ends its loop, so it needs no flag to stop; the loop starts no subagents, so it has no " +
          "share for them"
      },
      serve: {
        flags: ["max-calls", "max-input-tokens", "max-output-tokens", "max-cost"],
        fields: ["budget"],
        grant: [
          "max-calls",
          "max-input-tokens",
          "max-output-tokens",
          "max-cost",
          "subagent-share",
          "stop-when-spent"
        ]
      },
      chat: {
        flags: ["max-calls", "max-input-tokens", "max-output-tokens", "max-cost"],
        note:
          "of a session, whose later messages then fail; a share for subagents is part of one run, and a session " +
          "outlives its messages, so it has none"
      },
      mcp: noModelInMcp,
      acp: flags(
        "max-calls",
        "max-input-tokens",
        "max-output-tokens",
        "max-cost",
        "subagent-share",
        "stop-when-spent"
      ),
      library: spec("llm")
    }
  },
  {
    name: "Limits of accounts, and the ledger",
    cells: {
      run: variables("COGNI_ACCOUNT_LIMITS_FILE"),
      task: variables("COGNI_ACCOUNT_LIMITS_FILE"),
      serve: { variables: ["COGNI_ACCOUNT_LIMITS_FILE"], flags: ["reconcile-every"] },
      chat: variables("COGNI_ACCOUNT_LIMITS_FILE"),
      mcp: noModelInMcp,
      acp: variables("COGNI_ACCOUNT_LIMITS_FILE"),
      library: modules("ledger/AccountLimits", "ledger/Ledger", "ledger/Reconciler")
    }
  },
  {
    name: "Proxy: a socket in a directory or in a container, or nginx for one run or for many",
    cells: {
      run: flags("proxy"),
      task: flags("proxy"),
      serve: flags("proxy"),
      chat: { flags: ["proxy"], note: "not an nginx for one run, which has no socket for the host" },
      mcp: why("Without a model, only the package mirror needs a socket, and its way is detected."),
      acp: flags("proxy"),
      library: modules("proxy/GatewayLlmProxy", "proxy/NginxLlmProxy", "proxy/SharedNginxLlmProxy")
    }
  },
  {
    name: "Whole bodies in the audit",
    cells: {
      run: flags("audit-bodies"),
      task: flags("audit-bodies"),
      serve: {
        flags: ["audit-bodies"],
        endpoints: [
          "GET /api/v1/runs/{id}/calls/{callId}/request",
          "GET /api/v1/runs/{id}/calls/{callId}/answer"
        ]
      },
      chat: flags("audit-bodies"),
      mcp: noModelInMcp,
      acp: flags("audit-bodies"),
      library: modules("proxy/GatewayLlmProxy", "proxy/AuditLog")
    }
  },
  {
    name: "Canaries",
    cells: {
      run: flags("canaries"),
      task: flags("canaries"),
      serve: flags("canaries"),
      chat: flags("canaries"),
      mcp: flags("canaries"),
      acp: flags("canaries"),
      library: spec("canaries")
    }
  },
  {
    name: "Host tools",
    cells: {
      run: flags("tool"),
      task: flags("tool"),
      serve: {
        fields: ["toolIds"],
        endpoints: ["GET /api/v1/runs/{id}/tools"],
        grant: ["tool", "close-tool"]
      },
      chat: keys("agent_configs"),
      mcp: why("The client has tools of its own."),
      acp: flags("tool"),
      library: spec("tools")
    }
  },
  {
    name: "Tools of MCP servers, SQL and HTTP",
    cells: {
      run: variables("COGNI_MCP_SERVERS_FILE", "COGNI_SQL_TOOL_FILE", "COGNI_HTTP_TOOLS_FILE"),
      task: variables("COGNI_MCP_SERVERS_FILE", "COGNI_SQL_TOOL_FILE", "COGNI_HTTP_TOOLS_FILE"),
      serve: variables("COGNI_MCP_SERVERS_FILE", "COGNI_SQL_TOOL_FILE", "COGNI_HTTP_TOOLS_FILE"),
      chat: variables("COGNI_MCP_SERVERS_FILE", "COGNI_SQL_TOOL_FILE", "COGNI_HTTP_TOOLS_FILE"),
      mcp: why("The client has tools of its own."),
      acp: variables("COGNI_MCP_SERVERS_FILE", "COGNI_SQL_TOOL_FILE", "COGNI_HTTP_TOOLS_FILE"),
      library: modules("proxy/tools/McpTools", "sql/ReadOnlyQuery", "proxy/tools/HttpTools")
    }
  },
  {
    name: "Approval of tool calls",
    cells: {
      run: flags("ask-tool"),
      task: flags("ask-tool"),
      serve: {
        flags: ["approval-wait"],
        endpoints: [
          "GET /api/v1/approvals",
          "POST /api/v1/approvals/{id}",
          "GET /api/v1/runs/{id}/approvals"
        ],
        grant: ["ask-tool", "approve"]
      },
      chat: { flags: ["ask-tool", "close-tool", "approval-wait"], note: "decided with `approvals`" },
      mcp: why("It has no host tools."),
      acp: { flags: ["ask-tool"], note: "the editor asks its user" },
      library: spec("toolRules")
    }
  },
  {
    name: "Connections: credentials of accounts",
    cells: {
      run: variables("COGNI_CONNECTIONS_KEY_FILE"),
      task: { variables: ["COGNI_CONNECTIONS_KEY_FILE"], note: "for its host tools" },
      serve: { variables: ["COGNI_CONNECTIONS_KEY_FILE"], grant: ["connection"] },
      chat: { variables: ["COGNI_CONNECTIONS_KEY_FILE"], note: "for its host tools" },
      mcp: why("It uses no repository and no host tool."),
      acp: variables("COGNI_CONNECTIONS_KEY_FILE"),
      library: modules("connections/ConnectionBroker", "git-relay/BrokerCredentials")
    }
  },
  {
    name: "Package mirror",
    cells: {
      run: flags("packages"),
      task: flags("packages"),
      serve: { fields: ["packages"], grant: ["packages"] },
      chat: keys("sandbox.packages"),
      mcp: flags("packages"),
      acp: flags("packages"),
      library: spec("packages")
    }
  },
  {
    name: "Work on a repository, and its delivery to a branch",
    cells: {
      run: flags("repo", "base", "branch", "push", "no-commit", "commit-message"),
      task: noRepository,
      serve: { fields: ["repository"], flags: ["host-repositories"], grant: ["repository"] },
      chat: why("A session has files of its own, which its users get through the agent."),
      mcp: noRepository,
      acp: { flags: ["workspace"], note: "`--workspace clone`" },
      library: modules("git-relay/RelayRun", "git-relay/HostGitRelay")
    }
  },
  {
    name: "Pull request",
    cells: {
      run: flags("pr"),
      task: noRepository,
      serve: { fields: ["repository.pullRequest"] },
      chat: why("A session has no repository."),
      mcp: noRepository,
      acp: why("A person at an editor opens it from the branch."),
      library: modules("git-relay/forge/PullRequests")
    }
  },
  {
    name: "Depth of the history",
    cells: {
      run: flags("depth"),
      task: noRepository,
      serve: { fields: ["repository.depth"] },
      chat: why("A session has no repository."),
      mcp: noRepository,
      acp: {
        flags: ["depth"],
        note: "with `--workspace clone`; the project's own directory has its whole history"
      },
      library: modules("git-relay/GitRelay")
    }
  },
  {
    name: "Changes as a patch",
    cells: {
      run: flags("patch"),
      task: flags("patch"),
      serve: { endpoints: ["GET /api/v1/runs/{id}/patch"] },
      chat: why("A session has no base to compare its files with."),
      mcp: why("The client sees the files, and compares them itself."),
      acp: why("The editor shows the changes of its project."),
      library: modules("git-relay/PatchRelay", "graph-provider/TaskRun")
    }
  },
  {
    name: "Kept commits: status and retry",
    cells: {
      run: note("`relay list`, `relay retry`, `relay drop`"),
      task: noRepository,
      serve: {
        endpoints: ["POST /api/v1/runs/{id}/relay/retry", "GET /api/v1/runs/{id}"],
        note: "the operator drops them with `relay drop`"
      },
      chat: why("A session has no repository."),
      mcp: noRepository,
      acp: note("`relay list`, `relay retry`, `relay drop`"),
      library: modules("git-relay/GitRelay")
    }
  },
  {
    name: "Workspace that stays",
    cells: {
      run: flags("workspace", "thread"),
      task: flags("workspace"),
      serve: {
        fields: ["threadId", "remember"],
        endpoints: ["GET /api/v1/threads", "GET /api/v1/threads/{key}", "DELETE /api/v1/threads/{key}"]
      },
      chat: keys("sandbox.persistent_workspaces"),
      mcp: flags("workspace", "idle"),
      acp: flags("workspace"),
      library: spec("workspace")
    }
  },
  {
    name: "Limits of a sandbox",
    cells: {
      run: flags("timeout", "memory", "cpus", "processes", "disk", "output-limit", "grace"),
      task: {
        flags: ["timeout", "memory", "cpus", "processes", "disk", "steps-max"],
        note: "its tools limit the output of each command"
      },
      serve: { fields: ["runtimeSecondsMax"], note: "the others are the agent's" },
      chat: {
        keys: ["sandbox.memory_limit", "sandbox.cpu_limit", "sandbox.timeout_seconds"],
        note: "the others have the defaults of the [spec](spec.md)"
      },
      mcp: {
        flags: ["timeout", "memory", "cpus", "processes", "disk"],
        note: "its tools limit the output of each command"
      },
      acp: flags("timeout", "memory", "cpus", "processes", "disk", "output-limit", "grace"),
      library: spec("limits")
    }
  },
  {
    name: "Image and variables",
    cells: {
      run: flags("image", "env"),
      task: flags("image", "env"),
      serve: why("A caller over HTTP names an agent, whose image the operator chooses."),
      chat: { keys: ["sandbox.image"], note: "which contains its variables" },
      mcp: flags("image", "env"),
      acp: flags("image", "env"),
      library: spec("image", "env")
    }
  },
  {
    name: "Internal network",
    cells: {
      run: why("Sandboxes on one network reach each other, so a flag must not open it by a slip."),
      task: why("Sandboxes on one network reach each other, so a flag must not open it by a slip."),
      serve: why("Runs of different accounts must not share a network."),
      chat: keys("sandbox.network", "sandbox.allow_unsafe_network"),
      mcp: why("Sandboxes on one network reach each other, so a flag must not open it by a slip."),
      acp: why("Sandboxes on one network reach each other, so a flag must not open it by a slip."),
      library: spec("network")
    }
  },
  {
    name: "Work at once, and rates",
    cells: {
      run: why("A command is one run."),
      task: why("A command is one task."),
      serve: {
        flags: [
          "max-runs",
          "max-runs-per-grant",
          "runs-per-minute",
          "requests-per-minute",
          "unknown-requests-per-minute",
          "max-connections",
          "body-limit",
          "drain"
        ],
        grant: ["max-runs"]
      },
      chat: keys("sandbox.sessions_max", "sandbox.when_full", "sandbox.idle_seconds"),
      mcp: why("A command has one client, and one sandbox at a time."),
      acp: why("A command has one editor, which sends one prompt of a session at a time."),
      library: modules("server/ServerLimits", "core/CallPace")
    }
  },
  {
    name: "Sandboxes that wait for runs",
    cells: {
      run: why("No process starts sandboxes before a command that runs once."),
      task: why("No process starts sandboxes before a command that runs once."),
      serve: {
        flags: ["pool", "pool-memory"],
        note: "for durable runs too: `worker` gives them to the server of its host"
      },
      chat: { flags: ["pool", "pool-memory"], note: "for new sessions" },
      mcp: {
        flags: ["pool", "pool-memory"],
        note: "for the first call, and the first one after an idle time"
      },
      acp: { flags: ["pool", "pool-memory"], note: "from the second prompt on" },
      library: modules("core/SandboxPool", "docker/HostSandboxPool")
    }
  },
  {
    name: "Run ID and repeated requests",
    cells: {
      run: flags("run-id"),
      task: flags("run-id"),
      serve: { fields: ["runId", "attempt"], note: "and the header `Idempotency-Key`" },
      chat: why("Its runs are sandboxes of sessions; `messageId` identifies a message."),
      mcp: why("Its sandbox is one run, and its ID is in the list of runs."),
      acp: why("Each prompt is a run with an ID of its own."),
      library: spec("runId")
    }
  },
  {
    name: "Runs that outlive their caller",
    cells: {
      run: why("A command follows its run, and ends it when it ends."),
      task: why("A command follows its task, and ends it when it ends."),
      serve: {
        endpoints: ["POST /api/v1/runs", "GET /api/v1/runs/{id}/answer", "DELETE /api/v1/runs/{id}"]
      },
      chat: why("A message gets one reply, within 15 minutes."),
      mcp: why("Its sandbox ends with its client."),
      acp: why("A prompt is cancelled when its editor leaves."),
      library: modules("server/SandboxServer")
    }
  },
  {
    name: "Callers who only look",
    cells: {
      run: why("The user who starts a command is the operator."),
      task: why("The user who starts a command is the operator."),
      serve: {
        endpoints: [
          "POST /api/v1/sign-in",
          "GET /api/v1/sign-in",
          "DELETE /api/v1/sign-in",
          "GET /api/v1/grants",
          "GET /api/v1/connections",
          "GET /api/v1/connections/{id}/uses"
        ],
        grant: ["read-only", "see-grants", "expires-in"]
      },
      chat: why("Each of its callers sends messages to an agent."),
      mcp: why("Its only client runs commands."),
      acp: why("Its only editor sends prompts."),
      library: modules("graph-provider/grants/ExecutionGrant")
    }
  },
  {
    name: "Records, events and recordings",
    cells: {
      run: note("`ps`, `top`, `logs`, `inspect`"),
      task: note("`ps`, `top`, `logs`, `inspect`"),
      serve: {
        endpoints: [
          "GET /api/v1/runs",
          "GET /api/v1/runs/{id}/events",
          "GET /api/v1/runs/{id}/recording",
          "GET /api/v1/runs/{id}/audit",
          "GET /api/v1/runs/{id}/audit/entries",
          "GET /api/v1/runs/{id}/calls",
          "GET /api/v1/runs/{id}/stdout",
          "GET /api/v1/runs/{id}/stderr"
        ],
        flags: ["no-page"]
      },
      chat: note("`ps`, `top`, `logs`, `inspect`"),
      mcp: note("`ps`, `top`, `logs`, `inspect`"),
      acp: note("`ps`, `top`, `logs`, `inspect`"),
      library: modules("core/RunStore", "core/RunJournal", "core/RunRecording")
    }
  },
  {
    name: "Durable runs on many hosts, by Temporal",
    cells: {
      run: note("`submit` and `schedule`, to hosts with `worker`"),
      task: note("`submit --graph sandbox:task`"),
      serve: flags(
        "durable",
        "share-events",
        "temporal",
        "namespace",
        "queue",
        "temporal-tls",
        "temporal-ca-file",
        "temporal-cert-file",
        "temporal-key-file",
        "temporal-server-name",
        "temporal-api-key-file",
        "temporal-insecure",
        "no-search",
        "time-limit",
        "placement-limit"
      ),
      chat: why("A session lives in one process, and its sandbox with it."),
      mcp: why("Its sandbox belongs to the client that started it."),
      acp: why("Its sandbox works in a directory of the editor's machine."),
      library: modules(
        "temporal/DurableGraphProvider",
        "temporal/DurableRuns",
        "temporal/RunSchedules",
        "temporal/RunWorker"
      )
    }
  },
  {
    name: "Traces, metrics, logs",
    cells: {
      run: variables("OTEL_EXPORTER_OTLP_ENDPOINT"),
      task: variables("OTEL_EXPORTER_OTLP_ENDPOINT"),
      serve: flags("operator-port", "operator-host", "trace-url", "log-format"),
      chat: flags("metrics-port", "log-format"),
      mcp: flags("metrics-port", "log-format"),
      acp: flags("metrics-port", "log-format"),
      library: modules("core/Telemetry")
    }
  },
  {
    name: "Demo upstream, without a model",
    cells: {
      run: flags("demo"),
      task: flags("demo"),
      serve: flags("demo"),
      chat: flags("demo"),
      mcp: noModelInMcp,
      acp: flags("demo"),
      library: modules("proxy/DemoUpstream")
    }
  },
  {
    name: "Execution on the host",
    cells: {
      run: why("An agent runs in a sandbox, or not at all."),
      task: why("An agent runs in a sandbox, or not at all."),
      serve: why("An agent runs in a sandbox, or not at all."),
      chat: { flags: ["host-directory"], keys: ["sandbox.on_unavailable"] },
      mcp: why("Its tools exist to be sealed."),
      acp: why("An agent runs in a sandbox, or not at all."),
      library: modules("sessions/executor/HostExecutor")
    }
  }
]

/** Flags that concern the command itself: its input, its output, its address. */
export const ofCommand: Readonly<Partial<Record<Door, ReadonlyArray<string>>>> = {
  run: ["prompt-file", "output", "quiet"],
  task: ["prompt-file", "output", "quiet"],
  serve: ["host", "port", "allow-remote", "host-name", "trusted-proxy"],
  chat: ["quiet"],
  mcp: [],
  acp: ["ignore-mcp-servers", "quiet"]
}
