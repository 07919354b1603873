/**
 * A container that holds a network namespace ready for one run (docs/adr/0045-cheaper-cold-starts.md).
 *
 * Its namespace has no interface but `lo`. Its only process waits for the end of its input, which comes with the end of
 * this process. It contains nothing of any run, and serves at most one. The engine takes as long to make a namespace as
 * for the rest of a start.
 */
import type { ContainerError, ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { DockerApi, Inspected } from "../../DockerApi.ts"
import { ContainerFailed, type PostureMismatch } from "@cogni/sandbox-core/SandboxReason"
import { Effect } from "effect"
import type * as EngineContainer from "./EngineContainer.ts"
import * as KernelFacts from "./KernelFacts.ts"

/** A started holder. */
export interface NetworkHolder {
  readonly id: string
  /** ID of the image that it was started with. */
  readonly imageId: string
  /** Whether the engine did not configure the namespace, so that who joins it needs an `/etc/hosts`. */
  readonly isNetless: boolean
  /** Returns why no run may join it; `undefined` if one may. */
  readonly whyUnusable: () => string | undefined
  /** Lists what the kernel shows to be wrong with the namespace of a container that has joined it, a sentence each. */
  readonly mismatches: (joined: Pick<Inspected, "Id" | "State">) => ReadonlyArray<string>
}

/** Enough for runc, which starts the program with these limits. */
const limits: ContainerSpec["limits"] = {
  memoryBytesMax: 32 * 1024 * 1024,
  processesMax: 32,
  cpusMax: 1,
  temporaryBytesMax: 4096,
  filesOpenMax: 64,
  workspaceBytesMax: 0,
  runtimeSecondsMax: 0
}

/**
 * Specification of a holder. A `relay`, because only the host looks at it. It has the image of the runs that may join
 * it, so that no run meets a program of another image.
 */
export const specOf = (image: string, runId: RunId): ContainerSpec => ({
  runId,
  role: "relay",
  image,
  argv: [],
  env: {},
  user: { userId: 65534, groupId: 65534 },
  mounts: [],
  network: { mode: "none" },
  limits
})

/** Waits for the end of its input. It needs a third of a MiB. */
export const program = { entrypoint: ["/bin/cat"], argv: [], workingDirectory: "/" }

/** The host process may not look at the namespaces of containers, so it cannot use any. */
export const unreadable = new ContainerFailed({
  operation: "start",
  detail: "this process may not read in the kernel which network namespace a container has",
  remedy: "Run it as root. Otherwise cold runs start as without ready networks"
})

const unusable = ({ id }: Pick<NetworkHolder, "id">, why: string) =>
  new ContainerFailed({
    operation: "start",
    detail: `the container ${id}, which holds a ready network, cannot be used: ${why}`,
    remedy: "Check which program uses containers with our labels on this engine"
  })

/** Beginning of each sentence about a namespace. */
const aboutNetwork = "on the host, its network namespace"

/** Returns whether a failure of a container is one of the network that it was to join. */
export const isCauseOf = (
  { id, whyUnusable }: NetworkHolder,
  error: ContainerError | PostureMismatch
): boolean => {
  switch (error._tag) {
    case "ContainerFailed":
      return error.detail.includes(id) || whyUnusable() !== undefined
    case "PostureMismatch":
      return error.mismatches.every((sentence) => sentence.startsWith(aboutNetwork))
    default:
      return false
  }
}

/** Starts it, and notes which namespace it has. */
export const make = Effect.fnUntraced(function* (
  api: Pick<DockerApi["Service"], "inspect">,
  isNetless: boolean,
  { container, endedNow, troubled }: Effect.Success<ReturnType<typeof EngineContainer.open>>
) {
  yield* container.start
  const inspected = yield* api.inspect(container.id)
  const processId = inspected?.State.Pid ?? 0
  if (inspected === undefined || KernelFacts.firstProcess(processId, container.id, []) === undefined)
    return yield* unusable(container, "it has ended")
  const network = KernelFacts.networkNamespace(processId, container.id)
  if (network === undefined) return yield* unreadable

  const others = (): string | undefined => {
    const found = KernelFacts.processes(processId, container.id)
    if (found === undefined) return "its processes are unknown"
    return found.length === 1 && found[0] === processId
      ? undefined
      : `processes ${found.join(", ")} are in it, not only its own`
  }
  const whyUnusable = () => (endedNow() ? "it has ended" : (troubled() ?? others()))
  return {
    id: container.id,
    imageId: inspected.Image,
    isNetless,
    whyUnusable,
    mismatches: ({ Id, State }) => {
      const joined = KernelFacts.networkNamespace(State.Pid, Id)
      const why = whyUnusable()
      return [
        ...(joined === network
          ? []
          : [`${aboutNetwork} is ${joined ?? "unknown"}, not ${network}, which was made for it`]),
        ...(why === undefined ? [] : [`${aboutNetwork} is held by a container that cannot be used: ${why}`])
      ]
    }
  } satisfies NetworkHolder
})
