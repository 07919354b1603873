/**
 * What is wrong with this machine for sandboxed runs, and what to do about each thing.
 *
 * Looks and never changes anything. Every finding stands for itself: one that fails does not hide the next.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { formatBytes } from "@cogni/sandbox-core/RunResult"
import { Limits } from "@cogni/sandbox-core/SandboxSpec"
import { specialFilesWarning } from "@cogni/sandbox-core/Workspace"
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"
import { Effect, Exit, Schema } from "effect"
import { constants } from "node:fs"
import { access, mkdir, readFile, stat, statfs } from "node:fs/promises"
import * as DockerApi from "./DockerApi.ts"
import { fail, type Finding, ok, warn } from "./Finding.ts"
import * as KnownWeaknesses from "./internal/doctor/KnownWeaknesses.ts"
import * as SharedStocks from "./internal/doctor/SharedStocks.ts"
import * as HostOwner from "./HostOwner.ts"
import { type DockerAddress, format } from "./DockerSocket.ts"
import * as HostWorkspace from "./HostWorkspace.ts"
import * as SpecialFiles from "./internal/host/SpecialFiles.ts"

/** Less free disk than this is a warning. */
export const diskFreeBytesMin = 2 * 1024 ** 3

export interface DoctorOptions {
  /** Images that runs will need. */
  readonly images: ReadonlyArray<{
    readonly name: string
    readonly image: string
    /** What cannot be had without it, where the rest can. */
    readonly onlyFor?: string | undefined
  }>
  /** Where records will be kept. */
  readonly stateDirectory: string
  /** A directory that is to be a workspace, if it is to be looked at too. */
  readonly workspace?: string | undefined
  /** As runs have them. */
  readonly workspaces?: HostWorkspace.Options | undefined
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
        "Boot with swapaccount=1: the engine drops the limit on swap even where there is none, and no run starts without it"
      )
    : info.PidsLimit === false
      ? fail(
          "cgroups",
          "without a limit on processes",
          "Enable the pids controller: a fork bomb could not be held"
        )
      : info.CpuCfsPeriod === false || info.CpuCfsQuota === false
        ? fail(
            "cgroups",
            "without a limit on CPU time",
            "Use a kernel with CONFIG_CFS_BANDWIDTH and delegate the cpu controller: the engine drops the limit, and no run starts without it"
          )
        : ok("cgroups", `version ${info.CgroupVersion ?? "?"}, driver ${info.CgroupDriver ?? "?"}`),
  (info.SecurityOptions ?? []).some((option) => option.includes("seccomp") && !option.includes("unconfined"))
    ? ok("seccomp", "our own profile, the same on every engine")
    : fail(
        "seccomp",
        "the engine runs containers without a filter",
        "Remove seccomp-profile=unconfined from its configuration"
      ),
  ...KnownWeaknesses.findings(info),
  ok("capacity", `${info.NCPU} CPUs, ${formatBytes(info.MemTotal)} of memory`)
]

const socketFinding = (address: DockerAddress): Effect.Effect<Finding> =>
  address.type === "tcp"
    ? Effect.succeed(
        warn(
          "socket",
          format(address),
          "Use a unix socket: workspaces are directories of this host, which a remote engine does not see"
        )
      )
    : Effect.promise(() =>
        access(address.path, constants.R_OK | constants.W_OK).then(
          () => ok("socket", address.path),
          ({ code }: NodeJS.ErrnoException) => {
            const [detail, fix] =
              code === "ENOENT"
                ? [" does not exist", "Start the engine (./dev setup), or set DOCKER_HOST"]
                : [`: ${code}`, "Add this user to the docker group, or run as root"]
            return fail("socket", `${address.path}${detail}`, fix)
          }
        )
      )

const userFinding: Effect.Effect<Finding> = Effect.sync(() => {
  const userId = process.getuid?.()
  return userId === undefined
    ? warn("user", "this system has no user ids", "Run on Linux, or in WSL2")
    : userId === 0
      ? ok("user", "root: agents run as uid 1000, or as the owner of their workspace")
      : ok("user", `uid ${userId}: agents run as the same`)
})

const diskFinding = (check: string, path: string): Effect.Effect<Finding> =>
  Effect.promise(() =>
    statfs(path).then(
      ({ bavail, bsize }) =>
        bavail * bsize < diskFreeBytesMin
          ? warn(
              check,
              `${formatBytes(bavail * bsize)} free at ${path}`,
              "Free some: cogni-sandbox prune, docker system df"
            )
          : ok(check, `${formatBytes(bavail * bsize)} free at ${path}`),
      () => ok(check, `${path} cannot be seen from here`)
    )
  )

const stateFinding = (directory: string): Effect.Effect<Finding> =>
  Effect.promise(async () => {
    try {
      await mkdir(directory, { recursive: true, mode: 0o700 })
      await access(directory, constants.W_OK)
      const { mode } = await stat(directory)
      return (mode & 0o022) === 0
        ? ok("records", directory)
        : warn(
            "records",
            `${directory} can be written by others`,
            `chmod go-w ${ShellWord.quoted(directory)}`
          )
    } catch (thrown) {
      return fail(
        "records",
        `${directory}: ${(thrown as Error).message}`,
        "Set COGNI_STATE_DIR to a directory this user can write"
      )
    }
  })

const { memoryBytesMax } = Schema.decodeSync(Limits)({})

/** Of the engine's host, where that is this one. */
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
          "Build it: ./dev images"
        )
  )

/** Whether a run would take a directory, and what of the host an agent could reach in it. */
export const workspaceFinding = (path: string, options?: HostWorkspace.Options): Effect.Effect<Finding> =>
  Effect.flatMap(HostWorkspace.held(path, options), SpecialFiles.find).pipe(
    Effect.scoped,
    Effect.match({
      onFailure: ({ detail, remedy }) => fail("workspace", `${path} ${detail}`, remedy),
      onSuccess: (found) => {
        const warning = specialFilesWarning(found)
        return warning === undefined
          ? ok("workspace", `${path}${found.isWhole ? "" : ", looked at in part"}`)
          : warn("workspace", warning, "Look at who listens: ss -xlp")
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
  const engine = yield* Effect.result(Effect.all([api.ping, api.info], { concurrency: 2 }))
  if (engine._tag === "Failure") {
    const error: ContainerError = engine.failure
    return [
      fail("engine", error.message, "remedy" in error ? error.remedy : "Look at its log"),
      ...hostFindings
    ]
  }
  const [{ apiVersion }, info] = engine.success
  const isShared = HostOwner.isSharedWith(api.address, info)
  return [
    ok("engine", `${format(api.address)}, ${info.OperatingSystem}`),
    ...engineFindings(info, apiVersion),
    ...(isShared ? yield* sharedFindings(info) : []),
    isShared
      ? ok("files", "shared with this host: sockets of runs are mounted")
      : warn(
          "files",
          "not shared with this host: sockets of runs go into a container of their own",
          "Run on the engine's own host for the shortest way to the model"
        ),
    ...(yield* Effect.forEach(options.images, (image) => imageFinding(api, image), { concurrency: 4 })),
    yield* diskFinding("disk for images", info.DockerRootDir),
    ...hostFindings
  ]
})
