/**
 * A private Docker Engine for a test, which can be stopped, killed and frozen without affecting the machine's engine.
 *
 * Needs root and `dockerd`. It has no bridge and no firewall rule, and its own containerd namespace and control group.
 * All its files are below one directory named after this process, so that the next test finds and removes the leftovers
 * of a killed one.
 */
import { label } from "@cogni/sandbox-core/ResourceLabels"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerReaper from "@cogni/sandbox-docker/DockerReaper"
import { Effect, Schedule, type Scope } from "effect"
import { type ChildProcess, execFile, spawn } from "node:child_process"
import {
  closeSync,
  existsSync,
  globSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync
} from "node:fs"
import { request } from "node:http"
import { basename, join } from "node:path"
import { promisify } from "node:util"

const exec = promisify(execFile)

/** A short path, because a socket path has at most 107 bytes. */
const parent = "/tmp"
const prefix = "cogni-engine-"

const answerSecondsMax = 300
const stopSecondsMax = 30

export interface PrivateEngine {
  /** Address in the format of `DOCKER_HOST`. */
  readonly host: string
  readonly socketPath: string
  /** A minimal image with a few programs and the entrypoint of the runtime image: imported in half a second. */
  readonly image: string
  /** Copies an image from the machine's engine to this one. */
  readonly load: (image: string) => Effect.Effect<void>
  /** Sends SIGKILL. Containers keep running, and the engine's socket and PID file stay. */
  readonly kill: Effect.Effect<void>
  /** Sends SIGTERM and waits for the end. The engine stops its containers. */
  readonly terminate: Effect.Effect<void>
  /** Starts the engine after `kill` or `terminate`. Settles when it answers. */
  readonly restart: Effect.Effect<void>
  /** Sends SIGSTOP. The engine accepts connections, but does not answer. */
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
}

/** The requirement that this machine does not meet; `undefined` if it meets all. */
export const obstacle: string | undefined =
  process.getuid?.() !== 0
    ? "needs root"
    : ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"].some((path) =>
          existsSync(join(path, "dockerd"))
        )
      ? undefined
      : "needs dockerd"

const programs = "sh dash true sleep cat echo id head dd ls readlink touch mkdir seq socat perl"

/** Packs the entrypoint and its dependencies from the runtime image. Whole packages would take ten times as long. */
const pack = `
set -eu
cd /
files="/bin/sh $(ls -d /usr/local/bin/cogni-*)"
for name in ${programs}; do
  ! path=$(PATH=/usr/bin:/bin command -v "/usr/bin/$name" || command -v "/bin/$name") || files="$files $path"
done
tar -chf - $files /usr/lib/*/perl-base $(for file in $files; do ldd "$file" 2>/dev/null || :; done | grep -o '/[^ )]*' | sort -u)
`

export const acquire = (runtimeImage: string): Effect.Effect<PrivateEngine, never, Scope.Scope> =>
  Effect.gen(function* () {
    yield* Effect.promise(sweep)
    const directory = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const made = join(parent, `${prefix}${process.pid}-${next++}`)
        mkdirSync(made, { mode: 0o755 })
        // Without this file, the engine would use the machine's own settings.
        writeFileSync(join(made, "daemon.json"), "{}")
        return made
      }),
      (made) => Effect.promise(() => destroy(made))
    )
    const socketPath = join(directory, "docker.sock")
    const host = `unix://${socketPath}`
    const image = "cogni-sandbox-test/minimal:latest"
    let engine: ChildProcess | undefined

    const signal = (name: NodeJS.Signals) =>
      Effect.sync(() => {
        engine?.kill(name)
      })
    const end = (name: NodeJS.Signals) =>
      Effect.promise(async () => {
        const ended = engine === undefined ? undefined : exited(engine)
        engine?.kill(name)
        engine?.kill("SIGCONT")
        await ended
        await containerdEnded(directory)
      })
    const start = Effect.sync(() => {
      // The engine considers a dead containerd as running until it is reaped.
      rmSync(join(directory, "exec", "containerd", "containerd.pid"), { force: true })
      engine = launch(directory)
    }).pipe(
      Effect.andThen(
        Effect.tryPromise(() => ping(socketPath)).pipe(
          Effect.retry({ schedule: Schedule.spaced("50 millis"), times: answerSecondsMax * 20 })
        )
      ),
      Effect.mapError(() => new Error(`no answer: ${logTail(directory)}`)),
      Effect.orDie
    )
    yield* start
    /** Runs a shell script; `$1` is this engine's address, `$2` the argument. */
    const pipe = (script: string, argument: string) =>
      Effect.asVoid(Effect.promise(() => exec("sh", ["-c", script, "sh", host, argument])))
    yield* pipe(
      `docker run --rm --network none --entrypoint sh '${runtimeImage}' -c "$2" | docker -H "$1" import - '${image}'`,
      pack
    )
    return {
      host,
      socketPath,
      image,
      load: (other) => pipe(`docker save "$2" | docker -H "$1" load`, other),
      kill: end("SIGKILL"),
      terminate: end("SIGTERM"),
      restart: start,
      freeze: signal("SIGSTOP"),
      thaw: signal("SIGCONT")
    }
  })

let next = 0

const launch = (directory: string): ChildProcess => {
  const name = basename(directory)
  const log = openSync(join(directory, "log"), "a")
  const child = spawn(
    // In its own network namespace, because an engine without a bridge removes any docker0, even another engine's.
    "unshare",
    [
      // As `./dev` starts the machine's engine: less garbage collection takes less processor time.
      ["--net", "env", "GOGC=400", "dockerd"],
      ["--host", `unix://${join(directory, "docker.sock")}`],
      ["--data-root", join(directory, "data")],
      ["--exec-root", join(directory, "exec")],
      ["--pidfile", join(directory, "pid")],
      ["--config-file", join(directory, "daemon.json")],
      ["--containerd-namespace", name, "--containerd-plugins-namespace", `${name}-plugins`],
      ["--cgroup-parent", `/${name}`],
      ["--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
    ].flat(),
    { stdio: ["ignore", log, log] }
  )
  closeSync(log)
  // `exited` waits for the process where needed; otherwise it must not keep the test process alive.
  child.unref()
  return child
}

const exited = (child: ChildProcess): Promise<void> =>
  child.exitCode !== null || child.signalCode !== null
    ? Promise.resolve()
    : new Promise((resolve, reject) => {
        const timer = setTimeout(
          () => reject(new Error(`process ${child.pid} did not end within ${stopSecondsMax} s`)),
          stopSecondsMax * 1000
        )
        child.ref()
        child.once("exit", () => {
          clearTimeout(timer)
          resolve()
        })
      })

/** Waits for the end of containerd. It dies shortly after its engine, and the next engine would try to use it. */
const containerdEnded = async (directory: string): Promise<void> => {
  const id = Number(read(join(directory, "exec", "containerd", "containerd.pid")))
  if (id === 0) return
  for (let left = stopSecondsMax * 100; left > 0 && isAlive(id); left--) await wait(10)
}

const ping = (socketPath: string): Promise<void> =>
  new Promise((resolve, reject) => {
    const call = request({ socketPath, path: "/_ping", timeout: 1000 }, (response) => {
      response.resume()
      if (response.statusCode === 200) resolve()
      else reject(new Error(`status ${response.statusCode}`))
    })
    call.on("timeout", () => call.destroy(new Error("no answer")))
    call.on("error", reject)
    call.end()
  })

const logTail = (directory: string) => read(join(directory, "log")).trim().split("\n").slice(-5).join("\n")

const read = (path: string): string => {
  try {
    return readFileSync(path, "latin1")
  } catch {
    return ""
  }
}

const processIds = () =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .map(Number)

/** Lists the engine, its containerd, the shims of its containers, and all processes in its control groups. */
const processesOf = (directory: string): ReadonlyArray<number> => {
  const name = basename(directory)
  return processIds().filter(
    (id) =>
      id !== process.pid &&
      (read(`/proc/${id}/cgroup`).split(/[\n/]/u).includes(name) ||
        read(`/proc/${id}/cmdline`)
          .split("\0")
          .some(
            (word) =>
              word === name ||
              word.startsWith(`${directory}/`) ||
              word.includes(`=${directory}/`) ||
              word === `unix://${directory}/docker.sock`
          ))
  )
}

const isAlive = (id: number) =>
  existsSync(`/proc/${id}`) && !/^\d+ \(.*\) [ZX]/su.test(read(`/proc/${id}/stat`))

const wait = (millis: number) => new Promise((resolve) => setTimeout(resolve, millis))

/** Removes everything of an engine, which its directory alone identifies. */
const destroy = async (directory: string): Promise<void> => {
  const deadline = Date.now() + stopSecondsMax * 1000
  for (let left = processesOf(directory); left.length > 0; left = processesOf(directory).filter(isAlive)) {
    if (Date.now() > deadline) throw new Error(`${directory}: processes ${left.join(", ")} do not end`)
    for (const id of left) {
      try {
        process.kill(id, "SIGKILL")
      } catch {
        // The process has already ended.
      }
    }
    await wait(20)
  }
  const mounts = read("/proc/self/mountinfo")
    .split("\n")
    .map((line) => line.split(" ")[4] ?? "")
    .filter((target) => target.startsWith(`${directory}/`))
  for (const target of mounts.toSorted((a, b) => b.length - a.length)) {
    await exec("umount", ["--lazy", target]).catch(() => undefined)
  }
  for (const group of globSync([
    `/sys/fs/cgroup/*/${basename(directory)}`,
    `/sys/fs/cgroup/${basename(directory)}`
  ])) {
    removeGroup(group)
  }
  rmSync(directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
}

const removeGroup = (path: string): void => {
  try {
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      if (entry.isDirectory()) removeGroup(join(path, entry.name))
    }
    rmdirSync(path)
  } catch {
    // The kernel may remove an empty group later, which is harmless.
  }
}

/** Removes the engines of dead processes. */
const sweep = async (): Promise<void> => {
  for (const name of readdirSync(parent)) {
    const owner = name.startsWith(prefix) ? /^(\d+)-\d+$/u.exec(name.slice(prefix.length))?.[1] : undefined
    if (owner !== undefined && !existsSync(`/proc/${owner}`)) await destroy(join(parent, name))
  }
}

/** Lists all labelled resources of the engine. */
export const labelledAt = (host: string) =>
  DockerApi.DockerApi.use((api) => api.labelled(label.run)).pipe(
    Effect.map((found) => found.map(({ kind, name }) => `${kind} ${name}`)),
    Effect.provide(DockerApi.layer({ host }))
  )

/** Removes the resources of dead owners from the engine. */
export const reapAt = (host: string) =>
  DockerReaper.DockerReaper.use((reaper) => reaper.reap).pipe(Effect.provide(DockerReaper.layer({ host })))
