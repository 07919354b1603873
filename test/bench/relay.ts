/**
 * `./dev bench relay`: the cost of sending an agent's commits through the relay, beside git alone.
 *
 *     --quick         a small repository and two rounds, to check that it works
 *     --output DIR    directory for relay.json and relay.md (default test/bench/results; none with --quick)
 *
 * Origin, relay and the measurement of memory are separate processes. Exits with 1 if a bar is missed.
 */
import * as Canary from "@cogni/sandbox-core/Canary"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as Hardening from "../../packages/docker/src/internal/container/Hardening.ts"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { agentUser } from "../../packages/git-relay/src/internal/steps/WorkspaceClone.ts"
import * as WorkspaceContainer from "../../packages/git-relay/src/internal/steps/WorkspaceContainer.ts"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { type Clone } from "@cogni/sandbox-git-relay/RelaySteps"
import * as HostGitRelay from "@cogni/sandbox-git-relay/HostGitRelay"
import * as PullRequests from "@cogni/sandbox-git-relay/forge/PullRequests"
import { Context, Effect, Exit, Fiber, Layer, Redacted, Scope } from "effect"
import { type ChildProcess, execFile, execFileSync, fork } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from "node:fs"
import { availableParallelism, loadavg, release, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs, promisify } from "node:util"
import type { Asked, Seen } from "./RelayMemory.ts"
import type { Place } from "./RelayOrigin.ts"
import * as RelayRepository from "./RelayRepository.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: { quick: { type: "boolean", default: false }, output: { type: "string" } }
})

const shape = options.quick ? RelayRepository.small : RelayRepository.full
const roundsMin = options.quick ? 2 : 5
const roundsMax = options.quick ? 2 : 9
/** Time after which no round starts, if there are enough; after twice this time, no round starts at all. */
const secondsMax = 210
const startsPerRound = 3
const change = { commits: 3, files: 53, bytes: options.quick ? 3e6 : 30e6 }

const image = process.env["COGNI_RUNTIME_IMAGE"] ?? "cogni-sandbox/runtime:latest"
const host = process.env["DOCKER_HOST"]
const username = "x-access-token"
const token = "bench-origin-token-51e27f3a9c"

const say = (text: string) => process.stderr.write(`${text}\n`)
const exec = promisify(execFile)

/** In memory, if there is room: on a disk, the 20,000 files would dominate. `TMPDIR` takes precedence. */
const inMemory = "/dev/shm"
const hasRoom = () => {
  if (process.env["TMPDIR"] !== undefined || !existsSync(inMemory)) return false
  const { bavail, bsize } = statfsSync(inMemory)
  return bavail * bsize > 16 * shape.bytes
}

const place = hasRoom() ? inMemory : tmpdir()
const root = mkdtempSync(join(place, "cogni-bench-relay-"))
const children: Array<ChildProcess> = []
const cleanUp: Array<() => unknown> = [
  () => children.forEach((one) => one.disconnect?.()),
  () => rmSync(root, { recursive: true, force: true })
]

const child = (file: string): ChildProcess => {
  const started = fork(join(import.meta.dirname, file), {
    execArgv: ["--disable-warning=ExperimentalWarning"],
    stdio: ["ignore", "inherit", "inherit", "ipc"]
  })
  children.push(started)
  return started
}

const ask = <A>(whom: ChildProcess, question: object): Promise<A> =>
  new Promise((resolve, reject) => {
    const ended = (code: number | null) => reject(new Error(`a process ended with ${code}`))
    whom.once("exit", ended)
    whom.once("message", (message) => {
      whom.off("exit", ended)
      resolve(message as A)
    })
    whom.send(question)
  })

const remove = (path: string) => exec("rm", ["-rf", "--", path])

const origin = async () => {
  const directory = join(root, "origin")
  const [seed, path] = [join(root, "seed.git"), join(directory, "large.git")]
  mkdirSync(directory)
  await RelayRepository.make(seed, shape)
  const server = child("RelayOrigin.ts")
  const { url } = await ask<{ readonly url: string }>(server, {
    directory,
    username,
    token
  } satisfies Place)
  return {
    processId: server.pid!,
    server: url,
    url: `${url}/large.git`,
    packBytes: RelayRepository.packBytes(seed),
    /** Removes everything that was pushed to the origin. */
    reset: async () => {
      await remove(path)
      await exec("cp", ["-al", "--", seed, path])
    }
  }
}

const naive = (url: string) => {
  const withToken = url.replace("//", `//${username}:${token}@`)
  const git = (...argv: ReadonlyArray<string>) =>
    exec("git", [...argv], { env: { ...RelayRepository.environment }, cwd: "/" })
  return {
    clone: (path: string) => git("clone", "-q", "--depth=1", withToken, path),
    push: (path: string) => git("-C", path, "push", "-q", "origin", "HEAD:refs/heads/agent")
  }
}

type Held = Clone & { readonly end: () => Promise<void> }

const relay = (name: string, scope: Scope.Scope, server: string, cached: boolean) =>
  Effect.map(
    Layer.buildWithScope(
      HostGitRelay.layer({
        directory: join(root, name),
        image,
        owners: HostOwner,
        secrets: [
          { name: "the key of the model", secret: Redacted.make("bench-model-key-1f93ab7760c5d84e2b") },
          { name: "the token for the origin", secret: Redacted.make(token) }
        ],
        ...(cached ? { cache: { directory: join(root, `${name}-mirrors`) } } : {})
      }).pipe(
        Layer.provide(PullRequests.layerNoop),
        Layer.provide(GitCredentials.layerTokens([{ server, username, token: Redacted.make(token) }])),
        Layer.provide(DockerContainerRuntime.layer({ host }))
      ),
      scope
    ),
    (context) => {
      const git = Context.get(context, GitRelay)
      return {
        /** Makes a clone that lasts until `end` is called. */
        clone: async (url: string): Promise<Held> => {
          const own = Scope.makeUnsafe()
          const runId = await Effect.runPromise(RunId.generate)
          const { canaries } = await Effect.runPromise(Canary.plant)
          const clone = await Effect.runPromise(git.clone({ runId, url, canaries }).pipe(Scope.provide(own)))
          const end = () => Effect.runPromise(Effect.andThen(git.discard(runId), Scope.close(own, Exit.void)))
          return { ...clone, end }
        },
        collect: (clone: Clone) => Effect.runPromise(git.collect(clone)),
        check: (collected: Parameters<typeof git.check>[0]) => Effect.runPromise(git.check(collected)),
        push: (checked: Parameters<typeof git.push>[0]) => Effect.runPromise(git.push(checked)),
        forget: () => remove(join(root, `${name}-mirrors`))
      }
    }
  )

/** Starts a container with the relay's isolation that does nothing: the engine's share of the time. */
const containerStart = (
  api: DockerApi.DockerApi["Service"],
  { baseCommit, objectFormat, workspacePath }: Clone
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const runId = yield* RunId.generate
      const spec = WorkspaceContainer.bundleSpec(
        { runId, image, user: agentUser, workspacePath, runtimeSecondsMax: 60 },
        { ref: "HEAD", baseCommit, objectFormat }
      )
      const id = yield* Effect.acquireRelease(
        api.create({
          name: `cogni-bench-${runId}`,
          image,
          entrypoint: ["true"],
          argv: [],
          env: [],
          user: "1000:1000",
          labels: {},
          hostConfig: Hardening.hostConfig(spec)
        }),
        (created) => Effect.ignore(api.remove(created))
      )
      const socket = yield* api.attach(id)
      const exited = yield* Effect.forkScoped(api.waitNextExit(id), { startImmediately: true })
      yield* api.start(id)
      socket.resume()
      yield* Fiber.join(exited)
      socket.destroy()
    })
  ).pipe(Effect.runPromise)

/** Makes the same files for all contenders, in one directory for each commit. */
const prepareChange = (): string => {
  const path = join(root, "change")
  const next = RelayRepository.noise(2)
  for (let file = 0; file < change.files; file++) {
    const directory = join(path, `commit${file % change.commits}`, `d${file % 20}`, "new")
    mkdirSync(directory, { recursive: true })
    writeFileSync(join(directory, `added${file}.bin`), next(Math.round(change.bytes / change.files)))
  }
  execFileSync("chmod", ["-R", "a+rX", path])
  return path
}

/** Makes three commits as the owner of the repository, in a temporary container. */
const work = (repository: string, changePath: string, user: string) => {
  const how = ["--rm", "--network=none", "--init", `--user=${user}`, "--env=HOME=/tmp", "--workdir=/repo"]
  const volumes = [`--volume=${repository}:/repo`, `--volume=${changePath}:/change:ro`]
  const script = `for one in /change/*; do
    cp -r "$one"/. .
    git -c safe.directory='*' add --all
    git -c safe.directory='*' -c user.name=a -c user.email=a@example.invalid commit -q -m "Add $(basename "$one")"
  done`
  return exec("docker", ["run", ...how, ...volumes, "--entrypoint=/bin/bash", image, "-euc", script])
}

interface Sample extends Seen {
  readonly millis: number
}

const samples = new Map<string, Array<Sample>>()

const measurer = (originProcessId: number) => {
  const memory = child("RelayMemory.ts")
  return async <A>(name: string, run: () => Promise<A>): Promise<A> => {
    // A measurement must not wait for the writes of an earlier one.
    await exec("sync")
    globalThis.gc?.()
    await ask(memory, { processId: process.pid, except: [originProcessId] } satisfies Asked)
    const before = performance.now()
    const value = await run()
    const millis = performance.now() - before
    const seen = await ask<Seen>(memory, {} satisfies Asked)
    samples.set(name, [...(samples.get(name) ?? []), { millis, ...seen }])
    say(`  ${name}: ${Math.round(millis)} ms`)
    return value
  }
}

const round = (value: number, digits = 2) => Math.round(value * 10 ** digits) / 10 ** digits
const secondsAt = (name: string, share: number) =>
  Samples.percentile(
    (samples.get(name) ?? []).map(({ millis }) => millis / 1000).toSorted((a, b) => a - b),
    share
  )
/** Returns the seconds of a row in one round: the median, if there are several. */
const secondsIn = (name: string, turn: number) => {
  const all = (samples.get(name) ?? []).map(({ millis }) => millis / 1000)
  const each = all.length / (samples.get(rows.clone)?.length ?? 1)
  return Samples.percentile(
    all.slice(turn * each, (turn + 1) * each).toSorted((a, b) => a - b),
    0.5
  )
}
/** Returns the median of comparisons within a round: a machine that gets slower meanwhile affects both sides. */
const medianOf = (inRound: (turn: number) => number) =>
  round(
    Samples.percentile(
      (samples.get(rows.clone) ?? []).map((_, turn) => inRound(turn)).toSorted((a, b) => a - b),
      0.5
    )
  )
const most = (names: ReadonlyArray<string>, of: (sample: Sample) => number) =>
  Math.max(...names.flatMap((name) => samples.get(name) ?? []).map(of))
const megabytes = (bytes: number) => round(bytes / 1e6, 1)

const rows = {
  clone: "git clone --depth=1",
  uncached: "relay clone, no cache",
  cold: "relay clone, empty cache",
  warm: "relay clone, filled cache",
  push: "git push",
  after: "relay collect, check and push",
  collect: "relay collect",
  check: "relay check",
  relayPush: "relay push",
  start: "one container start"
} as const
const ofRelay = [rows.uncached, rows.cold, rows.warm, rows.collect, rows.check, rows.relayPush]

/** Combines the last sample of each step into one. */
const together = (steps: ReadonlyArray<string>): Sample => {
  const last = steps.map((name) => samples.get(name)!.at(-1)!)
  const highest = (of: (sample: Sample) => number) => Math.max(...last.map(of))
  return {
    millis: last.reduce((sum, { millis }) => sum + millis, 0),
    ownGrowth: highest(({ ownGrowth }) => ownGrowth),
    children: highest((sample) => sample.children),
    childrenAnonymous: highest(({ childrenAnonymous }) => childrenAnonymous)
  }
}

const main = async () => {
  const load = round(loadavg()[0]!, 1)
  say(`a repository of ${shape.files} files, ${megabytes(shape.bytes)} MB`)
  const { packBytes, processId, reset, server, url } = await origin()
  await reset()
  const changePath = prepareChange()
  const scope = Scope.makeUnsafe()
  cleanUp.unshift(() => Effect.runPromise(Scope.close(scope, Exit.void)))
  const uncached = await Effect.runPromise(relay("uncached", scope, server, false))
  const cold = await Effect.runPromise(relay("cold", scope, server, true))
  const warm = await Effect.runPromise(relay("warm", scope, server, true))
  const api = Context.get(
    await Effect.runPromise(Layer.buildWithScope(DockerApi.layer({ host }), scope)),
    DockerApi.DockerApi
  )
  const alone = naive(url)
  const measure = measurer(processId)
  // The first clone fills the cache, and checks that everything works.
  await (await warm.clone(url)).end()

  const began = performance.now()
  let rounds = 0
  const isTime = (share: number) => performance.now() - began < secondsMax * 1000 * share
  while (rounds < roundsMin ? rounds === 0 || isTime(2) : rounds < roundsMax && isTime(1)) {
    say(`round ${rounds + 1}`)
    const path = join(root, `naive-${rounds}`)
    let held: Held | undefined
    const clones: ReadonlyArray<() => Promise<unknown>> = [
      () => measure(rows.clone, () => alone.clone(path)),
      async () => await (await measure(rows.uncached, () => uncached.clone(url))).end(),
      async () => {
        await cold.forget()
        await (await measure(rows.cold, () => cold.clone(url))).end()
      },
      async () => {
        held = await measure(rows.warm, () => warm.clone(url))
      }
    ]
    // Back and forth: memory that the previous contender has just released is cheaper than any other.
    const turn = rounds % 2 === 0 ? clones : clones.toReversed()
    for (const clone of Samples.rotate(turn, rounds >> 1)) await clone()
    const { end, ...clone } = held!
    await work(path, changePath, "0:0")
    await work(join(clone.workspacePath, "repo"), changePath, "1000:1000")
    const pushes: ReadonlyArray<() => Promise<unknown>> = [
      () => measure(rows.push, () => alone.push(path)),
      async () => {
        const collected = await measure(rows.collect, () => warm.collect(clone))
        const checked = await measure(rows.check, () => warm.check(collected))
        await measure(rows.relayPush, () => warm.push(checked))
        const whole = together([rows.collect, rows.check, rows.relayPush])
        samples.set(rows.after, [...(samples.get(rows.after) ?? []), whole])
      }
    ]
    for (const push of Samples.rotate(pushes, rounds)) {
      await push()
      await reset()
    }
    for (let index = 0; index < startsPerRound; index++)
      await measure(rows.start, () => containerStart(api, clone))
    await end()
    await remove(path)
    rounds += 1
  }

  // In a small repository, starting processes takes most of the time.
  const atMost = (value: number) => (options.quick ? {} : { atMost: value })
  const bars: ReadonlyArray<Report.Bar> = [
    {
      name: "a clone from a filled cache, times git's own",
      value: medianOf((turn) => secondsIn(rows.warm, turn) / secondsIn(rows.clone, turn)),
      ...atMost(0.4)
    },
    {
      name: "after the run, less one container start, times git push",
      value: medianOf(
        (turn) => (secondsIn(rows.after, turn) - secondsIn(rows.start, turn)) / secondsIn(rows.push, turn)
      ),
      ...atMost(1.3)
    },
    {
      name: "memory of what the relay starts, MB, pages of files aside",
      value: megabytes(most(ofRelay, ({ childrenAnonymous }) => childrenAnonymous)),
      atMost: 150
    },
    {
      name: "with the pages of files that they have mapped, MB",
      value: megabytes(most(ofRelay, (sample) => sample.children))
    },
    {
      name: "growth of the relay's own process, MB",
      value: megabytes(most(ofRelay, ({ ownGrowth }) => ownGrowth)),
      atMost: 150
    }
  ]
  const report = {
    takenAt: new Date().toISOString(),
    machine: {
      cores: availableParallelism(),
      kernel: release(),
      node: process.version,
      git: (await exec("git", ["--version"])).stdout.replace("git version ", "").trim(),
      files: place === inMemory ? "in memory" : "on disk",
      "load before": load,
      rounds
    },
    repository: { ...shape, packMegabytes: megabytes(packBytes), change },
    rows: Object.values(rows).map((name) => ({
      name,
      p10: round(secondsAt(name, 0.1)),
      p50: round(secondsAt(name, 0.5)),
      p90: round(secondsAt(name, 0.9)),
      ownGrowth: megabytes(most([name], ({ ownGrowth }) => ownGrowth)),
      children: megabytes(most([name], (sample) => sample.children)),
      childrenAnonymous: megabytes(most([name], ({ childrenAnonymous }) => childrenAnonymous))
    })),
    bars
  }
  const text = [
    `${shape.files} files, ${megabytes(shape.bytes)} MB that do not compress, ${shape.commits} commits, a pack of ${megabytes(packBytes)} MB, behind \`git http-backend\` on this host. The agent's change: ${change.commits} commits, ${change.files} files, ${megabytes(change.bytes)} MB. All rows are measured in turns.`,
    Report.table(
      ["seconds; MB at most", "p10", "p50", "p90", "own growth", "children", "files' pages aside"],
      report.rows.map((row) => Object.values(row))
    ),
    Report.barTable(bars),
    Report.taken(report)
  ].join("\n\n")
  Report.publish({
    name: "relay",
    title: "The relay, measured",
    text,
    data: report,
    bars,
    directory: options.output ?? (options.quick ? undefined : join(import.meta.dirname, "results"))
  })
}

try {
  await main()
} finally {
  for (const clean of cleanUp) await clean()
}
