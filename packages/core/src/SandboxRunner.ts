/**
 * The life of a run. If the proxy limits accounts, what a run may spend is reserved right after its record is open.
 *
 *     RunStore ─► Workspace ─┐
 *                 LlmProxy ──┴─► container: create ─► start, held ─► posture ─► proceed ─► output, exit
 *
 * Independent resources are acquired concurrently. The proxy starts while the container does, and both are ready before
 * the agent's first instruction. Everything is in one scope: success, failure, timeout and interruption release it in
 * the same way, in reverse order, and leave nothing behind.
 */
import { Context, Effect, Exit, Layer, Queue, type Schema, type Scope, Stream } from "effect"
import { ContainerRuntime } from "./ContainerRuntime.ts"
import * as AgentWatch from "./internal/AgentWatch.ts"
import * as OpenSandbox from "./internal/OpenSandbox.ts"
import * as Release from "./internal/Release.ts"
import * as RunLife from "./internal/RunLife.ts"
import * as RunMetrics from "./internal/RunMetrics.ts"
import * as RunStart from "./internal/RunStart.ts"
import * as WayOut from "./internal/WayOut.ts"
import * as LlmProxy from "./LlmProxy.ts"
import * as MemoryContainerRuntime from "./MemoryContainerRuntime.ts"
import type { RunEvent } from "./RunEvent.ts"
import * as RunId from "./RunId.ts"
import { RunJournal } from "./RunJournal.ts"
import type { RunResult } from "./RunResult.ts"
import * as RunStore from "./RunStore.ts"
import { SandboxPool } from "./SandboxPool.ts"
import { type Reason, SandboxError } from "./SandboxError.ts"
import { type ErrorCode, InvalidSpec } from "./SandboxReason.ts"
import type * as SandboxSpec from "./SandboxSpec.ts"
import * as SpecDecoder from "./SpecDecoder.ts"
import * as SchemaIssues from "./SchemaIssues.ts"
import * as Telemetry from "./Telemetry.ts"
import * as Workspace from "./Workspace.ts"

export interface Sandbox extends OpenSandbox.Sandbox {}

/** Result in the form of the source documents: success and error in one value. */
export interface RunOnceResult {
  readonly ok: boolean
  readonly stdout: string
  readonly stderr: string
  /** -1 if the agent never ran, or if the engine did not report its exit. */
  readonly exitCode: number
  /** Absent if the agent ended by itself, whatever its exit code: an exit code is a value, never an error. */
  readonly errorCode?: ErrorCode
  /** The finer reason beside the coarse code. */
  readonly reason?: Reason["_tag"]
  /** Message with a remedy. Present whenever `ok` is false. */
  readonly message?: string
}

export class SandboxRunner extends Context.Service<
  SandboxRunner,
  {
    /**
     * Run one spec to its end. The caller cannot leak resources: all are released before this returns. A sandbox of a
     * pool in which no process is left is removed in the background, and before the end of the pool.
     */
    readonly run: (spec: SandboxSpec.SandboxSpecInput) => Effect.Effect<RunResult, SandboxError>
    /**
     * Like `run`, as a stream of events. Abandoning the stream ends the run. A reader that takes no event for two
     * minutes may miss a `PhaseEnded`.
     */
    readonly stream: (spec: SandboxSpec.SandboxSpecInput) => Stream.Stream<RunEvent, SandboxError>
    /** Open a sandbox that runs many commands. `runtimeSecondsMax` bounds its whole life. */
    readonly open: (spec: SandboxSpec.OpenSpecInput) => Effect.Effect<Sandbox, SandboxError, Scope.Scope>
    /**
     * Check a spec without creating anything: its fields, whether the proxy can do what it asks for, and whether the
     * account that pays may start it now. `run` and `open` check again.
     */
    readonly check: (
      spec: SandboxSpec.OpenSpecInput | SandboxSpec.SandboxSpecInput
    ) => Effect.Effect<void, InvalidSpec | LlmProxy.LlmProxyError>
    /** Like `run`, with success and error in one value. Never fails. */
    readonly runOnce: (spec: SandboxSpec.SandboxSpecInput) => Effect.Effect<RunOnceResult>
  }
>()("@cogni/sandbox-core/SandboxRunner") {}

export const make = Effect.gen(function* () {
  const ports: RunStart.Ports = {
    pool: yield* SandboxPool,
    proxy: yield* LlmProxy.LlmProxy,
    runtime: yield* ContainerRuntime,
    store: yield* RunStore.RunStore,
    workspaces: yield* Workspace.Workspace
  }
  const told = { journal: yield* RunJournal, logLevel: yield* Telemetry.RunLogLevel }
  const lifeOf = Effect.fnUntraced(function* (spec: SandboxSpec.SandboxSpec, emit: Emit) {
    return yield* RunLife.make(spec.runId ?? (yield* RunId.generate), spec, told, emit)
  })

  const runTo = Effect.fnUntraced(function* (input: unknown, emit: Emit) {
    const spec = yield* valid(SpecDecoder.decode(input))
    if (spec.llm?.caller === "host") {
      yield* RunMetrics.refusedAs(nobodyCalls)
      return yield* new SandboxError({ reason: nobodyCalls })
    }
    const life = yield* lifeOf(spec, emit)
    yield* emit({ _tag: "RunStarted", runId: life.runId })
    const result = yield* Release.scoped(runAgent(ports, life, spec)).pipe(
      Effect.catch(life.error),
      Effect.annotateLogs(Telemetry.attribute.runId, life.runId)
    )
    yield* emit({ _tag: "RunEnded", result })
    return result
  })
  const run = (spec: SandboxSpec.SandboxSpecInput) => runTo(spec, () => Effect.void)
  const check = (input: SandboxSpec.OpenSpecInput | SandboxSpec.SandboxSpecInput) =>
    Effect.flatMap(
      decoded("argv" in input ? SpecDecoder.decode(input) : SpecDecoder.decodeOpen(input)),
      (spec) =>
        Effect.andThen(WayOut.promised(spec, ports.proxy.capabilities), () =>
          spec.llm === undefined || ports.proxy.admissions === undefined
            ? Effect.void
            : ports.proxy.admissions.check({
                llm: spec.llm,
                runtimeSecondsMax: spec.limits.runtimeSecondsMax
              })
        )
    )

  return SandboxRunner.of({
    run,
    check,
    open: Effect.fn("SandboxRunner.open")(function* (input) {
      const spec = yield* valid(SpecDecoder.decodeOpen(input))
      const life = yield* lifeOf(spec, () => Effect.void)
      yield* Effect.annotateCurrentSpan({
        [Telemetry.attribute.runId]: life.runId,
        [Telemetry.attribute.containerImage]: spec.image,
        ...(spec.llm === undefined ? {} : { [Telemetry.attribute.model]: spec.llm.model })
      })
      return yield* OpenSandbox.make(ports, life, spec)
    }),
    stream: (spec) =>
      Stream.callback<RunEvent, SandboxError>(
        (queue) =>
          runTo(spec, (event) => Effect.asVoid(Queue.offer(queue, event))).pipe(
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

/**
 * A complete runner in memory: no Docker, no files, no model. A `program` takes the place of the agent. With `llm`, a
 * run that asks for a model has these calls.
 */
export const layerMemory = (
  options?: MemoryContainerRuntime.MemoryOptions & { readonly llm?: LlmProxy.MemoryProxyOptions | undefined }
): Layer.Layer<SandboxRunner | ContainerRuntime | RunStore.RunStore> =>
  layer.pipe(
    Layer.provide([LlmProxy.layerMemory(options?.llm), Workspace.layerMemory()]),
    Layer.provideMerge(Layer.merge(MemoryContainerRuntime.layer(options), RunStore.layerMemory))
  )

type Emit = (event: RunEvent) => Effect.Effect<void>

const runAgent = Effect.fn("SandboxRunner.run")(
  function* (ports: RunStart.Ports, life: RunLife.RunLife, spec: SandboxSpec.SandboxSpec) {
    yield* Effect.annotateCurrentSpan({
      [Telemetry.attribute.runId]: life.runId,
      [Telemetry.attribute.containerImage]: spec.image,
      ...(spec.llm === undefined ? {} : { [Telemetry.attribute.model]: spec.llm.model })
    })
    const { container, endpoint, posture, workspace } = yield* RunStart.make(ports, life, spec, {
      supervised: false
    })
    const { egress } = life
    const agent = yield* AgentWatch.watch(container, spec.limits, {
      emit: life.emit,
      ...AgentWatch.watchedOf(container, workspace),
      failure: endpoint?.failure ?? Effect.never,
      violation: egress.violation,
      inspect: egress.inspect
    }).pipe(
      life.phase("agent", AgentWatch.secondsMax(spec.limits)),
      // Model calls are reported on every path: the bill must not depend on how the agent ended.
      Effect.onExit((exit) =>
        Exit.isSuccess(exit) || endpoint === undefined ? Effect.void : life.lastLook(endpoint)
      )
    )
    if (endpoint !== undefined) {
      yield* Effect.mapError(life.collect(endpoint), (error) => AgentWatch.withPartial(error, agent))
    }
    yield* Effect.annotateCurrentSpan(Telemetry.attribute.exitCode, agent.exitCode)
    // The proxy has finished, so everything that the agent sent before its end has been inspected.
    const verdict = egress.verdict(agent.exitCode)
    if (verdict !== undefined) return yield* verdict(agent)
    return { ...agent, posture, ...(yield* life.account) } satisfies RunResult
  },
  // In the run's span, the parent of the spans of its calls.
  (running, _, life) => Effect.onExit(running, (exit) => life.record(exit))
)

const nobodyCalls = new InvalidSpec({
  problems: [
    "llm.caller: a run's agent is in the sandbox, and would have no model. `host` is only for open sandboxes"
  ]
})

const decoded = Effect.mapError(
  (error: Schema.SchemaError) => new InvalidSpec({ problems: SchemaIssues.problemsOf(error) })
)

const valid = <A>(decoding: Effect.Effect<A, Schema.SchemaError>) =>
  decoded(decoding).pipe(
    Effect.tapError(RunMetrics.refusedAs),
    Effect.mapError((reason) => new SandboxError({ reason }))
  )

const foldResult = ({ exitCode, output }: RunResult): RunOnceResult => ({
  ok: exitCode === 0,
  stdout: output.stdout.text,
  stderr: output.stderr.text,
  exitCode,
  ...(exitCode === 0 ? {} : { message: `the agent ended with exit code ${exitCode}. Read its output` })
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
