/**
 * Intercepts the calls between a run and its ports.
 *
 * `layer` wraps all ports that a layer provides, in memory or real. An `Interceptor` defines what happens at each call
 * and each release. The two kinds are fault layers and `ResourceLedger`. Neither knows the shape of a port.
 */
import { Context, Effect, Layer, Option, type Scope, Stream } from "effect"
import { type Container, type ContainerError, ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { LlmProxy, type LlmProxyError } from "@cogni/sandbox-core/LlmProxy"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore, type RunStoreError } from "@cogni/sandbox-core/RunStore"
import type {
  CommandRefused,
  FileRefused,
  HostFailed,
  PostureMismatch,
  ProxyFailed,
  RunIdInUse,
  WorkspaceFailed
} from "@cogni/sandbox-core/SandboxReason"
import { Workspace } from "@cogni/sandbox-core/Workspace"

/** All operations of `ContainerRuntime` and its resources, each with its error. */
export interface ContainerRuntimeOperations {
  readonly "ContainerRuntime.acquire": ContainerError
  readonly "ContainerRuntime.release": never
  readonly "ContainerRuntime.prepare": ContainerError | PostureMismatch
  readonly "ContainerRuntime.releaseWaiting": never
  readonly "WaitingContainer.unusable": ContainerError
  readonly "WaitingContainer.bind": ContainerError
  readonly "ContainerRuntime.acquireVolume": ContainerError
  readonly "ContainerRuntime.releaseVolume": never
  readonly "ContainerRuntime.leftovers": ContainerError
  readonly "Container.start": ContainerError | PostureMismatch
  readonly "Container.proceed": ContainerError | ProxyFailed
  readonly "Container.output": ContainerError
  readonly "Container.exit": ContainerError
  readonly "Container.stop": ContainerError
  readonly "Container.exec": ContainerError | CommandRefused
  readonly "Container.files": ContainerError | FileRefused
  readonly "Exec.output": ContainerError
  readonly "Exec.exit": ContainerError | CommandRefused
}

export interface LlmProxyOperations {
  readonly "LlmProxy.acquire": LlmProxyError
  readonly "LlmProxy.release": never
  readonly "LlmProxy.ready": LlmProxyError
  readonly "LlmProxy.failure": LlmProxyError
  readonly "LlmProxy.traffic": LlmProxyError
}

export interface WorkspaceOperations {
  readonly "Workspace.acquire": WorkspaceFailed | HostFailed
  readonly "Workspace.release": never
  readonly "Workspace.countedBytes": WorkspaceFailed | HostFailed
}

export interface RunStoreOperations {
  readonly "RunStore.open": RunIdInUse | RunStoreError
  readonly "RunStore.release": never
  readonly "RunStore.save": never
  readonly "RunStore.annotate": RunStoreError
  readonly "RunStore.get": RunStoreError
  readonly "RunStore.describe": RunStoreError
  readonly "RunStore.list": RunStoreError
}

export interface Operations
  extends ContainerRuntimeOperations, LlmProxyOperations, WorkspaceOperations, RunStoreOperations {}

export type Operation = keyof Operations

/** A resource that is acquired and must be released. */
export interface Resource {
  readonly runId: RunId
  readonly kind: "container" | "volume" | "proxy" | "workspace" | "run record"
  readonly acquire: Operation
  readonly release: Operation
}

/** Actions around each call of a port. */
export interface Interceptor {
  readonly call: <A, E, R>(operation: Operation, effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** Wraps an acquisition. Its release is observed through the scope. */
  readonly hold: <A, E, R>(
    resource: Resource,
    acquire: Effect.Effect<A, E, R | Scope.Scope>
  ) => Effect.Effect<A, E, R | Scope.Scope>
}

const containerRuntime =
  ({ call, hold }: Interceptor) =>
  (runtime: ContainerRuntime["Service"]): ContainerRuntime["Service"] => {
    const streamed = <A, E>(operation: Operation, stream: Stream.Stream<A, E>): Stream.Stream<A, E> =>
      Stream.unwrap(call(operation, Effect.succeed(stream)))
    const container = (inner: Container): Container => ({
      id: inner.id,
      start: call("Container.start", inner.start),
      proceed: call("Container.proceed", inner.proceed),
      output: streamed("Container.output", inner.output),
      exit: call("Container.exit", inner.exit),
      send: inner.send,
      stop: (grace) => call("Container.stop", inner.stop(grace)),
      whilePaused: inner.whilePaused,
      processorMicros: inner.processorMicros,
      exec: (spec) =>
        Effect.map(call("Container.exec", inner.exec(spec)), (exec) => ({
          output: streamed("Exec.output", exec.output),
          exit: call("Exec.exit", exec.exit),
          signal: exec.signal
        })),
      files: {
        read: (path, options) => call("Container.files", inner.files.read(path, options)),
        write: (path, content) => call("Container.files", inner.files.write(path, content)),
        list: (path) => call("Container.files", inner.files.list(path)),
        stat: (path) => call("Container.files", inner.files.stat(path)),
        remove: (path, options) => call("Container.files", inner.files.remove(path, options))
      }
    })
    const { prepare } = runtime
    return {
      acquire: (spec) =>
        hold(
          {
            runId: spec.runId,
            kind: "container",
            acquire: "ContainerRuntime.acquire",
            release: "ContainerRuntime.release"
          },
          Effect.map(runtime.acquire(spec), container)
        ),
      prepare:
        prepare === undefined
          ? undefined
          : (spec) =>
              hold(
                {
                  runId: spec.waitingId,
                  kind: "container",
                  acquire: "ContainerRuntime.prepare",
                  release: "ContainerRuntime.releaseWaiting"
                },
                Effect.map(prepare(spec), (waiting) => ({
                  ...waiting,
                  unusable: call("WaitingContainer.unusable", waiting.unusable),
                  bind: (run) => call("WaitingContainer.bind", Effect.map(waiting.bind(run), container))
                }))
              ),
      acquireVolume: (spec) =>
        hold(
          {
            runId: spec.runId,
            kind: "volume",
            acquire: "ContainerRuntime.acquireVolume",
            release: "ContainerRuntime.releaseVolume"
          },
          runtime.acquireVolume(spec)
        ),
      sharesHost: runtime.sharesHost,
      leftovers: (runId) => call("ContainerRuntime.leftovers", runtime.leftovers(runId))
    }
  }

const llmProxy =
  ({ call, hold }: Interceptor) =>
  (proxy: LlmProxy["Service"]): LlmProxy["Service"] => ({
    capabilities: proxy.capabilities,
    acquire: (request) =>
      hold(
        { runId: request.runId, kind: "proxy", acquire: "LlmProxy.acquire", release: "LlmProxy.release" },
        Effect.map(proxy.acquire(request), (endpoint) => ({
          mounts: endpoint.mounts,
          hostSocketPath: endpoint.hostSocketPath,
          ready: call("LlmProxy.ready", endpoint.ready),
          failure: call("LlmProxy.failure", endpoint.failure),
          traffic: call("LlmProxy.traffic", endpoint.traffic),
          finish: call("LlmProxy.traffic", endpoint.finish)
        }))
      )
  })

const workspace =
  ({ call, hold }: Interceptor) =>
  (inner: Workspace["Service"]): Workspace["Service"] => ({
    prepare: inner.prepare,
    acquire: (request) =>
      hold(
        {
          runId: request.runId,
          kind: "workspace",
          acquire: "Workspace.acquire",
          release: "Workspace.release"
        },
        Effect.map(inner.acquire(request), (acquired) => ({
          ...acquired,
          countedBytes: call("Workspace.countedBytes", acquired.countedBytes),
          countedBytesAtRest: call("Workspace.countedBytes", acquired.countedBytesAtRest)
        }))
      )
  })

const runStore =
  ({ call, hold }: Interceptor) =>
  (store: RunStore["Service"]): RunStore["Service"] => ({
    open: (runId, spec) =>
      hold(
        { runId, kind: "run record", acquire: "RunStore.open", release: "RunStore.release" },
        Effect.map(store.open(runId, spec), (open) => ({
          ...open,
          save: (record) => call("RunStore.save", open.save(record))
        }))
      ),
    annotate: (runId, annotations) => call("RunStore.annotate", store.annotate(runId, annotations)),
    get: (runId) => call("RunStore.get", store.get(runId)),
    describe: (runId) => call("RunStore.describe", store.describe(runId)),
    list: call("RunStore.list", store.list),
    search: (asked) => call("RunStore.list", store.search(asked)),
    settle: store.settle,
    recover: store.recover
  })

const replace =
  <I, S>(port: Context.Key<I, S>, wrap: (service: S) => S) =>
  <A>(context: Context.Context<A>): Context.Context<A> =>
    Option.match(Context.getOption(context, port), {
      onNone: () => context,
      onSome: (service) => Context.add(context, port, wrap(service)) as Context.Context<A>
    })

/** Returns `base` with all its ports intercepted. Its other services are unchanged. */
export const layer = <A, E, R, E2, R2>(
  base: Layer.Layer<A, E, R>,
  make: Effect.Effect<Interceptor, E2, R2>
): Layer.Layer<A, E | E2, Exclude<R | R2, Scope.Scope>> =>
  Layer.effectContext(
    Effect.gen(function* () {
      const interceptor = yield* make
      const context = yield* Layer.build(base)
      return context.pipe(
        replace(ContainerRuntime, containerRuntime(interceptor)),
        replace(LlmProxy, llmProxy(interceptor)),
        replace(Workspace, workspace(interceptor)),
        replace(RunStore, runStore(interceptor))
      )
    })
  )
