/**
 * The `/etc/hosts` of a sandbox whose network the engine does not configure (docs/adr/0045-cheaper-cold-starts.md).
 *
 * The engine writes that file only as part of a network, and images cannot bring one. So the host process writes it,
 * and mounts it read-only. Each container has a file of its own: processes that share one can lock it against each
 * other, and see when others read it. Only an engine that shares the disk and the users of this process can mount it.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import type { FileIdentity, Posture } from "@cogni/sandbox-core/Posture"
import { ContainerFailed, type PostureMismatch } from "@cogni/sandbox-core/SandboxReason"
import { attemptWhole } from "@cogni/sandbox-host-files/Attempt"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Clock, Effect, type Scope } from "effect"
import { chmod, lstat, readdir, unlink } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import type { DockerApi, Info } from "../../DockerApi.ts"
import * as DirectoryBinder from "./DirectoryBinder.ts"
import * as GVisor from "./GVisor.ts"
import * as KernelFacts from "./KernelFacts.ts"
import { hostsTarget as target } from "./Hardening.ts"

/** A file that one container mounts. */
export interface HostsFile {
  readonly path: string
  readonly identity: FileIdentity
}

/**
 * `localhost` is an IPv4 address, as with a network of the engine, where `::1` cannot be used. Some programs try only
 * the first address of a name, and the port of the model is open on `127.0.0.1`.
 */
export const content = "127.0.0.1\tlocalhost\n::1\tip6-localhost ip6-loopback\n"

/** Time for which an image gets no file after a container of it could not use one, in milliseconds. */
const pauseMillis = 60_000

/** Images whose failures are remembered at once. */
const imagesMax = 128

/** Age from which a file belongs to no container, whose longest life is shorter, in milliseconds. */
const ageMillisMax = 48 * 3_600_000

const unusable = (path: string, why: string) =>
  new ContainerFailed({
    operation: "create",
    detail: `the file ${path}, which is to be ${target} in it, cannot be used: ${why}`,
    remedy:
      "Set TMPDIR to a directory that has room and that only this user can write, or mend this one. " +
      "Until then, the engine configures the network"
  })

/** Absolute, as the engine requires it, and because this process may change its working directory. */
export const defaultDirectory = (): string => resolve(tmpdir(), `cogni-hosts-${process.geteuid?.() ?? 0}`)

/** Name of one of these files. No other is removed, because other users may exchange the directory. */
const ownName = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/u

export const make = Effect.fnUntraced(function* ({
  address,
  directory = defaultDirectory(),
  engineRuntime,
  info
}: Pick<DockerApi["Service"], "address" | "info"> & {
  /** Where the files are (default: in the temporary directory of this host). */
  readonly directory?: string | undefined
  /** Runtime of the engine that starts the containers. Absent: its default. */
  readonly engineRuntime?: string | undefined
}) {
  // By image, because an image can cause it, and must not delay the runs of others.
  const pausedUntilMillis = new Map<string, number>()
  // Those of host processes that were killed.
  const swept = yield* Effect.cached(
    Effect.flatMap(Clock.currentTimeMillis, (nowMillis) =>
      Effect.ignore(Effect.tryPromise(() => sweep(directory, nowMillis)))
    )
  )
  return {
    /** Whether a container of an image can have such a file. Never fails: without an answer of the engine, none can. */
    isPossible: Effect.fnUntraced(function* (image: string) {
      if ((yield* Clock.currentTimeMillis) < (pausedUntilMillis.get(image) ?? 0)) return false
      // Not worth a question: no file of this kernel can be verified there.
      if (GVisor.isNamed(engineRuntime)) return false
      return yield* info.pipe(
        Effect.map((engine) => whyNot(address, engine, engineRuntime) === undefined),
        Effect.orElseSucceed(() => false)
      )
    }),
    /** Returns whether a failure of a container is one of its file, so that it can start without one. */
    isCauseOf: (error: ContainerError | PostureMismatch) => isCauseOf(directory, error),
    /** Notes that a container of an image could not use its file. */
    noteFailure: (image: string) =>
      Effect.map(Clock.currentTimeMillis, (nowMillis) => {
        // The map is in the order of the last failure.
        pausedUntilMillis.delete(image)
        pausedUntilMillis.set(image, nowMillis + pauseMillis)
        const [oldest] = pausedUntilMillis.keys()
        if (pausedUntilMillis.size > imagesMax && oldest !== undefined) pausedUntilMillis.delete(oldest)
      }),
    /** Writes a file for one container, and removes it when the scope closes. */
    acquire: Effect.gen(function* (): Effect.fn.Return<HostsFile, ContainerFailed, Scope.Scope> {
      const path = join(directory, crypto.randomUUID())
      const attempt = <A>(run: () => Promise<A>) => attemptWhole(run, (message) => unusable(path, message))
      // Before anything in it is removed: it could be a link, or another user's.
      yield* attempt(() => OwnFiles.makePrivateDirectory(directory))
      yield* swept
      const remove = Effect.ignore(Effect.tryPromise(() => unlink(path)))
      yield* Effect.acquireRelease(
        Effect.tapError(
          attempt(() => write(path)),
          () => remove
        ),
        () => remove
      )
      const { device, inode } = yield* attempt(() => MountIdentity.ofPrivate(path))
      return { path, identity: { device, inode } }
    })
  }
})

const write = async (path: string): Promise<void> => {
  await OwnFiles.create(path, content)
  // Whatever the umask of this process.
  await chmod(path, 0o444)
}

const sweep = async (directory: string, nowMillis: number): Promise<void> => {
  const names = await readdir(directory)
  // Another process may remove them too.
  await Promise.allSettled(
    names
      .filter((name) => ownName.test(name))
      .map(async (name) => {
        const path = join(directory, name)
        if ((await lstat(path)).mtimeMs < nowMillis - ageMillisMax) await unlink(path)
      })
  )
}

/** Returns why the containers of an engine cannot mount and read a file of this process. Pure. */
export const whyNot = (
  address: DockerApi["Service"]["address"],
  engine: Pick<Info, "DefaultRuntime" | "KernelVersion" | "Name" | "SecurityOptions">,
  engineRuntime?: string
): string | undefined =>
  DirectoryBinder.whyElsewhere(address, engine, engineRuntime) ??
  ((engine.SecurityOptions ?? []).some((option) => /^name=selinux\b/u.test(option))
    ? "the engine gives labels to files (name=selinux)"
    : undefined)

/** Beginning of each sentence about the file. */
const aboutFile = `its ${target}`

const isCauseOf = (directory: string, error: ContainerError | PostureMismatch): boolean => {
  switch (error._tag) {
    case "ContainerFailed":
      return error.detail.includes(target) || error.detail.includes(directory)
    case "PostureMismatch":
      return error.mismatches.every((sentence) => sentence.startsWith(aboutFile))
    default:
      return false
  }
}

/**
 * Lists what is wrong with a container that has such a file, a sentence each: the mount, and the namespace that no
 * engine has configured.
 */
export const mismatches = (
  { identity }: HostsFile,
  { mounts, namespaces }: Pick<Posture, "mounts" | "namespaces">,
  {
    network = KernelFacts.ownNetworkNamespace(),
    onHost
  }: {
    /** Identity that this host sees at the place. Absent: access was denied. */
    readonly onHost: FileIdentity | undefined
    /** Network namespace of this process. */
    readonly network?: string | undefined
  }
): ReadonlyArray<string> => {
  const own = mounts.filter((mount) => mount.target === target)
  const isOther =
    onHost !== undefined && (onHost.device !== identity.device || onHost.inode !== identity.inode)
  return [
    ...(own.length === 1 ? [] : [`${aboutFile} has ${own.length} mounts, not that of its file alone`]),
    ...(own.every(({ readOnly }) => readOnly) ? [] : [`${aboutFile} can be written`]),
    ...(isOther ? [`${aboutFile} is not the file that was written for it`] : []),
    ...(namespaces["net"] === undefined || namespaces["net"] === network
      ? ["its network namespace is that of the host, or was not reported"]
      : [])
  ]
}
