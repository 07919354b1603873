/**
 * The life of a run.
 *
 *     RunStore ─► Workspace ─┐
 *                 LlmProxy ──┴─► container: create ─► start, held ─► posture ─► proceed ─► output, exit
 *
 * Whatever does not depend on each other is acquired at the same time; the proxy goes on starting while the container
 * does, and both meet before the agent's first instruction. Everything is in one scope: success, failure, time-out and
 * interruption end the same way, in reverse order, with nothing left behind.
 */
import { Context, Effect, Exit, Layer, Option, Queue, type Schema, type Scope, Stream } from "effect"
import { ContainerRuntime, supervisor } from "./ContainerRuntime.ts"
import * as Executor from "./Executor.ts"
import * as AgentWatch from "./internal/AgentWatch.ts"
import * as Release from "./internal/Release.ts"
import * as RunLife from "./internal/RunLife.ts"
import * as SandboxExec from "./internal/SandboxExec.ts"
import * as SandboxGuard from "./internal/SandboxGuard.ts"
import * as WayOut from "./internal/WayOut.ts"
import * as LlmProxy from "./LlmProxy.ts"
import * as MemoryContainerRuntime from "./MemoryContainerRuntime.ts"
import { mismatches, type Posture } from "./Posture.ts"
import type { RunEvent } from "./RunEvent.ts"
import * as RunId from "./RunId.ts"
import { emptyOutput, type RunResult } from "./RunResult.ts"
import * as RunStore from "./RunStore.ts"
import {
  type ErrorCode,
  InvalidSpec,
  PostureMismatch,
  type Reason,
  SandboxError,
  WorkspaceFailed
} from "./SandboxError.ts"
import * as SandboxSpec from "./SandboxSpec.ts"
import * as Telemetry from "./Telemetry.ts"
import * as Workspace from "./Workspace.ts"

/** The source documents' result: both channels folded into one value. */
export interface RunOnceResult {
  readonly ok: boolean
  readonly stdout: string
  readonly stderr: string
  /** -1 where the agent never ran or the engine never told. */
  readonly exitCode: number
  readonly errorCode?: ErrorCode
  /** The finer reason beside the coarse code. */
  readonly reason?: Reason["_tag"]
  /** What happened and what to do. */
  readonly message?: string
}

/** A sandbox that is open for commands until its scope closes, each held to the sandbox's limits. */
export interface Sandbox extends Executor.Executor {
  readonly runId: RunId.RunId
  readonly posture: Posture
  /** Never succeeds; fails when the sandbox can be used no more. */
  readonly ended: Effect.Effect<never, SandboxError>
  /** Where a loop on the host reaches the run's model, if the spec's `llm.caller` is `host`. */
  readonly llmSocketPath?: string | undefined
}

export class SandboxRunner extends Context.Service<
  SandboxRunner,
  {
    /** Run one spec to its end. The caller cannot leak: all is released before this returns. */
    readonly run: (spec: SandboxSpec.SandboxSpecInput) => Effect.Effect<RunResult, SandboxError>
    /** The same, seen while it happens. Abandoning the stream ends the run. */
    readonly stream: (spec: SandboxSpec.SandboxSpecInput) => Stream.Stream<RunEvent, SandboxError>
    /** A sandbox to run many commands in. Its whole life is bounded by `runtimeSecondsMax`. */
    readonly open: (
      spec: Omit<SandboxSpec.SandboxSpecInput, "argv">
    ) => Effect.Effect<Sandbox, SandboxError, Scope.Scope>
    /** `run`, folded into one value: never fails. */
    readonly runOnce: (spec: SandboxSpec.SandboxSpecInput) => Effect.Effect<RunOnceResult>
  }
>()("@cogni/sandbox-core/SandboxRunner") {}

export const make = Effect.gen(function* () {
  const proxy = yield* LlmProxy.LlmProxy
  const runtime = yield* ContainerRuntime
  const store = yield* RunStore.RunStore
  const workspaces = yield* Workspace.Workspace

  /** Makes the id this run's for ever. */
  const claim = (life: RunLife.RunLife, spec: SandboxSpec.SandboxSpec) =>
    Release.owned(
      "run record",
      store.open(life.runId, spec).pipe(
        // Known at once: an interruption that comes next must still find it, to write the last word.
        Effect.tap((open) =>
          Effect.sync(() => {
            life.open = open
          })
        ),
        RunLife.within(
          (seconds) =>
            new WorkspaceFailed({
              path: life.runId,
              detail: `got no run record within ${seconds} s`,
              remedy: "Look at the disk that keeps the runs, then try again"
            })
        )
      )
    )

  /** Everything up to the agent's first instruction. */
  const begin = Effect.fnUntraced(function* (
    life: RunLife.RunLife,
    spec: SandboxSpec.SandboxSpec,
    supervised = false
  ) {
    const { egress, runId } = life
    const { directory } = yield* Effect.andThen(WayOut.promised(spec, proxy.capabilities), claim(life, spec))
    const [workspace, endpoint] = yield* Effect.all(
      [
        Release.owned(
          "workspace",
          workspaces.acquire({
            runId,
            source: spec.workspace,
            inputs: [...spec.inputs, ...egress.planted.inputs],
            planted: egress.planted.directories,
            memory: spec.memory,
            workspaceBytesMax: spec.limits.workspaceBytesMax,
            directory
          })
        ).pipe(life.phase("workspace")),
        spec.llm === undefined
          ? Effect.succeed(undefined)
          : Release.owned(
              "proxy",
              proxy.acquire({
                runId,
                llm: spec.llm,
                runtimeSecondsMax: spec.limits.runtimeSecondsMax,
                directory,
                tools: spec.tools,
                canaries: { policy: spec.canaries, planted: egress.planted.canaries },
                observe: egress.observe
              })
            ).pipe(life.phase("socket"))
      ],
      { concurrency: "unbounded" }
    )
    // A model that the host calls is nothing to the sandbox.
    const inside = spec.llm?.caller === "host" ? undefined : endpoint
    const mounts = [...workspace.mounts, ...(inside?.mounts ?? [])]
    const container = yield* Release.owned(
      "container",
      runtime.acquire({
        runId,
        role: "agent",
        image: spec.image,
        argv: spec.argv,
        env: { ...spec.env, ...(inside === undefined ? {} : WayOut.environment(spec.llm!)) },
        user: workspace.user,
        mounts,
        network: spec.network,
        limits: spec.limits,
        supervised
      })
    ).pipe(life.phase("create"))
    const [reported] = yield* Effect.all(
      [
        container.start.pipe(life.phase("start")),
        endpoint === undefined ? Effect.void : endpoint.ready.pipe(life.phase("proxy")),
        Workspace.warn(workspace)
      ],
      { concurrency: "unbounded" }
    )
    const posture = yield* heldAs(reported, { user: workspace.user, network: spec.network, mounts })
    life.posture = posture
    yield* life.emit({ _tag: "PostureVerified", posture })
    yield* container.proceed.pipe(life.phase("entrypoint"))
    return { container, endpoint, workspace, posture }
  })

  const live = Effect.fn("SandboxRunner.run")(function* (
    life: RunLife.RunLife,
    spec: SandboxSpec.SandboxSpec
  ) {
    yield* Effect.annotateCurrentSpan({
      [Telemetry.attribute.runId]: life.runId,
      [Telemetry.attribute.containerImage]: spec.image,
      ...(spec.llm === undefined ? {} : { [Telemetry.attribute.model]: spec.llm.model })
    })
    life.span = Option.getOrUndefined(yield* Effect.option(Effect.currentSpan))
    const { container, endpoint, posture, workspace } = yield* begin(life, spec)
    const agent = yield* AgentWatch.watch(container, spec.limits, {
      emit: life.emit,
      countedBytes: AgentWatch.counted(container, workspace),
      failure: endpoint?.failure ?? Effect.never,
      violation: life.egress.violation,
      inspect: life.egress.inspect
    }).pipe(
      life.phase("agent", AgentWatch.secondsMax(spec.limits)),
      // What was called is said on every path; who pays for it must not depend on how the agent ended.
      Effect.onExit((exit) =>
        Exit.isSuccess(exit) || endpoint === undefined ? Effect.void : life.lastLook(endpoint)
      )
    )
    if (endpoint !== undefined) {
      life.llm = yield* endpoint.finish.pipe(
        life.phase("collect"),
        Effect.mapError((error) => AgentWatch.withPartial(error, agent)),
        Effect.onInterrupt(() => life.lastLook(endpoint))
      )
    }
    yield* Effect.annotateCurrentSpan(Telemetry.attribute.exitCode, agent.exitCode)
    // The proxy has said its last word: what an agent sent with its last breath is known by now.
    const verdict = life.egress.verdict(agent.exitCode)
    if (verdict !== undefined) return yield* verdict(agent)
    return {
      runId: life.runId,
      ...agent,
      posture,
      ...(life.llm === undefined ? {} : { llm: life.llm }),
      suspicions: life.egress.suspicions(),
      timings: [...life.timings],
      durationMs: yield* life.elapsedMs
    } satisfies RunResult
  })

  const lifeOf = Effect.fnUntraced(function* (
    input: unknown,
    emit: (event: RunEvent) => Effect.Effect<void>
  ) {
    const spec = yield* decode(input)
    if (spec.llm?.caller === "host") return yield* new SandboxError({ reason: nobodyCalls })
    const life = yield* RunLife.make(spec.runId ?? (yield* RunId.generate), spec, emit)
    yield* emit({ _tag: "RunStarted", runId: life.runId })
    const result = yield* Release.scoped(
      live(life, spec).pipe(Effect.onExit((exit) => life.record(exit)))
    ).pipe(Effect.mapError(life.error), Effect.annotateLogs(Telemetry.attribute.runId, life.runId))
    yield* emit({ _tag: "RunEnded", result })
    return result
  })

  const run = (spec: SandboxSpec.SandboxSpecInput) => lifeOf(spec, () => Effect.void)

  const open = Effect.fn("SandboxRunner.open")(function* (input: Omit<SandboxSpec.SandboxSpecInput, "argv">) {
    const spec = yield* decode({ ...input, argv: [supervisor] })
    const life = yield* RunLife.make(spec.runId ?? (yield* RunId.generate), spec, () => Effect.void)
    life.span = Option.getOrUndefined(yield* Effect.option(Effect.currentSpan))
    let over: SandboxGuard.Broken | undefined
    const ending = Effect.suspend(() =>
      life.record(
        over === undefined ? Exit.succeed(undefined) : Exit.fail(over({ output: emptyOutput, peak: {} }))
      )
    )
    const { container, endpoint, posture, workspace } = yield* begin(life, spec, true).pipe(
      Effect.onExit((exit) =>
        Exit.isSuccess(exit)
          ? Effect.addFinalizer(() =>
              Effect.andThen(
                exit.value.endpoint === undefined ? Effect.void : life.lastLook(exit.value.endpoint),
                ending
              )
            )
          : life.record(Exit.failCause(exit.cause))
      ),
      Effect.mapError(life.error)
    )
    const broken = yield* SandboxGuard.make(container, spec.limits, {
      countedBytes: AgentWatch.counted(container, workspace),
      failure: endpoint?.failure ?? Effect.never,
      violation: life.egress.violation,
      onBroken: (why) => {
        over = why
      }
    })
    const around = { error: life.error, broken, inspect: life.egress.inspect, violated: life.egress.violated }
    const unlessBroken = SandboxExec.unlessBroken(around)
    const spawn: Sandbox["spawn"] = (line, options) =>
      Executor.commandOf(line, options).pipe(
        Effect.mapError(life.error),
        Effect.flatMap((command) => SandboxExec.spawn(container, command, spec.limits, around))
      )
    const exec = Executor.execOf(spawn, spec.limits)
    const { files } = container
    return {
      runId: life.runId,
      posture,
      workspace: Workspace.target,
      ended: unlessBroken(Effect.never),
      llmSocketPath: spec.llm?.caller === "host" ? endpoint?.hostSocketPath : undefined,
      spawn,
      exec: (line, options) =>
        exec(line, options).pipe(
          Effect.mapError((error) => (error.runId === undefined ? life.error(error.reason) : error))
        ),
      files: {
        read: (path, options) => unlessBroken(files.read(path, options)),
        write: (path, content) => unlessBroken(files.write(path, content)),
        list: (path) => unlessBroken(files.list(path))
      }
    } satisfies Sandbox
  })

  return SandboxRunner.of({
    run,
    open,
    stream: (spec) =>
      Stream.callback<RunEvent, SandboxError>(
        (queue) =>
          lifeOf(spec, (event) => Effect.asVoid(Queue.offer(queue, event))).pipe(
            Effect.matchCauseEffect({
              onFailure: (cause) => Queue.failCause(queue, cause),
              onSuccess: () => Queue.end(queue)
            })
          ),
        { bufferSize: 16 }
      ),
    runOnce: (spec) => Effect.match(run(spec), { onSuccess: foldResult, onFailure: foldError })
  })
})

export const layer: Layer.Layer<
  SandboxRunner,
  never,
  ContainerRuntime | LlmProxy.LlmProxy | RunStore.RunStore | Workspace.Workspace
> = Layer.effect(SandboxRunner, make)

/** A whole runner with nothing behind it: no Docker, no files, no model. What would be the agent is a `program`. */
export const layerMemory = (
  options?: MemoryContainerRuntime.MemoryOptions
): Layer.Layer<SandboxRunner | ContainerRuntime | RunStore.RunStore> =>
  layer.pipe(
    Layer.provide([LlmProxy.layerMemory(), Workspace.layerMemory()]),
    Layer.provideMerge(Layer.merge(MemoryContainerRuntime.layer(options), RunStore.layerMemory))
  )

const invalid = (error: Schema.SchemaError) => new InvalidSpec({ problems: SandboxSpec.problemsOf(error) })

/** What was reported, where nothing of it is otherwise than it must be. */
const heldAs = (
  reported: Posture | undefined,
  asked: Parameters<typeof mismatches>[1]
): Effect.Effect<Posture, PostureMismatch> => {
  const amiss =
    reported === undefined ? ["the sandbox did not report how it is held"] : mismatches(reported, asked)
  return reported === undefined || amiss.length > 0
    ? Effect.fail(new PostureMismatch({ mismatches: amiss }))
    : Effect.succeed(reported)
}

const nobodyCalls = new InvalidSpec({
  problems: [
    "llm.caller: a run's agent is inside, and would have no model. `host` is for a sandbox that is opened"
  ]
})

const decode = (input: unknown) =>
  SandboxSpec.decode(input).pipe(Effect.mapError((error) => new SandboxError({ reason: invalid(error) })))

const foldResult = ({ exitCode, output }: RunResult): RunOnceResult => ({
  ok: exitCode === 0,
  stdout: output.stdout.text,
  stderr: output.stderr.text,
  exitCode,
  ...(exitCode === 0 ? {} : { errorCode: "container_failed" as const })
})

const foldError = (error: SandboxError): RunOnceResult => ({
  ok: false,
  stdout: error.partial?.output.stdout.text ?? "",
  stderr: error.partial?.output.stderr.text ?? "",
  exitCode: error.partial?.exitCode ?? -1,
  errorCode: error.code,
  reason: error.reason._tag,
  message: error.message
})
