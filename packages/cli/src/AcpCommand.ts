/**
 * `cogni-sandbox acp`: an agent of the Agent Client Protocol on standard input and output, for editors.
 *
 * Standard output carries only the protocol. Each prompt is a run of its own, planned and executed as `run` does it:
 * the same checks of the workspace, limits, records and usage. A session keeps its conversation, which the next run
 * gets, and its files. Everything ends when the input ends, or on a signal.
 */
import type { AcpSession, AcpSessionRequest, AcpTurn, AcpTurnEnd } from "@cogni/sandbox-acp/AcpSession"
import * as AcpServer from "@cogni/sandbox-acp/AcpServer"
import { AcpRefusal } from "@cogni/sandbox-acp/AcpRefusal"
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import type { RunEvent } from "@cogni/sandbox-core/RunEvent"
import * as RunId from "@cogni/sandbox-core/RunId"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { InvalidSpec } from "@cogni/sandbox-core/SandboxReason"
import type * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as SchemaIssues from "@cogni/sandbox-core/SchemaIssues"
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import type { Delivery } from "@cogni/sandbox-git-relay/DeliveryRecord"
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import type { AgentEvent } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import * as AgentRun from "@cogni/sandbox-graph-provider/AgentRun"
import { type InClone, repositoryPath } from "@cogni/sandbox-graph-provider/RepositoryUse"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import * as HostSessionWorkspaces from "@cogni/sandbox-sessions/sandbox/HostSessionWorkspaces"
import * as SessionId from "@cogni/sandbox-sessions/sandbox/SessionId"
import { Cause, Effect, type FileSystem, Layer, type Scope, Stdio } from "effect"
import * as AcpApproval from "./AcpApproval.ts"
import * as Composition from "./Composition.ts"
import * as ConfiguredAgents from "./ConfiguredAgents.ts"
import * as Connections from "./Connections.ts"
import * as Failure from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import * as MetricsPort from "./MetricsPort.ts"
import * as Output from "./Output.ts"
import * as PoolFlags from "./PoolFlags.ts"
import * as ProxyFlags from "./ProxyFlags.ts"
import * as Progress from "./Progress.ts"
import * as Reaping from "./Reaping.ts"
import * as RelayReport from "./RelayReport.ts"
import { inFlags } from "./RemedyWords.ts"
import * as RepoPlan from "./RepoPlan.ts"
import * as RepoRun from "./RepoRun.ts"
import * as RunPlan from "./RunPlan.ts"
import * as RunReport from "./RunReport.ts"
import { Settings } from "./Settings.ts"
import * as Version from "./Version.ts"

type AcpInput = Flags.Typed<typeof Flags.acp & typeof PoolFlags.acp>

/** Settings that all prompts of one process share. */
interface Terms {
  readonly agent: Agent
  /** Flags of each run, without its workspace or repository. */
  readonly flags: RunPlan.RunFlags
  readonly settings: Settings["Service"]
  readonly progress: Progress.Progress
  readonly approval: AcpApproval.AcpApproval
}

export const acp = Effect.fnUntraced(function* (input: AcpInput) {
  const {
    auditBodies,
    depth,
    ignoreMcpServers,
    logFormat: _,
    metricsPort,
    pool,
    poolMemoryBytes,
    proxy,
    workspace,
    ...flags
  } = input
  if (depth !== undefined && workspace !== "clone")
    return yield* Failure.refusal(
      "usage",
      "--depth has no effect without --workspace clone",
      "Add it, or leave --depth out"
    )
  yield* PoolFlags.checked(input)
  yield* Effect.fromResult(ProxyFlags.served(input))
  yield* MetricsPort.opened(metricsPort)
  const settings = yield* Settings
  const registry = yield* ConfiguredAgents.registry(settings)
  const agent = yield* registry
    .get(input.agent)
    .pipe(Effect.mapError(({ message }) => Failure.refusal("notFound", message, "Choose one with --agent")))
  const { note, spec, wayOut } = yield* Effect.fromResult(
    planOf(
      { agent, flags, settings },
      { prompt: "-", earlier: [] },
      yield* RunId.generate,
      workspace === "clone" ? { repo: "/" } : {}
    )
  )
  yield* valid(spec)
  // Prompts run at the same time, and no activity is that of the command.
  const progress = { ...(yield* Progress.make(input, note)), now: () => Effect.void }
  const approval = AcpApproval.make()
  const terms = { agent, flags, settings, progress, approval }
  const plan = {
    wayOut,
    pool,
    poolMemoryBytes,
    proxy,
    auditBodies,
    user: Connections.operator(settings),
    toolNames: [...input.tools, ...input.askTools]
  }
  const runner = (how: Composition.Plan) => Layer.provide(Composition.runner(settings, how), approval.layer)
  switch (workspace) {
    case "cwd":
      return yield* serve(terms, ignoreMcpServers, inDirectory(terms)).pipe(Effect.provide(runner(plan)))
    case "fresh": {
      const { sessions } = StateDirectory.paths(settings.stateDirectory)
      const allowedWorkspace = (path: string) => path.startsWith(`${sessions}/`)
      return yield* serve(terms, ignoreMcpServers, inFreshDirectory(terms, sessions)).pipe(
        Effect.provide(runner({ ...plan, allowedWorkspace }))
      )
    }
    case "clone": {
      const allowedWorkspace = Composition.isClone(settings)
      return yield* serve(terms, ignoreMcpServers, inClones(terms, depth)).pipe(
        Effect.provide(Layer.provideMerge(Composition.relay(settings), runner({ ...plan, allowedWorkspace })))
      )
    }
  }
}, Effect.scoped)

/** Validates the spec at the start, so that the user of the command sees the error, not the first prompt. */
const valid = (spec: SandboxSpec.SandboxSpecInput) =>
  SpecDecoder.decode(spec).pipe(
    Effect.mapError(
      (error) => new SandboxError({ reason: new InvalidSpec({ problems: SchemaIssues.problemsOf(error) }) })
    )
  )

/** Serves until the input ends. */
const serve = Effect.fnUntraced(function* <R>(
  { agent }: Terms,
  ignoreMcpServers: boolean,
  open: (
    request: AcpSessionRequest
  ) => Effect.Effect<AcpSession<R>, AcpRefusal, R | FileSystem.FileSystem | Scope.Scope>
) {
  const output = yield* Output.Output
  const stdio = yield* Stdio.Stdio
  const tidy = yield* Reaping.inBackground
  yield* tidy.begin
  yield* AcpServer.serve(
    { input: stdio.stdin, write: output.stdoutJson },
    {
      info: {
        name: "cogni-sandbox",
        title: `${agent.name} (sealed)`,
        version: yield* Version.version
      },
      open,
      ignoreMcpServers,
      wording: inFlags
    }
  ).pipe(
    Effect.catchTag("AcpFailed", ({ detail, remedy }) =>
      Effect.fail(Failure.refusal("input", `the ACP connection ${detail}`, remedy))
    )
  )
}, Effect.scoped)

/** Sessions whose runs change the editor's directory itself, as `run --workspace` does. */
const inDirectory = (terms: Terms) =>
  Effect.fnUntraced(function* ({ cwd, sessionId }: AcpSessionRequest) {
    const rules = yield* Composition.workspaces(terms.settings)
    // Each run makes the same checks again. This one tells the user before the first prompt.
    yield* HostWorkspace.held(cwd, rules).pipe(
      Effect.scoped,
      Effect.mapError(
        ({ message }) => new AcpRefusal({ reason: "DirectoryRefused", detail: message, remedy: "" })
      )
    )
    return {
      directory: SandboxPlace.target,
      isShared: true,
      prompt: (turn: AcpTurn) =>
        Effect.flatMap(RunId.generate, (runId) =>
          runPrompt(terms, { runId, sessionId, flags: { workspace: cwd } }, turn)
        ).pipe(Effect.flatMap(conclude), told(turn))
    }
  })

/** Sessions with an empty directory each, which their runs share and which ends with the session. */
const inFreshDirectory = (terms: Terms, directory: string) => {
  const workspaces = HostSessionWorkspaces.make({ directory })
  return Effect.fnUntraced(function* ({ sessionId }: AcpSessionRequest) {
    const id = SessionId.SessionId.make(`acp:${sessionId}`)
    const workspace = yield* Effect.acquireRelease(workspaces.of(id), () =>
      workspaces
        .forget(id)
        .pipe(
          Effect.catch(({ message }) =>
            Effect.logWarning(
              `the files of a session could not be deleted (try prune --sessions): ${message}`
            )
          )
        )
    ).pipe(Effect.mapError(failed))
    return {
      directory: undefined,
      prompt: (turn: AcpTurn) =>
        Effect.flatMap(RunId.generate, (runId) =>
          runPrompt(terms, { runId, sessionId, flags: {}, workspace }, turn)
        ).pipe(Effect.flatMap(conclude), told(turn))
    }
  })
}

/**
 * Sessions whose runs work in clones of the editor's repository, as `run --repo` does. Each run continues the branch
 * that the last one pushed.
 */
const inClones = (terms: Terms, depth: number | undefined) =>
  Effect.fnUntraced(function* ({ cwd, sessionId }: AcpSessionRequest) {
    yield* Effect.fromResult(RepoPlan.make({ repo: cwd }, yield* RunId.generate)).pipe(
      Effect.mapError(({ detail, remedy }) => new AcpRefusal({ reason: "DirectoryRefused", detail, remedy }))
    )
    let base: string | undefined
    const prompt = Effect.fnUntraced(function* (turn: AcpTurn) {
      const runId = yield* RunId.generate
      const given = depth === undefined ? {} : { depth }
      const flags = { repo: cwd, ...(base === undefined ? {} : { base }), ...given }
      const repo = yield* Effect.fromResult(RepoPlan.make(flags, runId))
      if (repo === undefined) return yield* Effect.die(new Error("a repository was named and not planned"))
      let kept: Delivery | undefined
      const inClone = RepoRun.inClone(repo.request, undefined, terms.progress, (delivery) => {
        kept = delivery
      })
      const ended = yield* runPrompt(terms, { runId, sessionId, flags, inClone }, turn).pipe(
        Effect.onExit(() =>
          kept === undefined ? Effect.void : turn.note("warning", RelayReport.describe(kept, undefined))
        )
      )
      const { delivery } = ended
      if (delivery !== undefined) {
        yield* RepoRun.settle(delivery, undefined)
        if (delivery._tag === "Pushed") base = delivery.checked.clone.branch
        const isDelivered = delivery._tag === "Pushed" || delivery._tag === "Skipped"
        yield* turn.note(isDelivered ? "info" : "warning", RelayReport.describe(delivery, undefined))
      }
      return yield* conclude(ended)
    })
    return { directory: repositoryPath, prompt: (turn: AcpTurn) => told(turn)(prompt(turn)) }
  })

/** The place of one prompt's run. */
interface Place<D, E, R> {
  readonly runId: RunId.RunId
  readonly sessionId: string
  /** Flags that name the files of the run. */
  readonly flags: Pick<RunPlan.RunFlags, "base" | "depth" | "repo" | "workspace">
  /** Workspace that no flag can name. */
  readonly workspace?: SandboxSpec.SandboxSpecInput["workspace"]
  readonly inClone?: InClone<D, E, R> | undefined
}

/** Executes one prompt as a run, and sends what it reports. */
const runPrompt = Effect.fnUntraced(function* <D = undefined, E = never, R = never>(
  terms: Terms,
  { flags, inClone, runId, sessionId, workspace }: Place<D, E, R>,
  turn: AcpTurn
) {
  const { spec } = yield* Effect.fromResult(planOf(terms, turn, runId, flags))
  const see = (event: RunEvent, said: ReadonlyArray<AgentEvent>) =>
    event._tag === "ExfiltrationSuspected" ||
    event._tag === "BudgetExhausted" ||
    event._tag === "SubagentShareSpent"
      ? turn.note("warning", RunReport.warning(event))
      : Effect.forEach(said, turn.say, { discard: true })
  const ended = yield* AgentRun.live(
    {
      ...spec,
      ...(workspace === undefined ? {} : { workspace }),
      ...(spec.llm === undefined
        ? {}
        : { llm: { ...spec.llm, identity: { ...spec.llm.identity, sessionId } } })
    },
    terms.agent.reader,
    see,
    inClone
  ).pipe(
    Effect.provideService(ConnectionUser, Connections.operator(terms.settings, { runId })),
    terms.approval.during(runId, turn)
  )
  yield* terms.progress.note(RunReport.summary(ended.result))
  return ended
})

const planOf = (
  { agent, flags, settings }: Pick<Terms, "agent" | "flags" | "settings">,
  { earlier, prompt }: Pick<AcpTurn, "earlier" | "prompt">,
  runId: RunId.RunId,
  place: Pick<RunPlan.RunFlags, "base" | "repo" | "workspace"> = {}
) => RunPlan.make({ _tag: "Prompt", agent, prompt, earlier }, runId, { ...flags, ...place }, settings)

/** Returns the answer of a run, or the reason why it has none. */
const conclude = (ended: AgentRun.AgentRunEnd<unknown>): Effect.Effect<AcpTurnEnd, AcpRefusal> => {
  const { answer, problem } = RunReport.verdictOf(ended)
  const { runId } = ended.result
  return answer === undefined
    ? Effect.fail(
        new AcpRefusal({
          reason: "RunFailed",
          detail: `${runId}: ${problem?.message ?? "the agent gave no answer"}`,
          remedy: "",
          details: { runId, error: "agent", ...(problem === undefined ? {} : { cause: problem.code }) }
        })
      )
    : Effect.succeed({ stopReason: "end_turn", text: answer.text })
}

/** Tells how a prompt without an answer ended: a spent budget is a stop reason, and everything else an error. */
const told =
  (turn: AcpTurn) =>
  <E, R>(prompt: Effect.Effect<AcpTurnEnd, E, R>): Effect.Effect<AcpTurnEnd, AcpRefusal, R> =>
    prompt.pipe(
      Effect.catch((error) => {
        if (error instanceof AcpRefusal) return Effect.fail(error)
        const stopReason = spentOf(error)
        return stopReason === undefined
          ? Effect.fail(failed(error))
          : Effect.as(turn.note("warning", failed(error).detail), { stopReason, text: "" })
      })
    )

/** Stop reason of a run that ended because its budget is spent. */
const spentOf = (error: unknown): AcpTurnEnd["stopReason"] | undefined =>
  error instanceof SandboxError && error.reason._tag === "BudgetExceeded"
    ? error.reason.budget === "calls"
      ? "max_turn_requests"
      : "max_tokens"
    : undefined

/** Converts any failure of a run, in the words of `run`. */
const failed = (error: unknown): AcpRefusal => {
  const { isRetryable, message, name, reason, runId } = Failure.fromCause(Cause.fail(error))
  return new AcpRefusal({
    reason: "RunFailed",
    detail: message,
    remedy: "",
    details: { error: name, cause: reason, isRetryable, ...(runId === undefined ? {} : { runId }) }
  })
}
