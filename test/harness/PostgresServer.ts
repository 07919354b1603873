/**
 * A real PostgreSQL for one test, with its own directory and socket, with a password, and without a port.
 *
 * `./dev test` installs Debian's. If it is missing, tests that need it fail with a message; they are never skipped. The
 * server does not sync to disk, and is ended by its process ID when the scope closes.
 */
import { Effect, Layer, Schedule } from "effect"
import { type ChildProcess, execFile, spawn } from "node:child_process"
import { chownSync, existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Database from "@cogni/sandbox-sql/Database"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import { SqlClient } from "effect/sql/SqlClient"

export interface PostgresServer {
  /** Returns the address of a database, and creates it if it does not exist. */
  readonly database: (name: string) => Effect.Effect<DatabaseAddress.DatabaseAddress>
  /** Returns the URL of a database as a user would write it. `password` replaces the correct one. */
  readonly url: (name: string, password?: string) => string
  readonly stop: Effect.Effect<void>
  readonly start: Effect.Effect<void>
}

/** A made-up password with characters that must be escaped. */
export const password = "p@ss/wörd?#%31:s3cr3t"

const startSecondsMax = 300

/** Directory of the programs: the one that `./dev` names, or Debian's newest version. */
export const programs = () =>
  process.env["COGNI_POSTGRES_BIN"] ?? globSync("/usr/lib/postgresql/*/bin").toSorted().at(-1) ?? ""

/** PostgreSQL refuses to run as root. It then runs as the user that its package created. */
const identity = (): { readonly uid?: number; readonly gid?: number } => {
  if (process.getuid?.() !== 0) return {}
  const [, uid, gid] = /^postgres:[^:]*:(\d+):(\d+):/mu.exec(readFileSync("/etc/passwd", "utf8")) ?? []
  if (uid === undefined)
    throw new Error("there is no user postgres. Run ./dev test, which installs PostgreSQL")
  return { uid: Number(uid), gid: Number(gid) }
}

const initialise = (directory: string, data: string, ids: ReturnType<typeof identity>) =>
  Effect.callback<void>((resume) => {
    const secret = join(directory, "password")
    writeFileSync(secret, password, { mode: 0o600 })
    if (ids.uid !== undefined) chownSync(secret, ids.uid, ids.gid!)
    const options = ["--username=cogni", `--pwfile=${secret}`, "--auth=scram-sha-256"]
    const form = ["--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
    execFile(
      join(programs(), "initdb"),
      [`--pgdata=${data}`, ...options, ...form],
      { ...ids, cwd: directory, timeout: startSecondsMax * 1000 },
      (error, stdout, stderr) =>
        resume(error === null ? Effect.void : Effect.die(new Error(`initdb: ${stdout}${stderr}`)))
    )
  })

const launch = (directory: string, data: string, ids: ReturnType<typeof identity>): ChildProcess => {
  const settings = {
    listen_addresses: "",
    unix_socket_directories: directory,
    unix_socket_permissions: "0700",
    fsync: "off",
    full_page_writes: "off",
    shared_buffers: "16MB",
    max_connections: "120",
    autovacuum: "off"
  }
  const argv = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])
  return spawn(join(programs(), "postgres"), ["-D", data, ...argv], {
    ...ids,
    cwd: directory,
    stdio: "ignore"
  })
}

/** Whether the server is ready, as the last line of its PID file reports. */
const isReady = (data: string, child: ChildProcess): boolean => {
  if (child.exitCode !== null) throw new Error(`PostgreSQL ended with ${child.exitCode}`)
  const path = join(data, "postmaster.pid")
  if (!existsSync(path)) return false
  const lines = readFileSync(path, "utf8").split("\n")
  return Number(lines[0]) === child.pid && lines[7]?.trim() === "ready"
}

const ended = (child: ChildProcess, signal: NodeJS.Signals) =>
  Effect.callback<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("exit", () => resume(Effect.void))
    child.kill(signal)
  })

export const acquire = Effect.gen(function* () {
  if (!existsSync(join(programs(), "postgres"))) {
    return yield* Effect.die(new Error("there is no PostgreSQL. Run ./dev test, which installs Debian's"))
  }
  const ids = identity()
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const made = mkdtempSync(join(tmpdir(), "cogni-postgres-"))
      if (ids.uid !== undefined) chownSync(made, ids.uid, ids.gid!)
      return made
    }),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const data = join(directory, "data")
  yield* initialise(directory, data, ids)
  let child: ChildProcess | undefined
  const start = Effect.suspend(() => {
    const made = launch(directory, data, ids)
    child = made
    return Effect.sync(() => isReady(data, made)).pipe(
      Effect.repeat({ schedule: Schedule.spaced("10 millis"), until: (ready) => ready }),
      Effect.timeout(`${startSecondsMax} seconds`),
      Effect.orDie,
      Effect.asVoid
    )
  })
  /** Stops immediately, like a power failure. */
  const stop = Effect.suspend(() => (child === undefined ? Effect.void : ended(child, "SIGQUIT")))
  yield* Effect.addFinalizer(() => stop)
  yield* start

  const url = (name: string, secret = password) =>
    `postgres://cogni:${encodeURIComponent(secret)}@localhost/${name}?host=${encodeURIComponent(directory)}`
  const addressOf = (name: string) => Effect.orDie(Effect.fromResult(DatabaseAddress.parse(url(name))))
  const postgres = yield* addressOf("postgres")
  const database = Effect.fnUntraced(function* (name: string) {
    yield* Effect.flatMap(SqlClient, (sql) => sql`CREATE DATABASE ${sql(name)}`).pipe(
      Effect.catchIf(
        (error) => "reason" in error && /exists/u.test(String((error.reason.cause as Error).message)),
        () => Effect.void
      ),
      Effect.provide(Layer.fresh(Database.layer(postgres))),
      Effect.orDie
    )
    return yield* addressOf(name)
  })
  return { database, start, stop, url } satisfies PostgresServer
})
