/**
 * Files that chats leave in the state directory: the files of sessions, and the audits of sessions that executed on the
 * host.
 *
 * A session's directory is in use while a run has it as its workspace. No session on the host lives longer than a day.
 */
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import { RunId } from "@cogni/sandbox-core/RunId"
import { HostFailed } from "@cogni/sandbox-core/SandboxReason"
import { Clock, Effect, FileSystem, Option, Schema } from "effect"
import { dirname, join } from "node:path"
import * as Records from "./Records.ts"
import type { Settings } from "./Settings.ts"

/** Longest time that one session may execute on the host. */
export const hostSessionSecondsMax = 86_400

/** Age at which the audit of a session on the host is over. Its last entries may be written after its end. */
const auditSecondsMax = hostSessionSecondsMax + 3600

/** Paths of the directories of chat sessions that no run is using. */
export const sessions = Effect.fnUntraced(function* (settings: Settings["Service"]) {
  const { sessions } = StateDirectory.paths(settings.stateDirectory)
  const running = yield* Records.files(settings).running
  const inUse = new Set(
    running.flatMap(({ spec }) => (spec.workspace.type === "directory" ? [spec.workspace.path] : []))
  )
  return (yield* namesIn(sessions))
    .filter((name) => /^[0-9a-f]{32}$/u.test(name))
    .map((name) => join(sessions, name))
    .filter((path) => !inUse.has(path))
})

/** Paths of the audits of sessions on the host that are over. */
export const audits = Effect.fnUntraced(function* ({ stateDirectory }: Settings["Service"]) {
  const { hostSessions } = StateDirectory.paths(stateDirectory)
  const fs = yield* FileSystem.FileSystem
  const changedAt = (path: string) =>
    fs.stat(path).pipe(
      Effect.map(({ mtime }) => Option.getOrElse(mtime, () => new Date(0)).getTime()),
      Effect.orElseSucceed(() => 0)
    )
  const nowMillis = yield* Clock.currentTimeMillis
  const names = (yield* namesIn(hostSessions)).filter(Schema.is(RunId))
  return yield* Effect.filter(
    names.map((name) => join(hostSessions, name)),
    (path) => {
      const log = join(path, StateDirectory.auditLog)
      return Effect.map(
        Effect.forEach([path, dirname(log), log], changedAt),
        (times) => nowMillis - Math.max(...times) > auditSecondsMax * 1000
      )
    }
  )
})

/** Removes directories, and returns those that are gone. A failure is logged. */
export const remove = (paths: ReadonlyArray<string>) =>
  Effect.filter(paths, (path) =>
    HostTree.remove(path).pipe(
      Effect.as(true),
      Effect.catch(({ message }) => Effect.as(Effect.logWarning(message), false))
    )
  )

const namesIn = (directory: string) =>
  FileSystem.FileSystem.use((fs) => fs.readDirectory(directory)).pipe(
    Effect.catchReason("PlatformError", "NotFound", () => Effect.succeed<Array<string>>([])),
    Effect.catch((error) =>
      Effect.fail(
        HostFailed.of(directory, "cannot be read", error, "Set COGNI_STATE_DIR to a directory of this user")
      )
    )
  )
