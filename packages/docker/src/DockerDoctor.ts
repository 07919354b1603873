/**
 * Checks whether this machine can run sandboxes, with a fix for each problem.
 *
 * Changes nothing. Findings are independent: one failure does not hide the next.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import { ImageNotFound } from "@cogni/sandbox-core/SandboxReason"
import { Limits } from "@cogni/sandbox-core/SpecFields"
import { specialFilesWarning } from "@cogni/sandbox-core/SpecialFiles"
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"
import { Effect, Exit, Option, Schema } from "effect"
import { constants } from "node:fs"
import { access, readFile, stat, statfs } from "node:fs/promises"
import { dirname, resolve } from "node:path"
import * as DockerApi from "./DockerApi.ts"
import { fail, type Finding, ok, warn } from "./Finding.ts"
import * as KnownWeaknesses from "./internal/doctor/KnownWeaknesses.ts"
import * as SharedStocks from "./internal/doctor/SharedStocks.ts"
import * as DirectoryBinder from "./internal/container/DirectoryBinder.ts"
import * as GVisor from "./internal/container/GVisor.ts"
import * as HostOwner from "./HostOwner.ts"
import { type DockerAddress, format } from "./DockerSocket.ts"
import * as HostsFile from "./internal/container/HostsFile.ts"
import * as HostWorkspace from "./HostWorkspace.ts"
import * as PoolReports from "./internal/host/PoolReports.ts"
import * as SpecialFiles from "./internal/host/SpecialFiles.ts"

/** Free disk space in bytes below which the doctor warns. */
export const diskFreeBytesMin = 2 * 1024 ** 3

export interface DoctorOptions {
  /** Images that runs need. */
  readonly images: ReadonlyArray<{
    readonly name: string
    readonly image: string
    /** The only feature that needs this image. If set, a missing image is a warning instead of a failure. */
    readonly onlyFor?: string | undefined
  }>
  /** Directory for the records of runs. */
  readonly stateDirectory: string
  /** A directory to check as a workspace. Absent: no directory is checked. */
  readonly workspace?: string | undefined
  /** The OCI runtime that runs ask the engine for. Absent: the engine's default. */
  readonly engineRuntime?: string | undefined
  /** The same workspace options that runs use. */
  readonly workspaces?: HostWorkspace.Options | undefined
  /** Directory of the reports of pools. Absent: no pool is checked. */
  readonly pools?: string | undefined
}

export const engineFindings = (info: DockerApi.Info, apiVersion: string): ReadonlyArray<Finding> => [
  KnownWeaknesses.isBelow(apiVersion, [1, 41, 0])
    ? fail(
        "api version",
        `${apiVersion} (Engine ${info.ServerVersion})`,
        "Update the engine: at least API 1.41 (Engine 20.10), which has everything a run needs"
      )
    : ok("api version", `${apiVersion} (Engine ${info.ServerVersion})`),
  ["overlay2", "overlayfs", "btrfs", "zfs", "fuse-overlayfs"].includes(info.Driver)
    ? ok("storage driver", info.Driver)
    : warn("storage driver", info.Driver, "Use overlay2: others copy a whole image for every container"),
  info.SwapLimit === false
    ? fail(
        "cgroups",
        `version ${info.CgroupVersion ?? "?"}, without swap accounting`,
        "Boot with swapaccount=1: without it the engine ignores the swap limit, and no run starts"
      )
    : info.PidsLimit === false
      ? fail(
          "cgroups",
          "without a limit on processes",
          "Enable the pids controller: without it a fork bomb is not limited"
        )
      : info.CpuCfsPeriod === false || info.CpuCfsQuota === false
        ? fail(
            "cgroups",
            "without a limit on CPU time",
            "Use a kernel with CONFIG_CFS_BANDWIDTH and delegate the cpu controller: no run starts without a limit"
          )
        : ok("cgroups", `version ${info.CgroupVersion ?? "?"}, driver ${info.CgroupDriver ?? "?"}`),
  (info.SecurityOptions ?? []).some((option) => option.includes("seccomp") && !option.includes("unconfined"))
    ? ok("seccomp", "our profile, the same on every engine")
    : fail(
        "seccomp",
        "the engine runs containers without a seccomp filter",
        "Remove seccomp-profile=unconfined from its configuration"
      ),
  ...KnownWeaknesses.findings(info),
  ok("capacity", `${info.NCPU} CPUs, ${formatBytes(info.MemTotal)} of memory`)
]

/** Checks whether the engine has the OCI runtime that runs ask for. Pure. */
export const runtimeFinding = (
  { DefaultRuntime = "unknown", Runtimes }: Pick<DockerApi.Info, "DefaultRuntime" | "Runtimes">,
  engineRuntime: string | undefined
): Finding => {
  if (engineRuntime === undefined)
    return GVisor.isNamed(DefaultRuntime)
      ? fail(
          "engine runtime",
          `${DefaultRuntime}, the engine's default, needs its own list of system calls: no thread would start`,
          `Set ${named("DockerContainerRuntime.engineRuntime")} to ${DefaultRuntime}`
        )
      : ok("engine runtime", `${DefaultRuntime}, the engine's default`)
  const names = Object.keys(Runtimes ?? {})
  if (!names.includes(engineRuntime))
    return fail(
      "engine runtime",
      `the engine does not know ${engineRuntime}, only ${names.toSorted().join(", ") || "its default"}`,
      `Add it to "runtimes" in the engine's daemon.json, or correct ${named("DockerContainerRuntime.engineRuntime")}`
    )
  if (!GVisor.isNamed(engineRuntime)) return ok("engine runtime", engineRuntime)
  const missing = GVisor.missingFlags(Runtimes?.[engineRuntime])
  return missing.length === 0
    ? ok(
        "engine runtime",
        `${engineRuntime}. Each sandbox must allow at least ${GVisor.processesMin} processes`
      )
    : fail(
        "engine runtime",
        `${engineRuntime} lacks ${missing.join(", ")}: a sandbox would not start, or not reach its model`,
        `Add them to "runtimeArgs" of ${engineRuntime} in the engine's daemon.json, and restart the engine`
      )
}

const socketFinding = (address: DockerAddress): Effect.Effect<Finding> =>
  address.type === "tcp"
    ? Effect.succeed(
        warn(
          "socket",
          format(address),
          "Use a unix socket: workspaces are directories of this host, which a remote engine cannot mount"
        )
      )
    : Effect.promise(() =>
        access(address.path, constants.R_OK | constants.W_OK).then(
          () => ok("socket", address.path),
          ({ code }: NodeJS.ErrnoException) => {
            const [detail, fix] =
              code === "ENOENT"
                ? [
                    " does not exist",
                    `Start the engine (systemctl start docker), or set ${named("DockerApi.host")}`
                  ]
                : [`: ${code}`, "Add this user to the docker group, or run as root"]
            return fail("socket", `${address.path}${detail}`, fix)
          }
        )
      )

const userFinding: Effect.Effect<Finding> = Effect.sync(() => {
  const userId = process.getuid?.()
  return userId === undefined
    ? warn("user", "this system has no user IDs", "Run on Linux or in WSL2")
    : userId === 0
      ? ok("user", "root: agents run as uid 1000, or as the owner of their workspace")
      : ok("user", `uid ${userId}: agents run as the same user`)
})

const diskFinding = (check: string, path: string): Effect.Effect<Finding> =>
  Effect.promise(() =>
    nearest(resolve(path))
      .then((found) => statfs(found))
      .then(
        ({ bavail, bsize }) =>
          bavail * bsize < diskFreeBytesMin
            ? warn(
                check,
                `${formatBytes(bavail * bsize)} free at ${path}`,
                `Free disk space (${named("DockerReaper")}, docker system df)`
              )
            : ok(check, `${formatBytes(bavail * bsize)} free at ${path}`),
        () => ok(check, `${path} is not accessible from this process`)
      )
  )

/** Returns the directory itself, or the nearest one above it that exists. */
const nearest = (path: string): Promise<string> =>
  stat(path).then(
    () => path,
    (thrown: NodeJS.ErrnoException) => {
      const above = dirname(path)
      if (thrown.code === "ENOENT" && above !== path) return nearest(above)
      throw thrown
    }
  )

/** Checks the state directory. If it does not exist, a run must be able to create it. */
const stateFinding = (directory: string): Effect.Effect<Finding> =>
  Effect.promise(async () => {
    try {
      const found = await nearest(resolve(directory))
      const { mode } = await stat(found)
      await access(`${found}/.`, constants.W_OK | constants.X_OK)
      if (found !== resolve(directory)) return ok("records", `${directory}, which the first run creates`)
      return (mode & 0o022) === 0
        ? ok("records", directory)
        : warn(
            "records",
            `${directory} is writable by other users`,
            `chmod go-w ${ShellWord.quoted(directory)}`
          )
    } catch (thrown) {
      return fail(
        "records",
        `${directory}: ${(thrown as Error).message}`,
        `Set ${named("FileRunStore.directory")} to a directory that this user can write to`
      )
    }
  })

const { memoryBytesMax } = Schema.decodeSync(Limits)({})

/** Checks the shared kernel limits. Only valid if the engine runs on this host. */
const sharedFindings = (info: DockerApi.Info): Effect.Effect<ReadonlyArray<Finding>> =>
  Effect.promise(async () => {
    const values = await Promise.all(
      SharedStocks.stocks.map((stock) =>
        readFile(`/proc/sys/${SharedStocks.fileOf(stock)}`, "utf8").then(Number, () => undefined)
      )
    )
    return SharedStocks.findings(values, Math.max(1, Math.floor(info.MemTotal / memoryBytesMax)))
  })

const imageFinding = (
  api: DockerApi.DockerApi["Service"],
  { image, name, onlyFor }: DoctorOptions["images"][number]
) =>
  Effect.map(Effect.exit(api.imageSize(image)), (found) =>
    Exit.isSuccess(found) && found.value !== undefined
      ? ok(`image ${name}`, `${image}, ${formatBytes(found.value)}`)
      : (onlyFor === undefined ? fail : warn)(
          `image ${name}`,
          `${image} is not on this engine${onlyFor === undefined ? "" : `; needed for ${onlyFor}`}`,
          new ImageNotFound({ image }).remedy
        )
  )

/** Says whether runs in directories work, and whether sandboxes that wait can serve them. */
export const directoriesFinding = Effect.fnUntraced(function* (
  engine: Parameters<typeof DirectoryBinder.make>[0]
): Effect.fn.Return<Finding> {
  const info = Option.getOrUndefined(yield* Effect.option(engine.info))
  const runtime = engine.engineRuntime ?? info?.DefaultRuntime
  if (GVisor.isNamed(runtime))
    return warn(
      "directories",
      `directories of this host are refused as workspaces: with ${runtime}, a sandbox has another kernel, so its directory cannot be compared with the named one`,
      `Use an empty workspace or the repository of a forge, or set ${named("DockerContainerRuntime.engineRuntime")} to runc or crun`
    )
  const why = yield* Effect.scoped(Effect.flatMap(DirectoryBinder.make(engine), ({ whyNot }) => whyNot))
  return ok(
    "directories",
    why === undefined
      ? "can be bound into sandboxes that wait for runs"
      : `a run in one starts cold, also with a pool: ${why}`
  )
})

/** Says whether sandboxes start without a network of the engine. Writes the file that they need for it. */
export const networksFinding = Effect.fnUntraced(function* (
  info: DockerApi.Info,
  { address, directory, engineRuntime }: Omit<Parameters<typeof HostsFile.make>[0], "info">
): Effect.fn.Return<Finding> {
  const slow = "the engine configures that of each sandbox, which takes a third of a start"
  const why = HostsFile.whyNot(address, info, engineRuntime)
  if (why !== undefined) return ok("networks", `${slow}: ${why}`)
  return yield* HostsFile.make({ address, directory, engineRuntime, info: Effect.succeed(info) }).pipe(
    Effect.flatMap(({ acquire }) => acquire),
    Effect.scoped,
    Effect.match({
      onFailure: ({ detail, remedy }) => warn("networks", `${slow}: ${detail}`, remedy),
      onSuccess: () => ok("networks", "sandboxes start without the engine's help")
    })
  )
})

/** Checks whether a run accepts a directory as its workspace, and which special files an agent could reach in it. */
export const workspaceFinding = (path: string, options?: HostWorkspace.Options): Effect.Effect<Finding> =>
  Effect.flatMap(HostWorkspace.held(path, options), SpecialFiles.find).pipe(
    Effect.scoped,
    Effect.match({
      onFailure: ({ detail, remedy }) => fail("workspace", `${path} ${detail}`, remedy),
      onSuccess: (found) => {
        const warning = specialFilesWarning(found)
        return warning === undefined
          ? ok("workspace", `${path}${found.isWhole ? "" : ", checked in part"}`)
          : warn("workspace", warning, "List the listening processes: ss -xlp")
      }
    })
  )

export const examine = Effect.fn("DockerDoctor.examine")(function* (
  options: DoctorOptions
): Effect.fn.Return<ReadonlyArray<Finding>, never, DockerApi.DockerApi> {
  const api = yield* DockerApi.DockerApi
  const hostFindings = yield* Effect.all([
    socketFinding(api.address),
    userFinding,
    stateFinding(options.stateDirectory),
    diskFinding("disk for records", options.stateDirectory),
    ...(options.workspace === undefined ? [] : [workspaceFinding(options.workspace, options.workspaces)])
  ])
  const pools = options.pools === undefined ? [] : yield* PoolReports.findings(options.pools)
  const engine = yield* Effect.result(Effect.all([api.ping, api.info], { concurrency: 2 }))
  if (engine._tag === "Failure") {
    const error: ContainerError = engine.failure
    return [
      fail("engine", error.message, "remedy" in error ? error.remedy : "Read the engine's log"),
      ...hostFindings,
      ...pools
    ]
  }
  const [{ apiVersion }, info] = engine.success
  const isShared = HostOwner.isSharedWith(api.address, info)
  return [
    ok("engine", `${format(api.address)}, ${info.OperatingSystem}`),
    ...engineFindings(info, apiVersion),
    runtimeFinding(info, options.engineRuntime),
    ...(isShared ? yield* sharedFindings(info) : []),
    isShared
      ? ok("files", "shared with this host: sockets of runs are mounted")
      : warn(
          "files",
          "not shared with this host: the sockets of runs go into a separate container",
          "Run on the engine's host for the lowest latency to the model"
        ),
    yield* directoriesFinding({ address: api.address, info: api.info, engineRuntime: options.engineRuntime }),
    yield* networksFinding(info, { address: api.address, engineRuntime: options.engineRuntime }),
    ...(yield* Effect.forEach(options.images, (image) => imageFinding(api, image), { concurrency: 4 })),
    yield* diskFinding("disk for images", info.DockerRootDir),
    ...hostFindings,
    ...pools
  ]
})
