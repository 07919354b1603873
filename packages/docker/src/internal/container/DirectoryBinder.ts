/**
 * Binds a directory of the host into a waiting sandbox (docs/adr/0048-directories-in-waiting-sandboxes.md).
 *
 * A program of the host moves a copy of the directory's mount into the mount namespace of the sandbox. It is started
 * with the first waiting sandbox, waits for jobs on its standard input, and ends with this process. It needs root and
 * Perl on the engine's own host. Without them, a run in a directory starts cold, and `whyNot` says why.
 */
import * as MonotonicTime from "@cogni/sandbox-core/MonotonicTime"
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import type { Posture } from "@cogni/sandbox-core/Posture"
import { target } from "@cogni/sandbox-core/SandboxPlace"
import type { ContainerFailed } from "@cogni/sandbox-core/SandboxReason"
import { notLoaded, notMounted, unusable } from "@cogni/sandbox-core/WaitingSandbox"
import * as HostProgram from "@cogni/sandbox-host-files/HostProgram"
import { Deferred, Effect, Exit, Scope, Semaphore } from "effect"
import type { DockerApi } from "../../DockerApi.ts"
import * as HostOwner from "../../HostOwner.ts"
import * as MountProgram from "./MountProgram.ts"

export interface DirectoryBinder {
  /** Why this host binds no directories; `undefined` if it does. */
  readonly whyNot: Effect.Effect<string | undefined>
  /** Binds a directory. If it fails, the sandbox must be removed. */
  readonly bind: (job: MountProgram.Job) => Effect.Effect<void, ContainerError>
}

/** Time for the program to start, in seconds. The pool asks in advance, so that no run waits for it. */
const greetingSecondsMax = 10

/** Time for one job, in seconds. */
const answerSecondsMax = 2

/** Time after a job that no directory could do, for which none is tried. */
const brokenMillis = 60_000

type Answer = Pick<MountProgram.Answer, "why" | "fault">

const ofJob = (why: string): Answer => ({ why, fault: "job" })

interface Helper {
  readonly greeting: Effect.Effect<string>
  readonly ask: (job: MountProgram.Job) => Effect.Effect<Answer>
  readonly end: Effect.Effect<void>
  readonly hasEnded: () => boolean
}

const ended = "the program that binds directories has ended"

/** Starts the program. It is killed when it is ended, or when the scope closes. */
const start = Effect.fnUntraced(function* (scope: Scope.Scope): Effect.fn.Return<Helper> {
  const own = yield* Scope.fork(scope)
  const greeting = Deferred.makeUnsafe<string>()
  const asked = new Map<number, Deferred.Deferred<Answer>>()
  let [lastId, unread, isOver] = [0, "", false]
  const hear = (line: string) => {
    if (!Deferred.isDoneUnsafe(greeting)) return Deferred.doneUnsafe(greeting, Exit.succeed(line))
    const said = MountProgram.decode(line)
    const answer = said === undefined ? undefined : asked.get(said.id)
    if (said !== undefined && answer !== undefined) Deferred.doneUnsafe(answer, Exit.succeed(said))
  }
  const running = yield* Scope.provide(
    HostProgram.start({
      name: "perl",
      argv: ["-e", MountProgram.source],
      env: { PATH: HostProgram.searchPath, LC_ALL: "C" },
      onStdout: (piece) => {
        const lines = (unread + piece.toString("utf8")).split("\n")
        unread = lines.pop() ?? ""
        lines.forEach(hear)
      }
    }),
    own
  )
  yield* running.answer.pipe(
    Effect.match({
      onFailure: ({ message }) => message,
      onSuccess: ({ stderr }) => `${ended}: ${HostProgram.lastLine(stderr) || "it said nothing"}`
    }),
    Effect.tap((why) =>
      Effect.sync(() => {
        isOver = true
        Deferred.doneUnsafe(greeting, Exit.succeed(why))
        for (const answer of asked.values()) Deferred.doneUnsafe(answer, Exit.succeed(ofJob(why)))
      })
    ),
    // Not in its own scope, which ends with it.
    Effect.andThen(Effect.uninterruptible(Scope.close(own, Exit.void))),
    Effect.forkIn(scope)
  )
  return {
    greeting: Deferred.await(greeting),
    ask: (job) =>
      Effect.suspend(() => {
        if (isOver) return Effect.succeed(ofJob(ended))
        const id = ++lastId
        const answer = Deferred.makeUnsafe<Answer>()
        asked.set(id, answer)
        running.stdin.write(MountProgram.encode(id, job))
        return Effect.ensuring(
          Deferred.await(answer),
          Effect.sync(() => asked.delete(id))
        )
      }),
    end: Effect.suspend(() => {
      isOver = true
      return Scope.close(own, Exit.void)
    }),
    hasEnded: () => isOver
  }
})

export const make = Effect.fnUntraced(function* ({
  address,
  engineRuntime,
  info
}: Pick<DockerApi["Service"], "address" | "info"> & {
  /** Runtime of the engine that starts the containers. Absent: its default. */
  readonly engineRuntime?: string | undefined
}): Effect.fn.Return<DirectoryBinder, never, Scope.Scope> {
  const scope = yield* Effect.scope
  let helper: Helper | undefined
  let isPossible = false
  let broken = { why: "", untilMillis: 0 }
  // So that two runs do not start two.
  const turn = yield* Semaphore.make(1)
  /** The program that runs, or a new one. */
  const current = Effect.suspend(
    () =>
      helper !== undefined && !helper.hasEnded()
        ? Effect.succeed(helper)
        : Effect.tap(start(scope), (started) =>
            Effect.sync(() => {
              helper = started
            })
          )
    // Nothing in it waits long, and a program that has started must be known.
  ).pipe(turn.withPermits(1), Effect.uninterruptible)
  const greetingOf = (one: Helper) =>
    Effect.timeoutOrElse(one.greeting, {
      duration: `${greetingSecondsMax} seconds`,
      orElse: () =>
        Effect.as(one.end, `the program that binds directories did not start within ${greetingSecondsMax} s`)
    })

  const look = Effect.gen(function* () {
    if (process.platform !== "linux") return "this system is not Linux"
    if (process.geteuid?.() !== 0) return "this process is not root"
    const engine = yield* info
    const why = whyElsewhere(address, engine, engineRuntime)
    if (why !== undefined) return why
    const one = yield* current
    const greeting = yield* greetingOf(one)
    isPossible = greeting === MountProgram.ready
    return isPossible ? undefined : greeting
  }).pipe(Effect.catch(({ message }) => Effect.succeed(message)))
  const looked = yield* Effect.cachedWithTTL(look, "1 minute")

  return {
    whyNot: Effect.flatMap(MonotonicTime.nowMillis, (nowMillis) =>
      nowMillis < broken.untilMillis ? Effect.succeed(broken.why) : isPossible ? Effect.undefined : looked
    ),
    bind: (job) =>
      Effect.gen(function* () {
        const one = yield* current
        const { fault, why } = yield* Effect.timeoutOrElse(one.ask(job), {
          duration: `${answerSecondsMax} seconds`,
          // Its file system may be the reason, so the jobs of other runs go on.
          orElse: () => Effect.succeed(ofJob(`it took more than ${answerSecondsMax} s`))
        })
        // Whether it can be started again is looked at before the next run.
        if (one.hasEnded()) isPossible = false
        if (why === undefined) return
        if (fault === "host") broken = { why, untilMillis: (yield* MonotonicTime.nowMillis) + brokenMillis }
        return yield* errorOf(job, { fault, why })
      })
  }
})

/** Returns the error of a directory that was not bound. Pure. */
export const errorOf = (
  { hasLoaded, path }: Pick<MountProgram.Job, "hasLoaded" | "path">,
  { fault, why }: { readonly fault: Answer["fault"]; readonly why: string }
): ContainerFailed => {
  // The next sandbox would be spent for nothing too, if the program that it loads does the same.
  const failed = fault !== "sandbox" ? notMounted : hasLoaded ? notLoaded : unusable
  return failed(`${path} could not be bound into it: ${why}`)
}

/** Returns why an engine has other mounts or users than this process. Pure. */
export const whyElsewhere = (
  address: Parameters<typeof HostOwner.isSharedWith>[0],
  engine: Parameters<typeof HostOwner.isSharedWith>[1] & {
    readonly DefaultRuntime?: string | undefined
    readonly SecurityOptions?: ReadonlyArray<string> | null | undefined
  },
  engineRuntime?: string
): string | undefined => {
  const runtime = engineRuntime ?? engine.DefaultRuntime
  // Another one may start its containers with a kernel of their own.
  if (runtime !== undefined && !/^(?:runc|crun|io\.containerd\.runc\.v2)$/u.test(runtime))
    return `the engine's runtime ${runtime} may have mounts of its own`
  if (!HostOwner.isSharedWith(address, engine)) return "the engine is not on this host"
  const mapping = (engine.SecurityOptions ?? []).find((option) => /^name=(?:rootless|userns)\b/u.test(option))
  return mapping === undefined ? undefined : `the engine maps users (${mapping})`
}

/** Returns the directory that a run has instead of the empty workspace of a waiting sandbox. Pure. */
export const directoryOf = (
  waiting: ReadonlyArray<Mount>,
  run: ReadonlyArray<Mount>
): { readonly asked: Mount; readonly empty: Mount } | undefined => {
  const [empty, asked] = [waiting, run].map((mounts) => mounts.find((mount) => mount.target === target))
  return asked === undefined || empty === undefined || asked.source === empty.source
    ? undefined
    : { asked, empty }
}

/** Lists what is wrong with a directory that was bound, by the mounts of the sandbox, a sentence each. Pure. */
export const mismatches = ({ mounts }: Pick<Posture, "mounts">): ReadonlyArray<string> => {
  const own = mounts.filter((mount) => mount.target === target)
  if (own.length !== 1) return [`${target} has ${own.length} mounts, not that of its directory alone`]
  return ["nosuid", "nodev"].flatMap((option) =>
    own[0]!.options.includes(option) ? [] : [`${target} is mounted without ${option}`]
  )
}
