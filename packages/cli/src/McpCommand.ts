/**
 * `cogni-sandbox mcp`: an MCP server on standard input and output, whose tools run in a sealed sandbox.
 *
 * Standard output is the protocol's alone. The sandbox is opened by the first call that needs it, closed when nothing
 * has used it for a while, and gone with the client: when the input ends, or on a signal. What lies in a workspace of
 * its own ends with the sandbox, so such a sandbox is not closed for being idle, and there is no second one.
 */
import { unwrap } from "@cogni/sandbox-core/Executor"
import * as RunId from "@cogni/sandbox-core/RunId"
import { InvalidSpec, SandboxError } from "@cogni/sandbox-core/SandboxError"
import { type Sandbox, SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import * as CurrentTime from "@cogni/sandbox-proxy/tools/CurrentTime"
import * as FileTools from "@cogni/sandbox-loop/FileTools"
import * as McpServer from "@cogni/sandbox-loop/McpServer"
import * as ProcessTable from "@cogni/sandbox-loop/ProcessTable"
import * as ProcessTools from "@cogni/sandbox-loop/ProcessTools"
import * as ShellTools from "@cogni/sandbox-loop/ShellTools"
import type { ToolProfile } from "@cogni/sandbox-loop/ToolProfile"
import * as ToolRegistry from "@cogni/sandbox-loop/ToolRegistry"
import { Duration, Effect, RcRef, Result, Stdio } from "effect"
import * as Composition from "./Composition.ts"
import { type Refusal, refusal, refuse } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import * as Reaping from "./Reaping.ts"
import * as RunPlan from "./RunPlan.ts"
import { Settings } from "./Settings.ts"

export type McpInput = Flags.Typed<typeof Flags.mcp>

/** What is served, once the command line is understood. */
export interface McpPlan {
  readonly spec: Omit<SandboxSpec.SandboxSpecInput, "argv">
  readonly profile: ToolProfile
  readonly allow: ReadonlyArray<string>
  readonly deny: ReadonlyArray<string>
  /** What the workspace is on the host, where it is there. */
  readonly hostDirectory: string | undefined
  /** Never, where it is left out. */
  readonly idleSeconds: number | undefined
}

/** The life of one sandbox: the most that a spec may name. */
export const sandboxSecondsDefault = 86_400

export const idleSecondsDefault = 15 * 60

export const mcp = Effect.fnUntraced(function* (input: McpInput) {
  const settings = yield* Settings
  const served = yield* Effect.fromResult(plan(input, settings))
  yield* Effect.gen(function* () {
    const tidy = yield* Reaping.inBackground
    yield* tidy.begin
    yield* serve(served)
  }).pipe(Effect.provide(Composition.runner(settings, { wayOut: { _tag: "None" } })), Effect.scoped)
})

/** From what was typed to what is served; a sandbox of it has no way to a model. */
export const plan = (
  input: McpInput,
  { runtimeImage }: Pick<Settings["Service"], "runtimeImage">
): Result.Result<McpPlan, Refusal> => {
  const { allow, deny, idleSeconds, profile, workspace, ...flags } = input
  const timeoutSeconds = flags.timeoutSeconds ?? sandboxSecondsDefault
  return idleSeconds !== undefined && workspace === undefined
    ? refuse(
        "usage",
        "--idle without --workspace would lose what the tools have written",
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

/** Answer until the input ends. */
export const serve = Effect.fnUntraced(function* ({ allow, deny, hostDirectory, profile, ...rest }: McpPlan) {
  const output = yield* Output.Output
  const stdio = yield* Stdio.Stdio
  yield* valid(rest.spec)
  const runId = yield* RunId.generate
  const executor = yield* lazily({ ...rest, runId, reopens: hostDirectory !== undefined })
  const table = yield* ProcessTable.make(executor)
  const registry = yield* Effect.fromResult(
    Result.flatMap(
      Result.mapError(
        ToolRegistry.make([
          CurrentTime.tool,
          ...ShellTools.make(executor, { hostDirectory }),
          ...ProcessTools.make(executor, table, { hostDirectory }),
          ...FileTools.make(executor, { hostDirectory })
        ]),
        refused
      ),
      (all) => Result.mapError(all.restrict(profile, { allow, deny }), refused)
    )
  )
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

/** Whoever typed it must hear of it: a model that calls could do nothing about it. */
const valid = (spec: McpPlan["spec"]) =>
  SandboxSpec.decode({ ...spec, argv: ["true"] }).pipe(
    Effect.mapError(
      (error) => new SandboxError({ reason: new InvalidSpec({ problems: SandboxSpec.problemsOf(error) }) })
    )
  )

const refused = ({ message }: { readonly message: string }) =>
  refusal("usage", message, "See --profile, --allow and --deny")

const instructionsOf = (hostDirectory: string | undefined) =>
  `Tools act inside a sealed sandbox without a network, on the files of its workspace, ${Workspace.target}` +
  (hostDirectory === undefined
    ? ", which is empty at first and ends with the session."
    : `, which is ${hostDirectory} of the user's machine; paths may be given in either form.`)

interface LazyOptions {
  readonly spec: Omit<SandboxSpec.SandboxSpecInput, "argv">
  readonly idleSeconds: number | undefined
  /** Of the first sandbox; others get ids of their own. */
  readonly runId: RunId.RunId
  /** Whether another sandbox has the files of one that has ended. */
  readonly reopens: boolean
}

/** An executor whose sandbox is opened by the first who needs it. */
const lazily = Effect.fnUntraced(function* ({ idleSeconds, reopens, runId, spec }: LazyOptions) {
  const runner = yield* SandboxRunner
  const output = yield* Output.Output
  const scope = yield* Effect.scope
  let opened = 0
  /** Why there will be no other. */
  let over: SandboxError | undefined

  const lost = (error: SandboxError) =>
    Effect.andThen(
      Effect.logWarning(
        `${reopens ? "the sandbox has ended, and the next call opens another" : "the sandbox has ended, and its files with it; begin anew to have another"}: ${error.message}`
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
    // It ends with the sandbox; what it then does closes the sandbox, and is not to be ended by that.
    yield* Effect.forkScoped(
      Effect.flatMap(Effect.flip(sandbox.ended), (error) => Effect.forkIn(lost(error), scope))
    )
    return sandbox
  })

  const ref: RcRef.RcRef<Sandbox, SandboxError> = yield* RcRef.make({
    acquire: open,
    idleTimeToLive: idleSeconds === undefined ? Duration.infinity : Duration.seconds(idleSeconds)
  })

  return unwrap(Workspace.target, RcRef.get(ref))
})
