/**
 * Opens files that a user names on the command line, through `HostFile`, before a sandbox starts.
 *
 * Never writes a file in the directory that an agent works in, and follows no link there.
 */
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import * as HostPath from "@cogni/sandbox-host-files/HostPath"
import { fromErrno, type HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { Effect, type Scope } from "effect"
import type { ExitName } from "./ExitCode.ts"
import { type Refusal, refusal } from "./Failure.ts"

/** Identifies the directory of an agent by device and inode. Returns nothing if it does not exist yet. */
export const agentDirectories = (
  workspace: string | undefined
): Effect.Effect<ReadonlyArray<HostPath.Identity>, Refusal> =>
  workspace === undefined
    ? Effect.succeed([])
    : Effect.tryPromise({
        try: async () => {
          const found = await HostPath.find(workspace, { last: "follow" })
          await HostPath.close(found)
          return found.entry === undefined ? [] : [HostPath.identityOf(found.entry.stats)]
        },
        catch: (thrown) => fromErrno(workspace, thrown)
      }).pipe(
        Effect.catchIf(
          ({ problem }) => problem === "not_found" || problem === "not_a_directory",
          () => Effect.succeed([])
        ),
        Effect.mapError((error) => refusalOf("the workspace", error))
      )

/** Reads a file. A refusal begins with `what`, the purpose of the file. */
export const read = (
  path: string,
  what: string,
  {
    workspace,
    ...options
  }: Omit<HostFile.ReadOptions, "agents"> & { readonly workspace?: string | undefined }
): Effect.Effect<HostFile.Content, Refusal> =>
  Effect.flatMap(agentDirectories(workspace), (agents) =>
    Effect.mapError(HostFile.read(path, { ...options, agents }), (error) => refusalOf(what, error))
  )

/** Reserves the file that a flag names until the scope closes. */
export const reserve = (
  flag: "--patch" | "--file",
  path: string | undefined,
  workspace: string | undefined
): Effect.Effect<HostFile.Reservation | undefined, Refusal, Scope.Scope> =>
  path === undefined
    ? Effect.succeed(undefined)
    : Effect.flatMap(agentDirectories(workspace), (agents) =>
        Effect.mapError(HostFile.reserve(path, { agents }), (error) => refusalOf(flag, error))
      )

const exits: Partial<Record<HostPathRefused["problem"], ExitName>> = {
  not_found: "notFound",
  not_a_directory: "notFound",
  permission_denied: "notFound",
  unreadable: "notFound"
}

export const refusalOf = (what: string, error: HostPathRefused): Refusal =>
  refusal(
    exits[error.problem] ?? "input",
    `${what} cannot be used: ${JSON.stringify(error.path.slice(0, 200))} ${error.detail}`,
    error.remedy,
    { reason: error.problem }
  )
