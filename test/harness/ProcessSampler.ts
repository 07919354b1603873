/**
 * Searches every process of the machine for secrets, continuously: in arguments, environments and descriptor names.
 *
 * The first half starts a thread and asks it for a report. The second half is the thread. It never waits for the tests,
 * and checks new processes first. Data for a thread is in no process's arguments or environment, so the thread does not
 * find itself.
 */
import { Effect, type Scope } from "effect"
import { lstatSync, openSync, readdirSync, readFileSync, readlinkSync, readSync, closeSync } from "node:fs"
import { basename, join } from "node:path"
import {
  isMainThread,
  MessageChannel,
  type MessagePort,
  receiveMessageOnPort,
  Worker,
  workerData
} from "node:worker_threads"

/** A secret that must not be found, and its name in the test. */
export interface Planted {
  readonly name: string
  readonly secret: string
}

/** A place where a secret was found. It never contains the secret itself. */
export interface Sighting {
  readonly processId: number
  /** Name of the program, according to its arguments. */
  readonly program: string
  readonly where: "argv" | "environment" | "descriptor"
  /** The secret's name and its encoding. */
  readonly which: string
}

export interface Report {
  readonly sightings: ReadonlyArray<Sighting>
  /** Number of processes checked, and of sweeps over all processes. */
  readonly processes: number
  readonly sweeps: number
  /** Names of all programs checked. A program that is missing here ended too quickly. */
  readonly programs: ReadonlyArray<string>
}

export interface ProcessSampler {
  /** Findings so far, including a full sweep after this request. */
  readonly report: Effect.Effect<Report>
}

/** A text to search for, and its description. */
export interface Form {
  readonly which: string
  readonly text: string
}

/** A secret found in a file or in a text. */
export interface Finding {
  readonly where: string
  readonly which: string
}

/** Longest time between two checks of all young processes. */
const youngSweepMillis = 5

/**
 * Longest time between two sweeps over all processes. A sweep reads hundreds of files: one every few milliseconds would
 * keep a processor busy. A process that lives only a few milliseconds is new, and new ones are found by their IDs.
 */
const sweepMillis = 25

/** Time between two checks for new processes. */
const newMillis = 0.4

/** At this age, a process has started its actual program. After that, each sweep reads only its arguments. */
const youngMillis = 400

/**
 * Number of sweeps after which an old process is fully read again: twice a second. Only the names of its descriptors
 * can have changed, and to read those of all processes takes longer than all the rest.
 */
const restEvery = 20

/** Largest part of a file below `/proc` that is read. */
const procBytesMax = 256 * 1024

/** Lists the encodings of secrets. Base64 has all three offsets in a group, so that any bytes can precede a secret. */
export const formsOf = (planted: ReadonlyArray<Planted>): ReadonlyArray<Form> =>
  planted.flatMap(({ name, secret }) => {
    const forms: ReadonlyArray<readonly [string, string]> = [
      ["plain", secret],
      ["URL-encoded", encodeURIComponent(secret)],
      ["hexadecimal", Buffer.from(secret).toString("hex")],
      ["hexadecimal, upper case", Buffer.from(secret).toString("hex").toUpperCase()],
      ...[0, 1, 2].flatMap((before): ReadonlyArray<readonly [string, string]> => {
        const core = base64Core(secret, before)
        return [
          [`base64 after ${before}`, core],
          [`base64url after ${before}`, core.replaceAll("+", "-").replaceAll("/", "_")]
        ]
      })
    ]
    const distinct = new Map(forms.toReversed().map(([form, text]) => [text, form]))
    return [...distinct].map(([text, form]) => ({ which: `${name}, ${form}`, text }))
  })

/** Returns the part of its base64 that does not depend on the bytes before or after. */
const base64Core = (secret: string, before: number): string => {
  const bytes = Buffer.concat([Buffer.alloc(before), Buffer.from(secret)])
  const start = before === 0 ? 0 : before + 1
  return bytes.toString("base64").replace(/.=+$/u, "").slice(start)
}

/** Finds secrets in texts; the key of a text names its source. */
export const inTexts = (
  forms: ReadonlyArray<Form>,
  texts: Readonly<Record<string, string | Uint8Array>>
): ReadonlyArray<Finding> =>
  Object.entries(texts).flatMap(([where, text]) => {
    const bytes = Buffer.from(text)
    return forms.filter((form) => bytes.includes(form.text)).map(({ which }) => ({ where, which }))
  })

/**
 * Finds secrets in a directory tree: in files, in names, and in the targets of links, which are not followed. A file
 * that disappears meanwhile is ignored. A tree that exceeds the bounds is a defect instead of a clean result.
 */
export const inTree = (
  forms: ReadonlyArray<Form>,
  root: string,
  bounds: { readonly entriesMax?: number; readonly bytesMax?: number } = {}
): Effect.Effect<ReadonlyArray<Finding>> =>
  Effect.sync(() => {
    const { bytesMax = 64 * 1024 ** 2, entriesMax = 20_000 } = bounds
    const found: Array<Finding> = []
    let entries = 0
    let bytes = 0
    const waiting = [root]
    for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
      const stat = lstatSync(path, { throwIfNoEntry: false })
      if (stat === undefined) continue
      entries += 1
      bytes += stat.isFile() ? stat.size : 0
      if (entries > entriesMax || bytes > bytesMax) throw new Error(`${root} is too large to be searched`)
      const texts: Record<string, string | Uint8Array> = { [`the name of ${path}`]: basename(path) }
      try {
        if (stat.isDirectory()) waiting.push(...readdirSync(path).map((name) => join(path!, name)))
        else if (stat.isSymbolicLink()) texts[path] = readlinkSync(path)
        else if (stat.isFile()) texts[path] = readFileSync(path)
      } catch (thrown) {
        if ((thrown as NodeJS.ErrnoException).code !== "ENOENT") throw thrown
      }
      found.push(...inTexts(forms, texts))
    }
    return found
  })

interface Given {
  readonly sampler: string
  readonly forms: ReadonlyArray<Form>
  readonly port: MessagePort
}

/** Starts sampling, which is active when this succeeds, until the scope closes. */
export const acquire = (planted: ReadonlyArray<Planted>): Effect.Effect<ProcessSampler, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { port1: here, port2: port } = new MessageChannel()
    yield* Effect.acquireRelease(
      Effect.sync(
        () =>
          new Worker(new URL(import.meta.url), {
            workerData: { sampler: import.meta.url, forms: formsOf(planted), port } satisfies Given,
            transferList: [port],
            execArgv: ["--disable-warning=ExperimentalWarning"]
          })
      ),
      (worker) =>
        Effect.promise(() => {
          here.close()
          return worker.terminate()
        })
    )
    const report = Effect.callback<Report>((resume) => {
      const listener = (said: Report) => resume(Effect.succeed(said))
      here.once("message", listener)
      here.postMessage("report", [])
      return Effect.sync(() => here.off("message", listener))
    }).pipe(
      Effect.timeoutOrElse({
        duration: "5 minutes",
        orElse: () => Effect.die(new Error("the sampler does not answer"))
      })
    )
    // The first report proves that the sampler is active.
    yield* report
    return { report }
  })

interface Watched {
  /** Time when the process was first seen with these arguments. */
  since: number
  argv: Buffer
}

const buffer = Buffer.alloc(procBytesMax)

/** Reads a file below `/proc`, up to `procBytesMax`. Empty if the process has ended. */
const read = (path: string): Buffer => {
  let file: number | undefined
  try {
    file = openSync(path, "r")
    let length = 0
    for (let more = -1; more !== 0 && length < buffer.length; length += more)
      more = readSync(file, buffer, length, buffer.length - length, null)
    return buffer.subarray(0, length)
  } catch {
    return buffer.subarray(0, 0)
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

const descriptorsOf = (processId: number): Buffer => {
  const directory = `/proc/${processId}/fd`
  try {
    const names = readdirSync(directory).map((name) => {
      try {
        return readlinkSync(`${directory}/${name}`)
      } catch {
        return ""
      }
    })
    return Buffer.from(names.join("\0"))
  } catch {
    return buffer.subarray(0, 0)
  }
}

const makeWatch = (forms: ReadonlyArray<Form>) => {
  const watched = new Map<number, Watched>()
  const young = new Set<number>()
  const sightings = new Map<string, Sighting>()
  const programs = new Set<string>()
  const needles = forms.map(({ text, which }) => ({ which, text: Buffer.from(text) }))
  let processes = 0

  const search = (processId: number, program: string, where: Sighting["where"], bytes: Buffer) => {
    for (const { text, which } of needles)
      if (bytes.includes(text))
        sightings.set(`${processId} ${where} ${which}`, { processId, program, where, which })
  }

  /** Checks the arguments of a process. Checks all of it if it is young, or if `whole` is set. */
  const look = (processId: number, now: number, whole: boolean) => {
    const argv = read(`/proc/${processId}/cmdline`)
    const before = watched.get(processId)
    if (before === undefined) processes += 1
    const one = before ?? { since: now, argv: Buffer.alloc(0) }
    watched.set(processId, one)
    const end = argv.indexOf(0)
    const program = basename(argv.toString("latin1", 0, end === -1 ? undefined : end))
    if (!argv.equals(one.argv)) {
      // The process executes another program, which counts as young.
      one.argv = Buffer.from(argv)
      one.since = now
      programs.add(program)
      search(processId, program, "argv", argv)
    }
    if (now - one.since > youngMillis) young.delete(processId)
    else young.add(processId)
    if (!whole && !young.has(processId)) return
    search(processId, program, "environment", read(`/proc/${processId}/environ`))
    search(processId, program, "descriptor", descriptorsOf(processId))
  }

  /** Checks all processes. Forgets those that have ended, because their IDs may be reused. */
  const sweep = (now: number, whole: boolean) => {
    const present = new Set(
      readdirSync("/proc")
        .map(Number)
        .filter((id) => id > 0)
    )
    for (const processId of watched.keys())
      if (!present.has(processId)) {
        watched.delete(processId)
        young.delete(processId)
      }
    for (const processId of present) look(processId, now, whole)
  }
  const lookAtYoung = (now: number) => {
    for (const processId of young) look(processId, now, false)
  }
  const answer = (sweeps: number): Report => ({
    sightings: [...sightings.values()],
    processes,
    sweeps,
    programs: [...programs].toSorted()
  })
  return { look, lookAtYoung, sweep, answer }
}

/** Whether an ID belongs to a process. Threads have IDs of the same kind. */
const isProcess = (processId: number): boolean =>
  read(`/proc/${processId}/status`).includes(`\nTgid:\t${processId}\n`)

/** Returns the last assigned ID. New processes have IDs between its previous value and this one. */
const lastProcessId = (): number => {
  const text = read("/proc/loadavg").toString("latin1")
  return Number.parseInt(text.slice(text.lastIndexOf(" ") + 1), 10)
}

/** Largest number of new IDs that are checked one by one. With more, a full sweep costs no more. */
const newMax = 64

/** Samples until the thread is terminated. */
const watchForever = ({ forms, port }: Given): never => {
  const watch = makeWatch(forms)
  const pause = new Int32Array(new SharedArrayBuffer(4))
  let sweeps = 0
  let last = lastProcessId()
  for (;;) {
    const asked = receiveMessageOnPort(port) !== undefined
    const began = performance.now()
    watch.sweep(began, asked || sweeps % restEvery === 0)
    sweeps += 1
    if (asked) port.postMessage(watch.answer(sweeps))
    let lookedAtYoung = began
    // At least once, so that new processes are checked even if a sweep takes longer than `sweepMillis`.
    do {
      Atomics.wait(pause, 0, 0, newMillis)
      if (performance.now() - lookedAtYoung >= youngSweepMillis) {
        lookedAtYoung = performance.now()
        watch.lookAtYoung(lookedAtYoung)
      }
      const now = lastProcessId()
      if (now !== last && now - last < newMax && now > last)
        for (let processId = last + 1; processId <= now; processId += 1)
          if (isProcess(processId)) watch.look(processId, performance.now(), false)
      last = now
    } while (performance.now() - began < sweepMillis)
  }
}

if (!isMainThread && (workerData as Partial<Given> | null)?.sampler === import.meta.url)
  watchForever(workerData as Given)
