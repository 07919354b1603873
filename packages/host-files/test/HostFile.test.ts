/**
 * The corpus of hostile files: links, special files and races on every path that a user names to the host, for reading
 * and for writing. Each attack leads to a secret, which must be neither read nor changed.
 */
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import * as HostPath from "@cogni/sandbox-host-files/HostPath"
import type { HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, type Scope } from "effect"
import { execFileSync } from "node:child_process"
import {
  appendFileSync,
  chmodSync,
  closeSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync
} from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import { afterEach, vi } from "vitest"
import * as HostileTree from "./HostileTree.ts"
import { strike } from "./Strike.ts"

vi.mock("node:fs/promises", async (original) => (await import("./Strike.ts")).interposed(original))

afterEach(() => {
  strike.before = undefined
})

const secret = "TOPSECRET-of-host"
const bytesMax = 64

interface World {
  /** Only the user can write here. Contains `private/secret`. */
  readonly home: string
  /** Workspace of this run's agent. */
  readonly workspace: string
  readonly secret: string
  readonly agents: ReadonlyArray<HostPath.Identity>
}

const world = Effect.gen(function* () {
  const home = yield* HostileTree.closed
  const workspace = join(home, "workspace")
  HostileTree.plant(home, { "private/secret": secret, "workspace/src": null })
  const agents = [HostPath.identityOf(lstatSync(workspace, { bigint: true }))]
  return { home, workspace, secret: join(home, "private/secret"), agents } satisfies World
})

const textOf = ({ bytes }: HostFile.Content) => new TextDecoder().decode(bytes)

const read = (path: string, agents?: ReadonlyArray<HostPath.Identity>) =>
  Effect.map(HostFile.read(path, { bytesMax, agents }), textOf)

/** A socket at this path, until the scope closes. */
const socketAt = (path: string) =>
  Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const server = createServer().listen(path, () => resume(Effect.succeed(server)))
    }),
    (server) => Effect.callback<void>((resume) => void server.close(() => resume(Effect.void)))
  )

interface Attack {
  readonly title: string
  readonly problem: HostPathRefused["problem"]
  /** The problem of writing, if different. */
  readonly writing?: HostPathRefused["problem"]
  /** Plants the attack, and returns the path that the user names. */
  readonly plant: (world: World) => Effect.Effect<string, never, Scope.Scope> | string
}

const link = (target: string, path: string): string => {
  symlinkSync(target, path)
  return path
}

/** Attacks that both reading and writing refuse. */
const onEither: ReadonlyArray<Attack> = [
  {
    title: "a link that an agent left at the named path",
    problem: "link_refused",
    writing: "inside_workspace",
    plant: ({ secret, workspace }) => link(secret, join(workspace, "TASK.md"))
  },
  {
    title: "a relative link out of the workspace",
    problem: "link_refused",
    writing: "inside_workspace",
    plant: ({ workspace }) => link("../private/secret", join(workspace, "TASK.md"))
  },
  {
    title: "a directory that is an agent's link",
    problem: "link_refused",
    plant: ({ home, workspace }) => join(link(join(home, "private"), join(workspace, "docs")), "secret")
  },
  {
    title: "a link deep below the workspace",
    problem: "link_refused",
    plant: ({ home, workspace }) => join(link(join(home, "private"), join(workspace, "src/docs")), "secret")
  },
  {
    title: "a chain of links",
    problem: "link_refused",
    writing: "inside_workspace",
    plant: ({ home, workspace }) =>
      link(
        link(link(join(home, "private/secret"), join(workspace, "a")), join(workspace, "b")),
        join(workspace, "c")
      )
  },
  {
    title: "a link of this user that leads to an agent's",
    problem: "link_refused",
    writing: "inside_workspace",
    plant: ({ home, secret, workspace }) => {
      link(secret, join(workspace, "TASK.md"))
      return join(link(workspace, join(home, "shortcut")), "TASK.md")
    }
  },
  {
    title: "a link to the environment of this process",
    problem: "link_refused",
    plant: ({ workspace }) => join(link("/proc/self", join(workspace, "self")), "environ")
  },
  {
    title: "a directory",
    problem: "not_a_file",
    plant: ({ home }) => join(home, "private")
  },
  {
    title: "a FIFO, without waiting for it",
    problem: "not_a_file",
    plant: ({ home }) => {
      execFileSync("mkfifo", [join(home, "fifo")])
      return join(home, "fifo")
    }
  },
  {
    title: "a socket",
    problem: "not_a_file",
    plant: ({ home }) => Effect.as(socketAt(join(home, "socket")), join(home, "socket"))
  },
  { title: "an endless device", problem: "not_a_file", plant: () => "/dev/zero" },
  {
    title: "a file below a file",
    problem: "not_a_directory",
    plant: ({ secret }) => join(secret, "inner")
  },
  {
    title: "a file in a directory that is missing",
    problem: "not_found",
    plant: ({ home }) => join(home, "missing/file")
  }
]

const planted = Effect.fnUntraced(function* (attack: Attack) {
  const where = yield* world
  const path = attack.plant(where)
  return { ...where, path: typeof path === "string" ? path : yield* path }
})

describe("HostFile.read", () => {
  for (const attack of onEither) {
    it.effect(`refuses ${attack.title}`, () =>
      Effect.gen(function* () {
        const { agents, path } = yield* planted(attack)
        assert.strictEqual((yield* Effect.flip(read(path, agents))).problem, attack.problem)
      })
    )
  }

  it.effect("reads a file, and follows links of this user where no agent works", () =>
    Effect.gen(function* () {
      const { agents, home, secret: path, workspace } = yield* world
      link("private", join(home, "link"))
      link("link/secret", join(home, "again"))
      writeFileSync(join(workspace, "own"), "own")
      assert.strictEqual(yield* read(path, agents), secret)
      assert.strictEqual(yield* read(join(home, "again"), agents), secret)
      assert.strictEqual(yield* read(join(workspace, "own"), agents), "own")
    })
  )

  it.effect("refuses a link in another run's workspace because of the mark left there", () =>
    Effect.gen(function* () {
      const { secret: target, workspace } = yield* world
      const path = link(target, join(workspace, "src/TASK.md"))
      assert.strictEqual(yield* read(path), secret)
      mkdirSync(join(workspace, HostPath.agentMark))
      const refused = yield* Effect.flip(read(path))
      assert.strictEqual(refused.component, path)
      assert.notInclude(refused.message, target)
    })
  )

  it.effect("refuses a link below the temporary directory, whichever user owns it", () =>
    Effect.gen(function* () {
      const { secret: target } = yield* world
      const path = link(target, join(yield* HostileTree.open, "TASK.md"))
      assert.strictEqual((yield* Effect.flip(read(path))).problem, "link_refused")
    })
  )

  it.effect("refuses a file over its bound, a sparse one and one that grows meanwhile", () =>
    Effect.gen(function* () {
      const { home } = yield* world
      const path = join(home, "file")
      writeFileSync(path, "x".repeat(bytesMax))
      assert.strictEqual(yield* read(path), "x".repeat(bytesMax))
      appendFileSync(path, "x")
      assert.strictEqual((yield* Effect.flip(read(path))).problem, "too_large")
      truncateSync(path, 2 ** 40)
      assert.strictEqual((yield* Effect.flip(read(path))).problem, "too_large")
      truncateSync(path, 1)
      strike.before = (call, opened) => {
        if (call === "open" && opened.startsWith("/proc/self/fd/") && !opened.endsWith("/file")) {
          appendFileSync(path, "x".repeat(bytesMax))
        }
      }
      assert.strictEqual((yield* Effect.flip(read(path))).problem, "too_large")
    })
  )

  it.effect("never reads the secret, before whichever call the file or its directory is replaced", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      for (const exchanged of ["w/docs/TASK.md", "w/docs", "w"]) {
        let isOver = false
        for (let call = 0; !isOver; call++) {
          const round = join(root, `${exchanged.length}-${call}`)
          HostileTree.plant(round, {
            "w/docs/TASK.md": "mine",
            "other/docs/TASK.md": secret,
            "other/TASK.md": secret
          })
          const target = exchanged === "w/docs/TASK.md" ? "other/TASK.md" : "other"
          let calls = 0
          isOver = true
          strike.before = () => {
            if (calls++ !== call) return
            isOver = false
            renameSync(join(round, exchanged), join(round, "aside"))
            symlinkSync(join(round, target), join(round, exchanged))
          }
          const told = yield* Effect.match(read(join(round, "w/docs/TASK.md")), {
            onFailure: ({ problem }) => problem,
            onSuccess: (text) => text
          })
          strike.before = undefined
          assert.include(["mine", "link_refused"], told, `${exchanged} before call ${call}`)
        }
      }
    })
  )

  it.effect("reads a pipe that the caller's shell opened, to its end and with the bound", () =>
    Effect.gen(function* () {
      const { home } = yield* world
      const fifo = join(home, "fifo")
      execFileSync("mkfifo", [fifo])
      const descriptor = openSync(fifo, "r+")
      assert.strictEqual((yield* Effect.flip(read(`/dev/fd/${descriptor}`))).problem, "not_a_file")
      const reading = yield* Effect.forkChild(
        Effect.flip(HostFile.read(`/dev/fd/${descriptor}`, { bytesMax, streams: true })),
        { startImmediately: true }
      )
      writeFileSync(fifo, "x".repeat(bytesMax + 1))
      assert.strictEqual((yield* Fiber.join(reading)).problem, "too_large")
      closeSync(descriptor)
      const words = execFileSync(
        "bash",
        [
          "-c",
          `exec "$0" --input-type=module -e "$1" < <(echo a task)`,
          process.execPath,
          `import { read } from ${JSON.stringify(import.meta.resolve("../src/internal/InheritedDescriptor.ts"))}
           console.log(new TextDecoder().decode(await read(0, 64, new Error("long"), new AbortController().signal)))`
        ],
        { encoding: "utf8" }
      )
      assert.strictEqual(words, "a task\n\n")
    })
  )
})

describe("HostFile.reserve", () => {
  for (const attack of onEither) {
    it.effect(`refuses ${attack.title}`, () =>
      Effect.gen(function* () {
        const { agents, path, secret: kept } = yield* planted(attack)
        assert.strictEqual(
          (yield* Effect.flip(HostFile.write(path, "patch", { agents }))).problem,
          attack.writing ?? attack.problem
        )
        assert.strictEqual(readFileSync(kept, "utf8"), secret)
      })
    )
  }

  it.effect("names the missing directory, and suggests a stream only for reading", () =>
    Effect.gen(function* () {
      const { home } = yield* world
      HostileTree.plant(home, { waits: "fifo", directory: null })
      const path = join(home, "missing/inner/fix.patch")
      const both = [HostFile.write(path, "patch"), read(path)] as const
      for (const refused of [yield* Effect.flip(both[0]), yield* Effect.flip(both[1])]) {
        const directory = join(home, "missing")
        assert.strictEqual(refused.component, directory)
        assert.include(refused.message, `lies below ${directory}, which does not exist. Make that directory`)
      }
      for (const special of ["/dev/null", join(home, "waits"), join(home, "directory")]) {
        assert.include((yield* Effect.flip(read(special))).message, "or use - or <(…) for a stream")
        const { message } = yield* Effect.flip(HostFile.write(special, "patch"))
        assert.match(message, /is a (?:device|FIFO|directory)\. Name a regular file$/u)
      }
    })
  )

  it.effect("refuses every file in the workspace, however its path is written", () =>
    Effect.gen(function* () {
      const { agents, home, workspace } = yield* world
      link(workspace, join(home, "shortcut"))
      for (const path of ["workspace/fix.patch", "workspace/src/fix.patch", "shortcut/src/../fix.patch"]) {
        const refused = yield* Effect.flip(HostFile.write(`${home}/${path}`, "patch", { agents }))
        assert.strictEqual(refused.problem, "inside_workspace", path)
      }
      renameSync(workspace, join(home, "renamed"))
      const refused = yield* Effect.flip(HostFile.write(join(home, "renamed/fix.patch"), "patch", { agents }))
      assert.strictEqual(refused.problem, "inside_workspace")
    })
  )

  it.effect("refuses a dangling link, and creates no file at its target", () =>
    Effect.gen(function* () {
      const { home } = yield* world
      const path = link(join(home, "private/new"), join(home, "fix.patch"))
      assert.strictEqual((yield* Effect.flip(HostFile.write(path, "patch"))).problem, "link_refused")
      assert.isFalse(HostileTree.isThere(join(home, "private/new")))
    })
  )

  it.effect("replaces a link that appears between the reservation and the writing", () =>
    Effect.gen(function* () {
      const { home, secret: kept } = yield* world
      const path = join(home, "fix.patch")
      const reserved = yield* HostFile.reserve(path)
      link(kept, path)
      yield* reserved.write("patch")
      assert.strictEqual(readFileSync(kept, "utf8"), secret)
      assert.isTrue(lstatSync(path).isFile())
      assert.strictEqual(readFileSync(path, "utf8"), "patch")
    }).pipe(Effect.scoped)
  )

  it.effect("writes into the held directory even if its name leads elsewhere", () =>
    Effect.gen(function* () {
      const { home } = yield* world
      HostileTree.plant(home, { "out/other": "x", "private/fix.patch": secret })
      const reserved = yield* HostFile.reserve(join(home, "out/fix.patch"))
      renameSync(join(home, "out"), join(home, "aside"))
      link("private", join(home, "out"))
      yield* reserved.write("patch")
      assert.strictEqual(readFileSync(join(home, "private/fix.patch"), "utf8"), secret)
      assert.strictEqual(readFileSync(join(home, "aside/fix.patch"), "utf8"), "patch")
    }).pipe(Effect.scoped)
  )

  it.effect("detects a temporary file that was replaced, and writes through no link", () =>
    Effect.gen(function* () {
      const { home, secret: kept } = yield* world
      for (const target of [kept, undefined]) {
        const path = join(home, `${target === undefined}.patch`)
        const reserved = yield* HostFile.reserve(path)
        const temporary = join(
          home,
          readdirSync(home).find((name) => name.startsWith(".cogni-"))!
        )
        rmSync(temporary)
        if (target === undefined) linkSync(kept, temporary)
        else link(target, temporary)
        const refused = yield* Effect.flip(reserved.write("patch"))
        assert.include(refused.message, "was replaced")
        assert.isFalse(HostileTree.isThere(path))
        rmSync(temporary)
      }
      assert.strictEqual(readFileSync(kept, "utf8"), secret)
    }).pipe(Effect.scoped)
  )

  it.effect("does not change another hard link of the file that it replaces", () =>
    Effect.gen(function* () {
      const { home, secret: kept } = yield* world
      const path = join(home, "fix.patch")
      linkSync(kept, path)
      yield* HostFile.write(path, "patch")
      assert.strictEqual(readFileSync(kept, "utf8"), secret)
      assert.strictEqual(readFileSync(path, "utf8"), "patch")
    })
  )

  it.effect("fails if the name has become a directory, and keeps its content", () =>
    Effect.gen(function* () {
      const { home } = yield* world
      const path = join(home, "fix.patch")
      const reserved = yield* HostFile.reserve(path)
      HostileTree.plant(path, { "inner/file": "x" })
      assert.strictEqual((yield* Effect.flip(reserved.write("patch"))).problem, "not_a_file")
      assert.strictEqual(readFileSync(join(path, "inner/file"), "utf8"), "x")
    }).pipe(Effect.scoped)
  )

  it.effect("removes its temporary file if nothing is written, or on failure or interruption", () =>
    Effect.gen(function* () {
      const { home } = yield* world
      const path = join(home, "fix.patch")
      writeFileSync(path, "before")
      const names = () => readdirSync(home).toSorted()
      const before = names()
      yield* Effect.scoped(HostFile.reserve(path))
      assert.deepStrictEqual(names(), before)
      yield* Effect.exit(Effect.scoped(Effect.andThen(HostFile.reserve(path), Effect.fail("no sandbox"))))
      assert.deepStrictEqual(names(), before)
      const waiting = yield* Effect.forkChild(
        Effect.scoped(
          Effect.gen(function* () {
            yield* HostFile.reserve(path)
            return yield* Effect.never
          })
        ),
        { startImmediately: true }
      )
      yield* Fiber.interrupt(waiting)
      assert.deepStrictEqual(names(), before)
      assert.strictEqual(readFileSync(path, "utf8"), "before")
    })
  )

  it.effect("keeps the permissions of a file that it replaces, and applies the umask to a new one", () =>
    Effect.gen(function* () {
      const { home } = yield* world
      const path = join(home, "fix.patch")
      yield* HostFile.write(path, "one")
      assert.strictEqual(statSync(path).mode & 0o777, 0o666 & ~process.umask())
      chmodSync(path, 0o640)
      yield* HostFile.write(path, new Uint8Array([116, 119, 111]))
      assert.strictEqual(statSync(path).mode & 0o777, 0o640)
      const restricted = join(home, "restricted")
      const reservation = yield* HostFile.reserve(restricted, { mode: 0o600 })
      yield* reservation.write("a report")
      assert.strictEqual(statSync(restricted).mode & 0o777, 0o600)
      assert.strictEqual(readFileSync(path, "utf8"), "two")
    })
  )

  it.effect("never writes to a link's target, before whichever call the directory is replaced", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      for (const exchanged of ["w/out/fix.patch", "w/out", "w"]) {
        let isOver = false
        for (let call = 0; !isOver; call++) {
          const round = join(root, `${exchanged.length}-${call}`)
          HostileTree.plant(round, {
            "w/out/fix.patch": "before",
            "other/out/fix.patch": secret,
            "other/fix.patch": secret
          })
          const target = exchanged === "w/out/fix.patch" ? "other/fix.patch" : "other"
          let calls = 0
          isOver = true
          strike.before = () => {
            if (calls++ !== call) return
            isOver = false
            renameSync(join(round, exchanged), join(round, "aside"))
            symlinkSync(join(round, target), join(round, exchanged))
          }
          const told = yield* Effect.match(HostFile.write(join(round, "w/out/fix.patch"), "patch"), {
            onFailure: ({ problem }) => problem,
            onSuccess: () => "written"
          })
          strike.before = undefined
          const where = `${exchanged} before call ${call}`
          // "unreadable": the name was replaced after the file was written.
          assert.include(["written", "link_refused", "unreadable"], told, where)
          assert.strictEqual(readFileSync(join(round, "other/out/fix.patch"), "utf8"), secret, where)
          assert.strictEqual(readFileSync(join(round, "other/fix.patch"), "utf8"), secret, where)
        }
      }
    })
  )

  it.effect("writes into a descriptor that this process was started with", () =>
    Effect.gen(function* () {
      const { home } = yield* world
      const descriptor = openSync(join(home, "out"), "w")
      yield* HostFile.write(`/dev/fd/${descriptor}`, "one ")
      yield* HostFile.write(`/proc/self/fd/${descriptor}`, "two")
      closeSync(descriptor)
      assert.strictEqual(readFileSync(join(home, "out"), "utf8"), "one two")
      assert.strictEqual(readlinkSync(link("out", join(home, "link"))), "out")
    })
  )
})
