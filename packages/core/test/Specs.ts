/** Valid specs and runners, for tests that need any. */
import {
  ContainerRuntime,
  LlmProxy,
  MemoryContainerRuntime,
  RunId,
  RunStore,
  SandboxRunner,
  type SandboxSpec,
  Workspace
} from "@cogni/sandbox-core"
import type * as SpecFields from "@cogni/sandbox-core/SpecFields"
import { Effect, Layer } from "effect"

export const runId = RunId.RunId.make("run-test00000001")

export const llm: SpecFields.LlmAccess = {
  model: "model-1",
  models: {},
  identity: { billingAccountId: "account-1", attempt: 0 },
  unknownFields: "drop",
  caller: "sandbox"
}

export const spec: SandboxSpec.SandboxSpecInput = { runId, image: "memory/agent", argv: ["agent", "--once"] }

export const containerSpec = (runId: RunId.RunId): ContainerRuntime.ContainerSpec => ({
  runId,
  role: "agent",
  image: "memory/agent",
  argv: ["agent"],
  env: {},
  user: { userId: 1000, groupId: 1000 },
  mounts: [],
  network: { mode: "none" },
  limits: {
    runtimeSecondsMax: 60,
    memoryBytesMax: 64 * 1024 ** 2,
    processesMax: 16,
    cpusMax: 1,
    temporaryBytesMax: 1024 ** 2,
    filesOpenMax: 64,
    workspaceBytesMax: 1024 ** 2
  }
})

/** A runner in memory, with any of its ports replaced. */
export const runner = (
  options: {
    readonly program?: MemoryContainerRuntime.Program
    readonly runtime?: Layer.Layer<ContainerRuntime.ContainerRuntime>
    readonly proxy?: Layer.Layer<LlmProxy.LlmProxy>
    readonly store?: Layer.Layer<RunStore.RunStore>
    readonly workspace?: Layer.Layer<Workspace.Workspace>
  } = {}
) =>
  SandboxRunner.layer.pipe(
    Layer.provide([options.proxy ?? LlmProxy.layerMemory(), options.workspace ?? Workspace.layerMemory()]),
    Layer.provideMerge(
      Layer.merge(
        options.runtime ?? MemoryContainerRuntime.layer({ program: options.program }),
        options.store ?? RunStore.layerMemory
      )
    )
  )

export const leftovers = (id = runId) =>
  ContainerRuntime.ContainerRuntime.use((runtime) => runtime.leftovers(id))

export const record = (id = runId) => RunStore.RunStore.use((store) => store.get(id))

export const run = (input: SandboxSpec.SandboxSpecInput = spec) =>
  SandboxRunner.SandboxRunner.use((runner) => runner.run(input))

/** Lets every fiber that can continue do so. No time passes. */
export const settle = Effect.repeat(Effect.yieldNow, { times: 200 })

export const hello: MemoryContainerRuntime.Program = ({ stdout }) => Effect.as(stdout("hello\n"), 0)
/** Writes something, and does not end. */
export const forever: MemoryContainerRuntime.Program = ({ stdout }) =>
  Effect.andThen(stdout("so far\n"), Effect.never)
