/**
 * `cogni-sandbox mcp`: an MCP server on standard input and output, whose tools run in a sealed sandbox.
 *
 * Standard output carries only the protocol. The first call that needs the sandbox opens it. It closes when it is idle
 * for a while, when the input ends, or on a signal. Without `--workspace`, the files end with the sandbox, so it does
 * not close when idle, and no second one opens.
 */
import { unwrap } from "@cogni/sandbox-core/ExecutorCommand"
import * as RunId from "@cogni/sandbox-core/RunId"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { InvalidSpec } from "@cogni/sandbox-core/SandboxReason"
import { type Sandbox, SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as SchemaIssues from "@cogni/sandbox-core/SchemaIssues"
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import * as CurrentTime from "@cogni/sandbox-proxy/tools/CurrentTime"
import * as ExecutorTools from "@cogni/sandbox-loop/ExecutorTools"
import * as McpServer from "@cogni/sandbox-loop/McpServer"
import type { ToolProfile } from "@cogni/sandbox-loop/ToolProfile"
import { Duration, Effect, RcRef, Result, Stdio } from "effect"
import * as Composition from "./Composition.ts"
import { type Refusal, refusal, refuse } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import * as MetricsPort from "./MetricsPort.ts"
import * as Output from "./Output.ts"
import * as PoolFlags from "./PoolFlags.ts"
import * as Reaping from "./Reaping.ts"
import * as RunPlan from "./RunPlan.ts"
import { Settings } from "./Settings.ts"

export type McpInput = Flags.Typed<typeof Flags.mcp & typeof PoolFlags.mcp>

/** Options of the server. */
export interface McpPlan {
  readonly spec: SandboxSpec.OpenSpecInput
  readonly profile: ToolProfile
  readonly allow: ReadonlyArray<string>
  readonly deny: ReadonlyArray<string>
  /** Path of the workspace on the host; `undefined` for a temporary workspace. */
  readonly hostDirectory: string | undefined
  /** Idle time after which the sandbox closes; `undefined` for never. */
  readonly idleSeconds: number | undefined
}

/** Default lifetime of one sandbox: the maximum of a spec. */
const sandboxSecondsDefault = 86_400

const idleSecondsDefault = 15 * 60

export const mcp = Effect.fnUntraced(function* (input: McpInput) {
  const settings = yield* Settings
  const { logFormat: _, metricsPort, pool, poolMemoryBytes, ...asked } = input
  yield* PoolFlags.checked(input)
  const served = yield* Effect.fromResult(plan(asked, settings))
  yield* valid(served.spec)
  const how = {
    wayOut: { _tag: "None" },
    pool,
    poolMemoryBytes,
    keep: served.spec
  } as const
  yield* Effect.gen(function* () {
    yield* MetricsPort.opened(metricsPort)
    const tidy = yield* Reaping.inBackground
    yield* tidy.begin
    yield* serve(served)
  }).pipe(Effect.provide(Composition.runner(settings, how)), Effect.scoped)
})

/** Derives the options of the server from the flags. Its sandboxes have no access to a model. */
export const plan = (
  input: Omit<McpInput, "logFormat" | "metricsPort" | keyof typeof PoolFlags.mcp>,
  { runtimeImage }: Pick<Settings["Service"], "runtimeImage">
): Result.Result<McpPlan, Refusal> => {
  const { allow, deny, idleSeconds, profile, workspace, ...flags } = input
  const timeoutSeconds = flags.timeoutSeconds ?? sandboxSecondsDefault
  return idleSeconds !== undefined && workspace === undefined
    ? refuse(
        "usage",
        "--idle without --workspace would lose the files of the tools",
        "Name a workspace, or leave --idle out"
      )
    : Result.succeed({
        spec: RunPlan.termsOf({ ...flags, timeoutSeconds, workspace }, runtimeImage),
        profile,
        allow,
        deny,
        hostDirectory: workspace,
        idleSeconds: workspace === undefined ? undefined : (idleSeconds ?? idleSecondsDefault)
      })
}

/** Serves until the input ends. */
export const serve = Effect.fnUntraced(function* ({ allow, deny, hostDirectory, profile, ...rest }: McpPlan) {
  const output = yield* Output.Output
  const stdio = yield* Stdio.Stdio
  yield* valid(rest.spec)
  const runId = yield* RunId.generate
  const executor = yield* lazily({ ...rest, runId, reopens: hostDirectory !== undefined })
  const registry = yield* ExecutorTools.registry(executor, {
    profile,
    overrides: { allow, deny },
    more: [CurrentTime.tool],
    hostDirectory
  }).pipe(Effect.mapError(({ message }) => refusal("usage", message, "See --profile, --allow and --deny")))
  yield* McpServer.serveLines(
    { input: stdio.stdin, write: output.stdoutJson },
    {
      registry,
      session: { runId, identity: { billingAccountId: "local", attempt: 0 } },
      instructions: instructionsOf(hostDirectory)
    }
  ).pipe(
    Effect.catchTag("McpFailed", ({ detail, remedy }) =>
      Effect.fail(refusal("input", `the MCP connection ${detail}`, remedy))
    )
  )
}, Effect.scoped)

/** Validates the spec at the start, so that the user sees the error. A calling model could not correct it. */
const valid = (spec: McpPlan["spec"]) =>
  SpecDecoder.decodeOpen(spec).pipe(
    Effect.mapError(
      (error) => new SandboxError({ reason: new InvalidSpec({ problems: SchemaIssues.problemsOf(error) }) })
    )
  )

const instructionsOf = (hostDirectory: string | undefined) =>
  `Tools act inside a sealed sandbox without a network, on the files of its workspace, ${SandboxPlace.target}` +
  (hostDirectory === undefined
    ? ", which is empty at first and ends with the session."
    : `, which is ${hostDirectory} of the user's machine; paths may be given in either form.`)

interface LazyOptions {
  readonly spec: SandboxSpec.OpenSpecInput
  readonly idleSeconds: number | undefined
  /** ID of the first sandbox. Later ones get generated IDs. */
  readonly runId: RunId.RunId
  /** Whether a later sandbox has the files of one that has ended. */
  readonly reopens: boolean
}

/** Makes an executor whose first command opens the sandbox. */
const lazily = Effect.fnUntraced(function* ({ idleSeconds, reopens, runId, spec }: LazyOptions) {
  const runner = yield* SandboxRunner
  const output = yield* Output.Output
  const scope = yield* Effect.scope
  let opened = 0
  /** Why no further sandbox can be opened. */
  let over: SandboxError | undefined

  const lost = (error: SandboxError) =>
    Effect.andThen(
      Effect.logWarning(
        `${reopens ? "the sandbox has ended, and the next call opens another" : "the sandbox has ended, and its files are lost; restart the server to open another"}: ${error.message}`
      ),
      Effect.suspend(() => {
        if (!reopens) over = error
        return RcRef.invalidate(ref)
      })
    )

  const open = Effect.gen(function* () {
    if (over !== undefined) return yield* over
    const sandbox = yield* runner.open(opened++ === 0 ? { ...spec, runId } : spec)
    yield* output.stderr(`· ${sandbox.runId}: the sandbox is open\n`)
    // This fiber ends with the sandbox. `lost` closes the sandbox, so it must run in the outer scope to survive that.
    yield* Effect.forkScoped(
      Effect.flatMap(Effect.flip(sandbox.ended), (error) => Effect.forkIn(lost(error), scope))
    )
    return sandbox
  })

  const ref: RcRef.RcRef<Sandbox, SandboxError> = yield* RcRef.make({
    acquire: open,
    idleTimeToLive: idleSeconds === undefined ? Duration.infinity : Duration.seconds(idleSeconds)
  })

  return unwrap(SandboxPlace.target, RcRef.get(ref))
})
