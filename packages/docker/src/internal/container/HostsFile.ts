/**
 * The `/etc/hosts` of a sandbox whose network the engine does not configure (docs/adr/0045-cheaper-cold-starts.md).
 *
 * The engine writes that file only as part of a network, and images cannot bring one. So the host process writes it,
 * and mounts it read-only. Each container has a file of its own: processes that share one can lock it against each
 * other, and see when others read it. Only an engine that shares the disk and the users of this process can mount it.
 */
import * as MonotonicTime from "@cogni/sandbox-core/MonotonicTime"
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import type { FileIdentity, Posture } from "@cogni/sandbox-core/Posture"
import { ContainerFailed, type PostureMismatch } from "@cogni/sandbox-core/SandboxReason"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import { attemptWhole } from "@cogni/sandbox-host-files/Attempt"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Clock, Duration, Effect, Exit, Scope } from "effect"
import { chmod, lstat, readdir, readFile, unlink } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import type { DockerApi, Info } from "../../DockerApi.ts"
import * as DirectoryBinder from "./DirectoryBinder.ts"
import * as GVisor from "./GVisor.ts"
import * as HostOwner from "../../HostOwner.ts"
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

/**
 * Matches the names of these files: a UUID of their process, and one of their own, or `owner`. That file names the
 * process. A sandbox reads the name of its file, and need not know the process. Nothing else is removed, because other
 * users may exchange the directory.
 */
const ownName = /^([0-9a-f-]{36})\.([0-9a-f-]{36}|owner)$/u

const ownerName = (ownId: string): string => `${ownId}.owner`

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
  const ownId = crypto.randomUUID()
  const attempt = <A>(path: string, run: () => Promise<A>) =>
    attemptWhole(run, (message) => unusable(path, message))
  const file = (path: string, text: string, mode: number) => {
    const remove = Effect.ignore(Effect.tryPromise(() => unlink(path)))
    return Effect.acquireRelease(
      Effect.tapError(
        attempt(path, () => write(path, text, mode)),
        () => remove
      ),
      () => remove
    )
  }
  const owner = file(join(directory, ownerName(ownId)), formatOwner(HostOwner.self()), 0o400)
  const owned = yield* Effect.cachedWithTTL(
    Scope.provide(owner, yield* Effect.scope),
    // The next container tries again.
    (exit) => (Exit.isSuccess(exit) ? Duration.infinity : 0)
  )
  return {
    /** Whether a container of an image can have such a file. Never fails: without an answer of the engine, none can. */
    isPossible: Effect.fnUntraced(function* (image: string) {
      if ((yield* MonotonicTime.nowMillis) < (pausedUntilMillis.get(image) ?? 0)) return false
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
      Effect.map(MonotonicTime.nowMillis, (nowMillis) => {
        // The map is in the order of the last failure.
        pausedUntilMillis.delete(image)
        pausedUntilMillis.set(image, nowMillis + pauseMillis)
        const [oldest] = pausedUntilMillis.keys()
        if (pausedUntilMillis.size > imagesMax && oldest !== undefined) pausedUntilMillis.delete(oldest)
      }),
    /** Writes a file for one container, and removes it when the scope closes. */
    acquire: Effect.gen(function* (): Effect.fn.Return<HostsFile, ContainerFailed, Scope.Scope> {
      const path = join(directory, `${ownId}.${crypto.randomUUID()}`)
      yield* attempt(path, () => OwnFiles.makePrivateDirectory(directory))
      // It is made once. Another container would find a file of that name that nothing has noted.
      yield* Effect.uninterruptible(owned)
      yield* file(path, content, 0o444)
      const { device, inode } = yield* attempt(path, () => MountIdentity.ofPrivate(path))
      return { path, identity: { device, inode } }
    })
  }
})

const write = async (path: string, text: string, mode: number): Promise<void> => {
  await OwnFiles.create(path, text)
  // Whatever the umask of this process.
  await chmod(path, mode)
}

/**
 * Removes the files of host processes that are dead, or that cannot be checked and have no living container any more.
 * A container that still mounts one keeps it. Never fails.
 */
export const sweep = (directory: string = defaultDirectory()): Effect.Effect<void> =>
  Effect.flatMap(Clock.currentTimeMillis, (nowMillis) =>
    Effect.ignore(Effect.tryPromise(() => sweepAt(directory, nowMillis)))
  )

const sweepAt = async (directory: string, nowMillis: number): Promise<void> => {
  if ((await lstat(directory).catch(() => undefined)) === undefined) return
  // Before anything in it is read or removed: it could be a link, or another user's, who can fill it without limit.
  await OwnFiles.makePrivateDirectory(directory)
  const found = (await readdir(directory)).flatMap((name) => {
    const [, ownId, rest] = ownName.exec(name) ?? []
    return ownId === undefined ? [] : [{ name, ownId, isOwner: rest === "owner" }]
  })
  const owners = new Map<string, string>()
  for (const { isOwner, name, ownId } of found) {
    // Another process may remove it too, here and below.
    const text = isOwner ? await readFile(join(directory, name), "utf8").catch(() => undefined) : undefined
    if (text !== undefined) owners.set(ownId, text)
  }
  // An owner goes last, so that an interrupted sweep can be repeated.
  for (const { name, ownId } of found.toSorted((a, b) => Number(a.isOwner) - Number(b.isOwner))) {
    const path = join(directory, name)
    const made = await lstat(path).catch(() => undefined)
    if (made === undefined) continue
    const expiresAt = new Date(made.mtimeMs + ageMillisMax).toISOString()
    if (HostOwner.isOrphaned(owners.get(ownId), expiresAt, new Date(nowMillis)))
      await unlink(path).catch(() => {})
  }
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
