/**
 * Marks of runs whose usage their observer has not accepted: one file per run, `unsettled/<run id>.<token>`.
 *
 * A mark is made before its run can use anything, and removed when the observer has accepted the usage. If the process
 * dies in between, the mark stays. A recovery claims the mark with `unsettled/claims/<mark>.<number>`, which exactly
 * one process can create. If that process dies too, the next number is free to claim. Marks and claims name their
 * owner, so that the liveness of a process decides, and no clock.
 */
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import { Schema } from "effect"
import { readdir, readFile, rm } from "node:fs/promises"
import { join } from "node:path"
import * as HostOwner from "../../HostOwner.ts"

export interface Mark {
  readonly runId: RunId
  readonly token: string
}

/** Time after which a claim of a process that cannot be checked is over, such as one from before a reboot. */
const claimSecondsMax = 600

const nameOf = ({ runId, token }: Mark): string => `${runId}.${token}`

const isRunId = Schema.is(RunId)

const markOf = (name: string): Mark | undefined => {
  const [, runId, token] = /^([a-z0-9-]{1,64})\.([0-9a-f-]{36})$/u.exec(name) ?? []
  return runId !== undefined && token !== undefined && isRunId(runId) ? { runId, token } : undefined
}

const secondsFromNow = (seconds: number): Date => new Date(Date.now() + seconds * 1000)

const ownedUntil = (expiresAt: Date): string =>
  `${ResourceLabels.formatOwner(HostOwner.self())}\n${expiresAt.toISOString()}\n`

/** Returns whether the owner of a file is dead. A file that is gone has been removed by its owner. */
const isOrphaned = async (path: string): Promise<boolean> => {
  const text = await unlessMissing(readFile(path, "utf8"))
  if (text === undefined) return false
  const [owner, expiresAt] = text.split("\n")
  return HostOwner.isOrphaned(owner, expiresAt, new Date())
}

export const make = (options: { readonly directory: string }) => {
  const { unsettled } = StateDirectory.paths(options.directory)
  const claims = join(unsettled, "claims")
  const pathOf = (mark: Mark) => join(unsettled, nameOf(mark))

  const claimsOf = async (mark: Mark) => {
    const prefix = `${nameOf(mark)}.`
    return ((await unlessMissing(readdir(claims))) ?? [])
      .filter((name) => name.startsWith(prefix) && /^\d{1,6}$/u.test(name.slice(prefix.length)))
      .map((name) => ({ path: join(claims, name), number: Number(name.slice(prefix.length)) }))
      .toSorted((a, b) => b.number - a.number)
  }

  const settle = async (mark: Mark): Promise<void> => {
    await rm(pathOf(mark), { force: true })
    for (const { path } of await claimsOf(mark)) await rm(path, { force: true })
  }

  return {
    /** Marks a run of this process. */
    mark: async (mark: Mark, runtimeSecondsMax: number): Promise<void> => {
      await OwnFiles.makeDirectory(unsettled)
      const expiresAt = secondsFromNow(runtimeSecondsMax + HostOwner.expiryGraceSeconds)
      await OwnFiles.replace(pathOf(mark), ownedUntil(expiresAt))
    },

    /** Removes a mark, if it exists. */
    settle,

    /** The marks of all runs that are not settled. */
    marks: async (): Promise<ReadonlyArray<Mark>> =>
      ((await unlessMissing(readdir(unsettled))) ?? []).flatMap((name) => markOf(name) ?? []),

    /** The marks of dead processes. */
    orphaned: async (): Promise<ReadonlyArray<Mark>> => {
      const found: Array<Mark> = []
      for (const name of (await unlessMissing(readdir(unsettled))) ?? []) {
        const mark = markOf(name)
        if (mark !== undefined && (await isOrphaned(join(unsettled, name)))) found.push(mark)
      }
      return found
    },

    /** Claims the right to settle a run. Returns how to give it back, or nothing if another process has it. */
    claim: async (mark: Mark): Promise<(() => Promise<void>) | undefined> => {
      const [newest] = await claimsOf(mark)
      if (newest !== undefined && !(await isOrphaned(newest.path))) return undefined
      await OwnFiles.makeDirectory(claims)
      const path = join(claims, `${nameOf(mark)}.${(newest?.number ?? 0) + 1}`)
      const draft = join(claims, `${crypto.randomUUID()}.new`)
      await OwnFiles.create(draft, ownedUntil(secondsFromNow(claimSecondsMax)))
      try {
        // A link is made complete, or not at all.
        await OwnFiles.link(draft, path)
      } catch (thrown) {
        if ((thrown as NodeJS.ErrnoException).code === "EEXIST") return undefined
        throw thrown
      } finally {
        await rm(draft, { force: true })
      }
      const back = () => rm(path, { force: true })
      // Another process may have settled the run after this one had found its mark.
      if ((await unlessMissing(readFile(pathOf(mark)))) !== undefined) return back
      await back()
      return undefined
    }
  }
}

const unlessMissing = <A>(work: Promise<A>): Promise<A | undefined> =>
  work.catch((thrown: NodeJS.ErrnoException) => {
    if (thrown.code === "ENOENT") return undefined
    throw thrown
  })
