/**
 * The shape of a sandbox: what cannot be changed any more when a waiting sandbox gets a run. Pure.
 *
 * Everything else of a run is bound when it gets the sandbox. A run that needs more than that starts cold.
 */
import { bindingBytesMax, bindingTextsMax } from "./internal/BindingLimits.ts"
import * as WayOut from "./internal/WayOut.ts"
import type { LlmProxyCapabilities } from "./LlmObservation.ts"
import type { ColdReason } from "./PoolUse.ts"
import type { User } from "./Posture.ts"
import { type SandboxSpec } from "./SandboxSpec.ts"
import { type Limits, supervisor } from "./SpecFields.ts"
import type { ExaminedDirectory } from "./WaitingSandbox.ts"

export interface SandboxShape {
  readonly image: string
  /** Whether it takes many commands, or runs one program. */
  readonly supervised: boolean
  /** Whether `.cogni` in the workspace belongs to the agent. */
  readonly memory: boolean
  /** Program that loads the code of an agent before there is a run. */
  readonly preload?: ReadonlyArray<string> | undefined
  /** Limits that are fixed when a sandbox is created: sizes of file systems, and limits that processes inherit. */
  readonly limits: Pick<Limits, "temporaryBytesMax" | "filesOpenMax" | "workspaceBytesMax">
  /** User of the agent. Absent: that of temporary workspaces. */
  readonly user?: User | undefined
}

/** A run as a pool sees it. */
export interface Asked {
  readonly spec: SandboxSpec
  readonly supervised: boolean
  readonly proxy: LlmProxyCapabilities
  /** Its directory, if its workspace is one that can be bound into a waiting sandbox. */
  readonly directory?: ExaminedDirectory | undefined
}

export const make = ({
  directory,
  spec,
  supervised
}: Pick<Asked, "directory" | "spec" | "supervised">): SandboxShape => {
  const { filesOpenMax, temporaryBytesMax, workspaceBytesMax } = spec.limits
  return {
    image: spec.image,
    supervised,
    memory: spec.memory,
    // Commands of an open sandbox are sent to its supervisor.
    ...(spec.preload === undefined || supervised ? {} : { preload: spec.preload }),
    limits: { filesOpenMax, temporaryBytesMax, workspaceBytesMax },
    user: directory?.otherUser
  }
}

/** Returns a text that is equal for equal shapes. */
export const keyOf = ({ image, limits, memory, preload, supervised, user }: SandboxShape): string =>
  [
    image,
    supervised ? "open" : "run",
    memory ? "memory" : "inputs",
    limits.temporaryBytesMax,
    limits.filesOpenMax,
    limits.workspaceBytesMax,
    ...(preload === undefined ? [] : [JSON.stringify(preload)]),
    ...(user === undefined ? [] : [`${user.userId}:${user.groupId}`])
  ].join(" ")

/**
 * Variables that a runtime, a linker or a library reads when a process starts, and never again. The program of an image
 * looks too, at the same names (images/runtime/preload.mjs): this first, cheap look only spares the waiting sandbox.
 */
const readAtStart =
  /^(?:BUN_|GLIBC_|LC_|LD_|MALLOC_|NODE_|OPENSSL_|PERL|PYTHON|SSL_|UV_|(?:LANG|LANGUAGE|TZ)$)|_PROXY$/iu

const hasEarlyVariables = ({ env }: Pick<SandboxSpec, "env">): boolean =>
  Object.keys(env).some((name) => readAtStart.test(name))

const isLarge = ({ argv, env }: Pick<SandboxSpec, "argv" | "env">): boolean => {
  const texts = [...argv, ...Object.entries(env).map(([name, value]) => `${name}=${value}`)]
  const bytes = texts.reduce((sum, text) => sum + new TextEncoder().encode(text).length, 0)
  return texts.length > bindingTextsMax || bytes > bindingBytesMax
}

/** Returns why no waiting sandbox can serve a run, whatever the pool has; `undefined` if one can. */
export const coldReason = ({ directory, proxy, spec, supervised }: Asked): ColdReason | undefined => {
  if (spec.workspace.type !== "temporary" && directory === undefined) return "workspace"
  if (spec.canaries !== "off" || WayOut.directories(spec).length > 0) return "files"
  if (spec.network.mode !== "none") return "network"
  if (WayOut.isInside(spec) && proxy.listensInMount !== true) return "proxy"
  if (!supervised && spec.argv[0] === supervisor) return "supervisor"
  if (!supervised && spec.preload !== undefined && hasEarlyVariables(spec)) return "variables"
  return isLarge(spec) ? "size" : undefined
}
