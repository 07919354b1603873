/**
 * Looks at every process of the machine, all the time, for secrets: in arguments, environments, names of descriptors.
 *
 * The tests' half starts a thread and asks it what it has seen. The other half, below, is that thread: it never waits
 * for the tests, and what it has not looked at yet it looks at first. What a thread is given is in no process's
 * arguments or environment, so it does not see itself.
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

/** Something that must not be seen, and what a test calls it. */
export interface Planted {
  readonly name: string
  readonly secret: string
}

/** Never the secret itself. */
export interface Sighting {
  readonly processId: number
  /** What runs there, as far as it says. */
  readonly program: string
  readonly where: "argv" | "environment" | "descriptor"
  /** The secret's name and the form it was in. */
  readonly which: string
}

export interface Report {
  readonly sightings: ReadonlyArray<Sighting>
  /** How many processes it has looked at, and how often at all of them. */
  readonly processes: number
  readonly sweeps: number
  /** The names of all programs it has looked at: what is not among them was too fast for it. */
  readonly programs: ReadonlyArray<string>
}

export interface ProcessSampler {
  /** What it has seen until now, and in one look at all processes after this was asked. */
  readonly report: Effect.Effect<Report>
}

/** A text to look for, and what it is. */
export interface Form {
  readonly which: string
  readonly text: string
}

/** In a file, or in a text. */
export interface Finding {
  readonly where: string
  readonly which: string
}

/** How often all processes are looked at, at the least. */
const sweepMillis = 5

/** How often it looks whether there is a new one. */
const newMillis = 0.4

/** A process this old has started what it was made for: from then on, only its arguments are read every time. */
const youngMillis = 400

/** Of an old process, the rest is read every so many sweeps. */
const restEvery = 20

/** Of one file below `/proc`. */
const procBytesMax = 256 * 1024

/** How a secret may be written: base64 at all three places in a group, so that it is seen whatever is before it. */
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

/** The part of its base64 that no byte before or after it has a share in. */
const base64Core = (secret: string, before: number): string => {
  const bytes = Buffer.concat([Buffer.alloc(before), Buffer.from(secret)])
  const start = before === 0 ? 0 : before + 1
  return bytes.toString("base64").replace(/.=+$/u, "").slice(start)
}

/** Which of them are in a text, by the names of where it is from. */
export const inTexts = (
  forms: ReadonlyArray<Form>,
  texts: Readonly<Record<string, string | Uint8Array>>
): ReadonlyArray<Finding> =>
  Object.entries(texts).flatMap(([where, text]) => {
    const bytes = Buffer.from(text)
    return forms.filter((form) => bytes.includes(form.text)).map(({ which }) => ({ where, which }))
  })

/**
 * Which of them are in the files of a directory tree, or in their names, or in what their links name. Links are not
 * followed. What vanishes meanwhile is no finding; more than is allowed is a defect of the test, and no clean result.
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
      if (entries > entriesMax || bytes > bytesMax) throw new Error(`${root} is more than can be searched`)
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

/** Looking when this succeeds, until the scope closes. */
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
        orElse: () => Effect.die(new Error("the sampler says nothing"))
      })
    )
    // Asked once here, so that it is at work from now on.
    yield* report
    return { report }
  })

interface Watched {
  /** When it was first seen as what it is. */
  since: number
  argv: Buffer
}

const buffer = Buffer.alloc(procBytesMax)

/** A file below `/proc`, up to so much; empty where the process has ended. */
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
  const sightings = new Map<string, Sighting>()
  const programs = new Set<string>()
  const needles = forms.map(({ text, which }) => ({ which, text: Buffer.from(text) }))
  let processes = 0

  const search = (processId: number, program: string, where: Sighting["where"], bytes: Buffer) => {
    for (const { text, which } of needles)
      if (bytes.includes(text))
        sightings.set(`${processId} ${where} ${which}`, { processId, program, where, which })
  }

  /** All of a young process, and of an old one where `whole`; its arguments always. */
  const look = (processId: number, now: number, whole: boolean) => {
    const argv = read(`/proc/${processId}/cmdline`)
    const before = watched.get(processId)
    if (before === undefined) processes += 1
    const one = before ?? { since: now, argv: Buffer.alloc(0) }
    watched.set(processId, one)
    const end = argv.indexOf(0)
    const program = basename(argv.toString("latin1", 0, end === -1 ? undefined : end))
    if (!argv.equals(one.argv)) {
      // It has become another program, which is young.
      one.argv = Buffer.from(argv)
      one.since = now
      programs.add(program)
      search(processId, program, "argv", argv)
    }
    if (!whole && now - one.since > youngMillis) return
    search(processId, program, "environment", read(`/proc/${processId}/environ`))
    search(processId, program, "descriptor", descriptorsOf(processId))
  }

  /** Whoever is gone is forgotten: the number may be another's next. */
  const sweep = (now: number, whole: boolean) => {
    const present = new Set(
      readdirSync("/proc")
        .map(Number)
        .filter((id) => id > 0)
    )
    for (const processId of watched.keys()) if (!present.has(processId)) watched.delete(processId)
    for (const processId of present) look(processId, now, whole)
  }
  const answer = (sweeps: number): Report => ({
    sightings: [...sightings.values()],
    processes,
    sweeps,
    programs: [...programs].toSorted()
  })
  return { look, sweep, answer }
}

/** Threads have numbers too, and are nobody. */
const isProcess = (processId: number): boolean =>
  read(`/proc/${processId}/status`).includes(`\nTgid:\t${processId}\n`)

/** The number that was given out last: who is new is between this and what it was before. */
const lastProcessId = (): number => {
  const text = read("/proc/loadavg").toString("latin1")
  return Number.parseInt(text.slice(text.lastIndexOf(" ") + 1), 10)
}

/** How many new numbers are looked at one by one; with more, a look at all is no dearer. */
const newMax = 64

/** Never ends: the thread is ended. */
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
    // At least once, so that a machine where a look takes long is not looked at only.
    do {
      Atomics.wait(pause, 0, 0, newMillis)
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
