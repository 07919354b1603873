/**
 * Workspaces as an agent may leave them: hostile ones, each of which does harm to a careless host, and ordinary ones
 * that have to arrive with the very commit id they had.
 *
 * Data only. `make` runs git of its own in a fresh clone; what it plants touches nothing outside the scene it is made
 * in.
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

/** What is done to the host, or to the origin. */
export type Attack = "execution" | "credential" | "file-read" | "file-write" | "ref" | "content" | "denial"

/** What a workspace is made from, and what its payloads may touch. Absolute paths of the host. */
export interface Context {
  /** `workspace/repo`, a fresh clone with `branch` checked out at `base`. */
  readonly repository: string
  readonly branch: string
  readonly base: string
  /** URL of its origin, without a credential. */
  readonly origin: string
  /** Is there only if a payload has run on the host. */
  readonly marker: string
  /** A file of the host with `secret` in it. */
  readonly secretFile: string
  /** Must never reach an origin. */
  readonly secret: string
  /** The run's own key: the agent knows it, and must not publish it. */
  readonly runKey: string
  readonly victim: {
    /** Another repository of the host, with `secret` in a commit. */
    readonly repository: string
    /** That commit, its tree, and the blob with the secret. */
    readonly commit: string
    readonly tree: string
    readonly blob: string
    /** A directory of the host whose files must not change. */
    readonly directory: string
  }
  /** URL of the attacker's server, which asks everyone for a password. */
  readonly collector: string
  /** The same with TLS, and a certificate nobody trusts. */
  readonly collectorTls: string
  /** Address at which the attacker's server answers on the origin's own port. */
  readonly collectorAddress: string
}

export interface Workspace {
  readonly name: string
  readonly attack: Attack
  /** The commit it is about, where there is one: with "delivered", what has to arrive. */
  readonly make: (context: Context) => void | string | Promise<void | string>
  /** All that `make` does besides ordinary work, where it gets along with others of its kind in one workspace. */
  readonly spoil?: (context: Context) => void
  readonly benign?: true
  /** `unharmed`: delivered or refused, as long as nothing of it happens. */
  readonly wants: "delivered" | "refused" | "unharmed"
  /** Why no careless host of `Naive` shows it. */
  readonly unshown?: string
}

/** Each of them harms a careless host, but for the few that say why they do not. */
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

/** Nobody is harmed by them, and nobody can use them: a host has to say so. */
export const broken: ReadonlyArray<Workspace> = damaged

/** Ordinary work. */
export const controls: ReadonlyArray<Workspace> = benign

export const workspaces: ReadonlyArray<Workspace> = [...hostile, ...broken, ...controls]
