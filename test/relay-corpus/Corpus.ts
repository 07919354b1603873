/**
 * Workspaces as an agent may leave them: hostile ones, each of which harms a careless host, and ordinary ones, which
 * must arrive with an unchanged commit ID.
 *
 * Data only. `make` runs git in a fresh clone. Its payloads touch nothing outside of their scene.
 */
import { benign } from "./WorkspacesBenign.ts"
import { bombs } from "./WorkspacesBombs.ts"
import { config } from "./WorkspacesConfig.ts"
import { content } from "./WorkspacesContent.ts"
import { credential } from "./WorkspacesCredential.ts"
import { drivers } from "./WorkspacesDrivers.ts"
import { files } from "./WorkspacesFiles.ts"
import { hooks } from "./WorkspacesHooks.ts"
import { layouts } from "./WorkspacesLayout.ts"
import { leaks } from "./WorkspacesLeaks.ts"
import { broken as damaged, objects } from "./WorkspacesObjects.ts"
import { odd } from "./WorkspacesOdd.ts"
import { pipes } from "./WorkspacesPipes.ts"
import { refs } from "./WorkspacesRefs.ts"
import { secrets } from "./WorkspacesSecrets.ts"
import { workflows } from "./WorkspacesWorkflows.ts"

/** Kind of harm to the host or the origin. */
export type Attack = "execution" | "credential" | "file-read" | "file-write" | "ref" | "content" | "denial"

/** Paths and values for a workspace and its payloads. Paths are absolute paths of the host. */
export interface Context {
  /** `workspace/repo`, a fresh clone with `branch` checked out at `base`. */
  readonly repository: string
  readonly branch: string
  readonly base: string
  /** URL of its origin, without a credential. */
  readonly origin: string
  /** File that exists only if a payload has run on the host. */
  readonly marker: string
  /** File of the host that contains `secret`. */
  readonly secretFile: string
  /** Text that must never reach an origin. */
  readonly secret: string
  /** Key of the run. The agent knows it, and must not publish it. */
  readonly runKey: string
  readonly victim: {
    /** Another repository of the host, which contains `secret` in a commit. */
    readonly repository: string
    /** That commit, its tree, and the blob with the secret. */
    readonly commit: string
    readonly tree: string
    readonly blob: string
    /** Directory of the host whose files must not change. */
    readonly directory: string
  }
  /** URL of the attacker's server, which asks every client for a password. */
  readonly collector: string
  /** URL of the same server with TLS and an untrusted certificate. */
  readonly collectorTls: string
  /** Address where the attacker's server listens on the origin's port. */
  readonly collectorAddress: string
}

export interface Workspace {
  readonly name: string
  readonly attack: Attack
  /** Returns the commit that the workspace is meant to deliver, if any. If `wants` is "delivered", it must arrive. */
  readonly make: (context: Context) => void | string | Promise<void | string>
  /** The part of `make` besides ordinary work, if it can share one workspace with others of its kind. */
  readonly spoil?: (context: Context) => void
  readonly benign?: true
  /** `unharmed`: delivered or refused, as long as the attack has no effect. */
  readonly wants: "delivered" | "refused" | "unharmed"
  /** Reason why the careless host of `Naive` is not harmed. */
  readonly unshown?: string
}

/** Hostile workspaces. Each harms a careless host, except those with a reason in `unshown`. */
export const hostile: ReadonlyArray<Workspace> = [
  ...hooks,
  ...config,
  ...drivers,
  ...layouts,
  ...credential,
  ...leaks,
  ...files,
  ...refs,
  ...workflows,
  ...content,
  ...odd,
  ...secrets,
  ...objects,
  ...pipes,
  ...bombs
]

/** Damaged workspaces. They are harmless and unusable, and a host must report that. */
export const broken: ReadonlyArray<Workspace> = damaged

/** Workspaces with ordinary work. */
export const controls: ReadonlyArray<Workspace> = benign

export const workspaces: ReadonlyArray<Workspace> = [...hostile, ...broken, ...controls]
