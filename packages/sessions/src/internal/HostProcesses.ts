/**
 * All that came of a command of the host's, found and killed.
 *
 * A child can leave its group and its session, and lose its parent; what it keeps is the environment it was started
 * with, or an end of the command's pipes. What has given up all of that at once (`env -i setsid`, forked twice, its
 * output sent elsewhere) is nobody's any more: without a container the host cannot tell it from a stranger.
 */
import { lstat, readdir, readFile, readlink } from "node:fs/promises"

/** In the environment of every command: of which executors and commands it came, from the outermost in. */
export const markVariable = "COGNI_COMMAND_ID"

/** What is looked for. */
export interface Search {
  /** `<executor>.<command>`, or `<executor>` for all its commands. */
  readonly mark: string
  /** Where the pipes were made, of the command or of all; nobody else has a pipe of such a name. */
  readonly pipes: string
  /** What began it. Also its group and its session. */
  readonly root?: Root | undefined
  /** No older process can have come of it. In the kernel's clock ticks. */
  readonly startedTicks: number
}

export interface Root {
  readonly pid: number
  readonly startedTicks: number
}

interface Process {
  readonly pid: number
  readonly parent: number
  readonly group: number
  readonly session: number
  readonly startedTicks: number
}

/** How long what is killed may take to go. */
const killMillisMax = 5000

/** After so many looks at a tree that goes on growing, it is killed as far as it is known, and looked at again. */
const freezeRoundsMax = 20

/** How often what is there is listed again, where something was going while it was looked at. */
const listingsMax = 20

/** PF_KTHREAD, of include/linux/sched.h. */
const kernelThread = 0x0020_0000

const readsAtOnce = 32

interface Stat extends Process {
  /** It has ended, and only waits for its parent to look. */
  readonly hasEnded: boolean
  /** A thread of the kernel, which has no environment. */
  readonly isKernels: boolean
}

const statOf = (text: string): Stat => {
  // The name, in parentheses, may hold anything: fields count from behind it (proc_pid_stat(5)).
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ")
  const number = (index: number) => Number(fields[index])
  return {
    pid: Number.parseInt(text, 10),
    // Of several threads the first can be over, and be shown as the whole, while the others go on.
    hasEnded: (fields[0] === "Z" || fields[0] === "X") && !(number(17) > 1),
    isKernels: (number(6) & kernelThread) !== 0,
    parent: number(1),
    group: number(2),
    session: number(3),
    startedTicks: number(19)
  }
}

/** Whether `/proc` shows the processes that this program can signal, by the same numbers; it may be another namespace's. */
export const isOwn = async (): Promise<boolean> =>
  (await readlink("/proc/self").catch(() => "")) === String(process.pid)

/** Of a process that has just been started. */
export const rootOf = (stat: string): Root => statOf(stat)

const processAt = async (pid: string): Promise<Stat | undefined> => {
  const text = await readFile(`/proc/${pid}/stat`, "latin1").catch(() => undefined)
  if (text === undefined) return undefined
  const stat = statOf(text)
  return stat.hasEnded ? undefined : stat
}

const inPieces = async <A, B>(all: ReadonlyArray<A>, look: (one: A) => Promise<B>): Promise<Array<B>> => {
  const found: Array<B> = []
  for (let at = 0; at < all.length; at += readsAtOnce) {
    found.push(...(await Promise.all(all.slice(at, at + readsAtOnce).map(look))))
  }
  return found
}

/** Undefined where there is no telling: it has gone meanwhile, or another program is just taking its place. */
const carriesMark = async (pid: number, mark: string): Promise<boolean | undefined> => {
  const environment = await readFile(`/proc/${pid}/environ`, "latin1").catch(
    ({ code }: NodeJS.ErrnoException) => (code === "ENOENT" || code === "ESRCH" ? "" : undefined)
  )
  if (environment === "") return undefined
  const held = environment?.split("\0").find((entry) => entry.startsWith(`${markVariable}=`))
  if (held === undefined) return false
  return held
    .slice(markVariable.length + 1)
    .split(":")
    .some((one) => one === mark || one.startsWith(`${mark}.`))
}

/** For writing only: between fork and exec, whatever else this host starts has the ends that this host reads from. */
const writesTo = async (pid: number, pipes: string): Promise<boolean> => {
  const descriptors = await readdir(`/proc/${pid}/fd`).catch(() => [])
  for (const descriptor of descriptors) {
    const path = `/proc/${pid}/fd/${descriptor}`
    const target = await readlink(path).catch(() => "")
    if (!target.startsWith(pipes)) continue
    const mode = await lstat(path).then(
      (stats) => stats.mode,
      () => 0
    )
    if ((mode & 0o200) !== 0) return true
  }
  return false
}

interface Seen {
  /** Undefined where it is over. */
  readonly process: Process | undefined
  /** By its environment or its output it came of what is looked for. */
  readonly isMarked: boolean
  readonly isCertain: boolean
}

const see =
  (search: Search) =>
  async (pid: string): Promise<Seen> => {
    const process = await processAt(pid)
    if (process === undefined || process.isKernels || !isYounger(search, process)) {
      return { process, isMarked: false, isCertain: true }
    }
    const carries = await carriesMark(process.pid, search.mark)
    const isMarked = carries === true || (await writesTo(process.pid, search.pipes))
    return { process, isMarked, isCertain: isMarked || carries !== undefined }
  }

/** What could have come of it. */
const isYounger = (search: Search, { pid, startedTicks }: Process): boolean =>
  pid !== process.pid && pid !== 1 && startedTicks >= search.startedTicks

/**
 * All that is there. What ends while the others are looked at may have begun another, which is in no list so far: so
 * there is one more list as long as something was over, or could not be made out, when it was its turn.
 */
const seeAll = async (search: Search): Promise<ReadonlyArray<Seen>> => {
  const seen = new Map<string, Seen>()
  for (let listing = 0; listing < listingsMax; listing++) {
    const names = (await readdir("/proc")).filter((name) => /^[1-9][0-9]*$/u.test(name))
    const fresh = names.filter((name) => seen.get(name)?.isCertain !== true)
    const looks = await inPieces(fresh, see(search))
    for (const [index, name] of fresh.entries()) seen.set(name, looks[index]!)
    if (looks.every(({ isCertain, process }) => isCertain && process !== undefined)) break
  }
  return [...seen.values()]
}

/** What was seen of a tree, and is remembered when those who would show it are gone. */
export interface Known {
  /** When each was started. */
  readonly pids: Map<number, number>
  readonly groups: Set<number>
  readonly sessions: Set<number>
}

export const nothing = (): Known => ({ pids: new Map(), groups: new Set(), sessions: new Set() })

const isKnown = (known: Known, { group, parent, pid, session, startedTicks }: Process) =>
  known.pids.get(pid) === startedTicks ||
  known.pids.has(parent) ||
  known.groups.has(group) ||
  known.sessions.has(session)

/** 0 is said of a group and a session whose leader is outside of this namespace: strangers share it. */
const remember = (known: Known, own: Process | undefined, { group, pid, session, startedTicks }: Process) => {
  known.pids.set(pid, startedTicks)
  if (group !== 0 && group !== own?.group) known.groups.add(group)
  if (session !== 0 && session !== own?.session) known.sessions.add(session)
}

/** A number is free again when nobody bears it as a group's: whoever has it now may be a stranger. */
const forgetStrangers = (known: Known, all: ReadonlyArray<Process>) => {
  for (const { pid, startedTicks } of all) {
    const before = known.pids.get(pid)
    if (before === undefined || before === startedTicks) continue
    known.pids.delete(pid)
    known.groups.delete(pid)
    known.sessions.delete(pid)
  }
}

/** Everything that came of it and is still there. Adds to what is known. */
const members = async (search: Search, known: Known): Promise<ReadonlyArray<number>> => {
  const { root } = search
  const seen = await seeAll(search)
  const all = seen.flatMap(({ process }) => (process === undefined ? [] : [process]))
  const own = all.find(({ pid }) => pid === process.pid)
  if (root !== undefined && known.pids.size === 0) {
    known.pids.set(root.pid, root.startedTicks)
    known.groups.add(root.pid)
    known.sessions.add(root.pid)
  }
  forgetStrangers(known, all)
  const younger = all.filter((process) => isYounger(search, process))
  const marked = new Set(seen.flatMap(({ isMarked, process }) => (isMarked ? [process] : [])))
  const found = new Set(younger.filter((process) => marked.has(process) || isKnown(known, process)))
  for (const process of found) remember(known, own, process)
  for (let grown = -1; grown !== found.size;) {
    grown = found.size
    for (const process of younger) {
      if (found.has(process) || !isKnown(known, process)) continue
      found.add(process)
      remember(known, own, process)
    }
  }
  return [...found].map(({ pid }) => pid)
}

/** Of a process that has gone meanwhile, or is not ours to signal: nothing. */
const send = (pid: number, signal: NodeJS.Signals): void => {
  try {
    process.kill(pid, signal)
  } catch {
    // Whoever is still there is seen at the next look.
  }
}

/** To all that came of it. Known then is who was there before any of them had heard it, and may have lost its parent. */
export const signal = async (search: Search, known: Known, name: NodeJS.Signals): Promise<void> => {
  for (const pid of await members(search, known)) send(pid, name)
}

/**
 * Kill all that came of it, and wait until it is gone; answers what is left after {@link killMillisMax}.
 *
 * First nobody may fork any more, then all of them go: a process that is stopped has no children between two looks. In
 * the host's own time, whatever clock the caller has.
 */
export const killAll = async (search: Search, known = nothing()): Promise<ReadonlyArray<number>> => {
  const lateAt = performance.now() + killMillisMax
  for (let pause = 1; ; pause = Math.min(2 * pause, 100)) {
    const frozen = new Set<number>()
    for (let round = 0; round < freezeRoundsMax; round++) {
      const fresh = (await members(search, known)).filter((pid) => !frozen.has(pid))
      if (fresh.length === 0) break
      for (const pid of fresh) {
        send(pid, "SIGSTOP")
        frozen.add(pid)
      }
    }
    if (frozen.size === 0) return []
    for (const pid of frozen) send(pid, "SIGKILL")
    if (performance.now() > lateAt) return members(search, known)
    await new Promise((resolve) => setTimeout(resolve, pause))
  }
}
