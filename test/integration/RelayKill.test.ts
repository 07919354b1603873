/**
 * A host process that is killed at any point of a run with a repository. A retry delivers the commits once and
 * completely, and nothing else is left behind.
 */
import { assert, describe, it } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as DockerReaper from "@cogni/sandbox-docker/DockerReaper"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import * as HostGitRelay from "@cogni/sandbox-git-relay/HostGitRelay"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import { Context, Effect, Exit, Layer, Schedule, Semaphore } from "effect"
import { spawn } from "node:child_process"
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import type { IncomingMessage, ServerResponse } from "node:http"
import { tmpdir } from "node:os"
import { basename, join } from "node:path"
import * as Engine from "../harness/Engine.ts"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as ProcessSampler from "../harness/ProcessSampler.ts"
import * as RelayProcess from "../harness/RelayProcess.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const token = `ghs_planted+and/killed=${crypto.randomUUID()}`
const forms = ProcessSampler.formsOf([{ name: "the token", secret: token }])

/** Argument of the shell that passes git the token. It lives a few milliseconds, and must be seen by the sampler. */
const helper = { name: "the helper", secret: "; f get" }

class Sampler extends Context.Service<Sampler, ProcessSampler.ProcessSampler>()("test/Sampler") {
  static readonly layer = Layer.effect(
    Sampler,
    ProcessSampler.acquire([{ name: "the token", secret: token }, helper])
  )
}

const layers = Layer.mergeAll(
  DockerContainerRuntime.layerApi(Engine.runtime),
  DockerReaper.layerApi(),
  Sampler.layer
).pipe(
  Layer.provideMerge(
    Layer.unwrap(Effect.map(RunHarness.Directory, (stateDirectory) => LeakCheck.layer({ stateDirectory })))
  ),
  Layer.provideMerge(Layer.merge(Engine.api(), RunHarness.Directory.layer))
)

/** Point at the origin: before a request is served, while it is, or when it was and its answer has not been sent. */
interface AtOrigin {
  readonly request: "GET" | "POST"
  readonly service: "upload-pack" | "receive-pack"
  /** Number of the request among those of its kind with a credential, from 1. */
  readonly index: number
  readonly when: "before" | "in a hook" | "after"
}

interface Death {
  readonly name: string
  readonly agent: RelayProcess.Agent
  readonly at: RelayProcess.Point | AtOrigin
  /** `with all it started` also kills its git and docker processes, which otherwise continue. */
  readonly dies: "alone" | "with all it started"
}

const failing: ReadonlyArray<RelayProcess.Point> = [
  "the container for uncommitted changes is made",
  "the container for uncommitted changes is started",
  "the container for uncommitted changes has ended",
  "collect is done"
]

const resting: ReadonlyArray<RelayProcess.Point> = ["discard is asked for", "discard is done"]

const inside = (agent: RelayProcess.Agent, at: RelayProcess.Point): Death => ({
  name: `${at} (the agent ${agent})`,
  agent,
  at,
  dies: "alone"
})

const outside = (dies: Death["dies"], at: AtOrigin): Death => ({
  name: `${at.when} ${at.request} ${at.service} ${at.index} (${dies})`,
  agent: "works",
  at,
  dies
})

const fetching = { request: "POST", service: "upload-pack" } as const
const pushing = { request: "POST", service: "receive-pack" } as const

const deaths: ReadonlyArray<Death> = [
  ...RelayProcess.points
    .filter((point) => !/uncommitted|discard/u.test(point))
    .map((point) => inside("works", point)),
  ...failing.map((point) => inside("fails", point)),
  ...resting.map((point) => inside("rests", point)),
  outside("with all it started", { ...fetching, index: 1, when: "before" }),
  outside("alone", { ...fetching, index: 3, when: "before" }),
  outside("with all it started", { ...fetching, index: 3, when: "after" }),
  outside("with all it started", { ...pushing, request: "GET", index: 1, when: "before" }),
  outside("with all it started", { ...pushing, index: 1, when: "before" }),
  outside("alone", { ...pushing, index: 1, when: "before" }),
  outside("with all it started", { ...pushing, index: 1, when: "in a hook" }),
  outside("alone", { ...pushing, index: 1, when: "in a hook" }),
  outside("with all it started", { ...pushing, index: 1, when: "after" }),
  outside("alone", { ...pushing, index: 1, when: "after" })
]

const isAt = ({ request, service }: AtOrigin, method: string, path: string) =>
  method === request && path.includes(`git-${service}`)

/** Buffers a response until `released`. */
const holdAnswer = (response: ServerResponse, served: () => void, released: Promise<void>) => {
  const pieces: Array<Uint8Array> = []
  const end = response.end.bind(response)
  let ended = false
  response.write = (piece: Uint8Array) => pieces.push(piece) > 0
  response.end = () => {
    served()
    if (!ended) void released.then(() => end(Buffer.concat(pieces)))
    ended = true
    return response
  }
}

/** Settles `reached` when the request arrives, and holds it until `release` has run. */
const holding = Effect.fnUntraced(function* (
  origin: GitOrigin.GitOrigin,
  repository: string,
  { at }: Death,
  forge: ReturnType<typeof RelayProcess.makeForge>
) {
  let release = () => {}
  const released = new Promise<void>((settle) => {
    release = settle
  })
  let reach = () => {}
  const reached = new Promise<void>((settle) => {
    reach = settle
  })
  let seen = 0
  const isOne = (method: string | undefined, path: string | undefined, authorization: string | undefined) => {
    if (typeof at === "string" || authorization === undefined || !isAt(at, method!, path!)) return false
    seen += 1
    return seen === at.index
  }
  origin.extra = (request: IncomingMessage, response: ServerResponse) => {
    if (forge.handle(request, response)) return true
    if (typeof at === "string" || at.when !== "after") return false
    if (isOne(request.method, request.url, request.headers.authorization))
      holdAnswer(response, reach, released)
    return false
  }
  origin.trouble = ({ authorization, method, path }) => {
    if (typeof at === "string" || at.when !== "before" || !isOne(method, path, authorization))
      return undefined
    reach()
    return { _tag: "Hold", until: released }
  }
  if (typeof at === "string" || at.when !== "in a hook")
    return { reached: Effect.promise(() => reached), release: Effect.sync(release) }
  const [mark, go] = [join(repository, "in-the-hook"), join(repository, "go-on")]
  yield* GitOrigin.hook(
    repository,
    "pre-receive",
    `[ -e ${mark} ] && exit 0; : > ${mark}; i=0
     while [ ! -e ${go} ] && [ $i -lt 6000 ]; do i=$((i+1)); sleep 0.05; done`
  )
  return {
    reached: Effect.sync(() => existsSync(mark)).pipe(
      Effect.repeat({ schedule: Schedule.spaced("10 millis"), until: Boolean }),
      Effect.asVoid
    ),
    release: Effect.sync(() => writeFileSync(go, ""))
  }
})

/** Files that the delivered commit must contain, according to the agent's last report. */
const filesOf = ({ agent, at }: Death, heard: ReadonlyArray<RelayProcess.Told>): ReadonlyArray<string> => {
  if (agent === "rests") return []
  if (heard.some(({ _tag }) => _tag === "Worked"))
    return agent === "works" ? ["one.txt", "two.txt", "three.txt"] : ["one.txt"]
  return at === "the agent is between two commits" ? ["one.txt"] : []
}

/** Delivers like `relay retry`, and retries retryable errors. Then checks that a second delivery changes nothing. */
const retried = Effect.fnUntraced(function* (runId: RunId.RunId, repository: string) {
  const relay = yield* GitRelay
  const delivered = Effect.scoped(
    Effect.gen(function* () {
      const clone = yield* relay.reopen(runId)
      const first = yield* RelayRun.deliver(clone, { deliver: "push" })
      const refs = yield* GitOrigin.refsOf(repository)
      if (first._tag !== "Pushed") return { first, refs }
      const second = yield* RelayRun.deliver(clone, { deliver: "push" })
      if (second._tag !== "Pushed") return assert.fail(`the second delivery is ${second._tag}`)
      assert.isTrue(second.unchanged, "the second delivery pushes again")
      assert.isTrue(second.pullRequest?.existing, "the second delivery opens another pull request")
      return { first, refs }
    })
  )
  const { first, refs } = yield* delivered.pipe(
    Effect.retry({ times: 3, while: ({ isRetryable }) => isRetryable })
  )
  assert.strictEqual(yield* GitOrigin.refsOf(repository), refs, "the second delivery changes refs")
  const again = yield* Effect.exit(delivered)
  assert.isTrue(Exit.isFailure(again), "commits are still kept")
  return first
})

/** Runs a host process up to its death, and returns what is known of the run then. */
const killed = Effect.fnUntraced(function* (death: Death) {
  const runId = yield* RunId.generate
  const directory = join(yield* RunHarness.Directory, runId)
  mkdirSync(directory, { mode: 0o700 })
  const origin = yield* GitOrigin.acquire({ password: token })
  const { path, url } = yield* origin.make("kill/repository", { "README.md": "hello\n" })
  const base = yield* GitOrigin.branchAt(path, "main")
  const forge = RelayProcess.makeForge(token)
  const { reached, release } = yield* holding(origin, path, death, forge)
  const point = typeof death.at === "string" ? { point: death.at } : {}
  const asked = { runId, directory, url, image: Images.runtime, agent: death.agent, ...point }
  const host = yield* RelayProcess.start(asked, token)
  yield* typeof death.at === "string"
    ? host.told("At")
    : reached.pipe(
        Effect.timeoutOrElse({
          duration: "5 minutes",
          orElse: () =>
            Effect.die(new Error(`the origin never reached that point: ${JSON.stringify(host.heard)}`))
        })
      )
  yield* host.kill(death.dies)
  assert.deepStrictEqual(yield* ProcessSampler.inTree(forms, directory), [], "the token is in a file")
  // The origin notices a dead client, except in a hook.
  if (death.dies === "alone" || (typeof death.at !== "string" && death.at.when === "in a hook"))
    yield* release
  return { death, asked, path, base, forge, heard: host.heard }
})

/** Retries in this process, which knows nothing of the dead one, and checks the outcome. */
const revived = Effect.fnUntraced(function* ({
  asked,
  base,
  death,
  forge,
  heard,
  path
}: Effect.Success<ReturnType<typeof killed>>) {
  const { directory, runId } = asked
  yield* Effect.flatMap(DockerReaper.DockerReaper, (reaper) => reaper.reap)
  const relays = RelayProcess.relayOptions(asked).directory
  const worked = heard.find((one) => one._tag === "Worked")?.tip
  const left = RelayProcess.branchInWorkspace(relays, runId) ?? worked
  const expected = left === base ? undefined : left
  const files = filesOf(death, heard)
  if (files.length > 0) assert.isDefined(expected, "the commits are lost")

  const relay = yield* GitRelay
  const kept = yield* relay.kept
  assert.isAtMost(kept.length, 1)
  if (kept.length > 0) {
    assert.isFalse(kept[0]!.inUse, "the kept commits count as in use")
    const delivery = yield* retried(runId, path)
    assert.strictEqual(delivery._tag, expected === undefined ? "Skipped" : "Pushed")
  } else if (expected === undefined) {
    // The run can start again with the cache that it left.
    const begun = Effect.tap(relay.clone({ runId, url: asked.url }), () => relay.discard(runId))
    const { baseCommit } = yield* Effect.scoped(begun).pipe(Effect.timeout("5 minutes"))
    assert.strictEqual(baseCommit, base)
  }
  assert.deepStrictEqual(yield* relay.kept, [], "commits are kept")
  assert.isFalse(existsSync(join(relays, runId)), "its directory is left behind")

  assert.strictEqual(yield* GitOrigin.branchAt(path, `sandbox/${runId}`), expected, "the branch")
  assert.strictEqual(yield* GitOrigin.branchAt(path, "main"), base, "the base branch has changed")
  yield* GitOrigin.git(path, "fsck", "--full", "--strict")
  if (expected !== undefined) {
    const there = (yield* GitOrigin.git(path, "ls-tree", "--name-only", expected)).split("\n")
    assert.includeMembers(there, [...files])
  }
  const pulls = expected === undefined ? 0 : 1
  assert.strictEqual(forge.pulls.size, pulls, "pull requests")
  assert.strictEqual(forge.asked.filter((operation) => operation === "create").length, pulls, "creations")
  const runtime = yield* ContainerRuntime
  assert.deepStrictEqual(yield* runtime.leftovers(runId), [], "containers are left behind")
  assert.deepStrictEqual(yield* ProcessSampler.inTree(forms, directory), [], "the token is in a file")
})

const survived = (death: Death) =>
  Effect.scoped(
    Effect.flatMap(killed(death), (dead) =>
      revived(dead).pipe(
        Effect.provide(
          HostGitRelay.layer(RelayProcess.relayOptions(dead.asked)).pipe(
            Layer.provide(RelayProcess.pullRequests),
            Layer.provide(RelayProcess.credentials(dead.asked, token))
          )
        )
      )
    )
  )

/** Deaths at a time. Each has its own time limit: all together take longer than one test may on a busy machine. */
const places = Semaphore.makeUnsafe(4)

it.layer(layers, { excludeTestServices: true })("a killed host process", (it) => {
  describe.concurrent("loses no commit and does not expose its token", () => {
    it.effect.each(deaths.map((death) => [death.name, death] as const))("at: %s", ([, death]) =>
      places.withPermits(1)(survived(death))
    )
  })

  it.effect("was watched all the time, and showed its token to no process", () =>
    Effect.gen(function* () {
      const { processes, sightings, sweeps } = yield* (yield* Sampler).report
      const others = sightings.filter(({ which }) => which !== `${helper.name}, plain`)
      assert.deepStrictEqual(others, [])
      // The sampler is fast enough to see processes that live a few milliseconds. A busy machine gives it fewer turns.
      const helpers = sightings.length - others.length
      assert.isAbove(helpers, deaths.length / 4, `${processes} processes in ${sweeps} sweeps`)
    })
  )
})

const secret = "not+a/real=token 0123456789"

/** Starts a process that exposes the arguments, environment and file, until the scope closes. */
const showing = (argv: ReadonlyArray<string>, env: Record<string, string>, file = "/dev/null") =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const opened = openSync(file, "w")
      const child = spawn("sh", ["-c", "read -r nothing", "sh", ...argv], {
        env,
        stdio: ["pipe", opened, "ignore"]
      })
      closeSync(opened)
      return child
    }),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  ).pipe(Effect.map(({ pid }) => pid!))

it.live("the sampler detects a secret in any place of a process and in any encoding", () =>
  Effect.gen(function* () {
    const directory = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-sampler-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
    )
    const hexadecimal = Buffer.from(secret).toString("hex")
    const login = (user: string) => Buffer.from(`${user}:${secret}\n`).toString("base64")
    const sampler = yield* ProcessSampler.acquire([{ name: "it", secret }])
    assert.deepStrictEqual((yield* sampler.report).sightings, [])
    const rows = [
      ["argv", "it, plain", yield* showing([`--token=${secret}`], {})],
      ["argv", "it, URL-encoded", yield* showing([`https://x:${encodeURIComponent(secret)}@host/`], {})],
      ["argv", "it, base64 after 2", yield* showing([login("me/xxxx")], {})],
      ["argv", "it, base64 after 1", yield* showing([login("me/xxx")], {})],
      ["environment", "it, plain", yield* showing([], { SHOWN: secret })],
      [
        "environment",
        "it, base64 after 0",
        yield* showing([], { SHOWN: `Basic ${login("x-access-token")}` })
      ],
      ["descriptor", "it, hexadecimal", yield* showing([], {}, join(directory, hexadecimal))]
    ] as const
    const { sightings } = yield* sampler.report
    for (const [where, which, processId] of rows) {
      const found = sightings.filter((one) => one.processId === processId)
      assert.deepStrictEqual(found, [{ processId, program: "sh", where, which }])
    }
    assert.notInclude(JSON.stringify(sightings), secret)

    writeFileSync(join(directory, "a"), `x ${login("x-access-token")} x`)
    symlinkSync(`/nowhere/${encodeURIComponent(secret)}`, join(directory, "b"))
    const found = yield* ProcessSampler.inTree(ProcessSampler.formsOf([{ name: "it", secret }]), directory)
    assert.sameDeepMembers(
      found.map(({ where, which }) => [basename(where), which]),
      [
        [hexadecimal, "it, hexadecimal"],
        ["a", "it, base64 after 0"],
        ["b", "it, URL-encoded"]
      ]
    )
  }).pipe(Effect.scoped)
)
