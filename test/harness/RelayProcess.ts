/**
 * A separate host process that executes one run with a repository, and stops at a named point, where a test kills it.
 *
 * The first half starts the process, passes the token on stdin, and reads its messages, one JSON value per line. The
 * second half is the program: the real relay, whose ports report the point before and after each call.
 */
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { formatOwner, label } from "@cogni/sandbox-core/ResourceLabels"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as CredentialUse from "../../packages/git-relay/src/internal/git/CredentialUse.ts"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { type Clone } from "@cogni/sandbox-git-relay/RelaySteps"
import { PullRequestFailed } from "@cogni/sandbox-git-relay/GitRelayError"
import * as HostGitRelay from "@cogni/sandbox-git-relay/HostGitRelay"
import { PullRequests, type PullRequestTarget } from "@cogni/sandbox-git-relay/forge/PullRequests"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import * as RelaySteps from "@cogni/sandbox-git-relay/RelaySteps"
import * as DeliveryRecord from "@cogni/sandbox-git-relay/DeliveryRecord"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, Layer, Redacted, Schedule, type Scope, Stream } from "effect"
import { spawn } from "node:child_process"
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import type { IncomingMessage, ServerResponse } from "node:http"
import { join } from "node:path"
import { createInterface } from "node:readline"
import * as Engine from "./Engine.ts"
import * as LinkedPrograms from "./LinkedPrograms.ts"

/** Behaviour of the agent: two commits and a change, one commit and a change before it fails, or nothing. */
export type Agent = "works" | "fails" | "rests"

/** Points where the process can stop, in the order of a run. */
export const points = [
  "clone is asked for",
  "the credential of the first fetch",
  "the credential of the second fetch",
  "clone is done",
  "the agent may begin",
  "the agent is between two commits",
  "the agent is done",
  "the container for uncommitted changes is made",
  "the container for uncommitted changes is started",
  "the container for uncommitted changes has ended",
  "collect is asked for",
  "the exporter is made",
  "the exporter is started",
  "the exporter has written",
  "the exporter has ended",
  "collect is done",
  "check is done",
  "the credential of the first push",
  "the credential of the second push",
  "push is done",
  "the credential of a pull request",
  "find is done",
  "create is asked for",
  "create is done",
  "openPullRequest is done",
  "discard is asked for",
  "discard is done",
  "all is done"
] as const

export type Point = (typeof points)[number]

export interface Asked {
  readonly runId: RunId
  /** Directory of the relay: see {@link relayOptions}. */
  readonly directory: string
  readonly url: string
  readonly image: string
  readonly agent: Agent
  /** Point where the process stops permanently; `undefined` for none. */
  readonly point?: Point | undefined
}

export type Told =
  | { readonly _tag: "Started"; readonly processId: number }
  /** The agent has ended, with its branch at this commit. */
  | { readonly _tag: "Worked"; readonly tip: string }
  | { readonly _tag: "At"; readonly point: Point }
  | { readonly _tag: "Ended"; readonly record: DeliveryRecord.DeliveryRecord }
  | { readonly _tag: "Failed"; readonly message: string }

export interface RelayProcess {
  readonly processId: number
  /** All messages so far. */
  readonly heard: ReadonlyArray<Told>
  /** The first message with this tag. A defect if the process ends without it, or does not send it in time. */
  readonly told: <T extends Told["_tag"]>(tag: T) => Effect.Effect<Extract<Told, { readonly _tag: T }>>
  /** Sends SIGKILL to the process, or also to all its descendants, and waits until they are gone. */
  readonly kill: (what: "alone" | "with all it started") => Effect.Effect<void>
}

/** Longest wait for any message. */
const patience = "5 minutes"

export const relayOptions = (
  asked: Pick<Asked, "directory" | "image">
): HostGitRelay.HostGitRelayOptions => ({
  directory: join(asked.directory, "relays"),
  cache: { directory: join(asked.directory, "mirrors") },
  image: asked.image,
  owners: HostOwner
})

export const credentials = ({ url }: Pick<Asked, "url">, token: string) =>
  GitCredentials.layerTokens([{ server: url, username: "x-access-token", token: Redacted.make(token) }])

/** Reads the commit of the run's branch from the file in its workspace; `undefined` if the branch does not exist. */
export const branchInWorkspace = (relays: string, runId: RunId): string | undefined => {
  const path = join(relays, runId, "workspace", "repo", ".git", "refs", "heads", "sandbox", runId)
  try {
    return readFileSync(path, "utf8").trim()
  } catch {
    return undefined
  }
}

/** Makes a forge that outlives its clients: `handle` serves it below `/forge` of an origin's server. */
export const makeForge = (token: string) => {
  const pulls = new Map<string, { readonly url: string; readonly number: number }>()
  const asked: Array<string> = []
  const respond = async (request: IncomingMessage, response: ServerResponse) => {
    const pieces: Array<Buffer> = []
    for await (const piece of request) pieces.push(piece as Buffer)
    const target: PullRequestTarget = JSON.parse(Buffer.concat(pieces).toString("utf8"))
    const key = `${target.baseBranch} ${target.branch}`
    const operation = request.url!.slice("/forge/".length)
    asked.push(operation)
    const there = pulls.get(key)
    if (request.headers.authorization !== `Bearer ${token}`) return response.writeHead(401).end()
    if (operation === "create") {
      if (there !== undefined) return response.writeHead(422).end()
      pulls.set(key, { url: `${target.url}/pull/1`, number: 1 })
    }
    return response
      .writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify(pulls.get(key) ?? null))
  }
  return {
    pulls,
    asked,
    handle: (request: IncomingMessage, response: ServerResponse): boolean => {
      if (request.url?.startsWith("/forge/") !== true) return false
      void respond(request, response)
      return true
    }
  }
}

/** `PullRequests` for that forge, with the credential that the relay would use. */
export const pullRequests = Layer.effect(
  PullRequests,
  Effect.map(GitCredentials.GitCredentials, (credentials) => {
    const ask = (operation: "find" | "create", target: PullRequestTarget) =>
      credentials.get({ url: target.url, purpose: "pull_request" }).pipe(
        Effect.flatMap((credential) =>
          Effect.tryPromise(async () => {
            const response = await fetch(new URL(`/forge/${operation}`, target.url), {
              method: "POST",
              headers: { authorization: `Bearer ${CredentialUse.apiToken(credential!)}` },
              body: JSON.stringify(target)
            })
            if (!response.ok) throw new Error(`status ${response.status}`)
            return (await response.json()) as { readonly url: string; readonly number: number } | null
          })
        ),
        Effect.mapError(
          (error) => new PullRequestFailed({ detail: String(error), remedy: "Look", isRetryable: false })
        ),
        Effect.scoped
      )
    return PullRequests.of({
      find: (target) => Effect.map(ask("find", target), (found) => found ?? undefined),
      create: (target) => Effect.map(ask("create", target), (made) => made!)
    })
  })
)

const statOf = (processId: number): { readonly state: string; readonly parentId: number } | undefined => {
  try {
    const text = readFileSync(`/proc/${processId}/stat`, "latin1")
    const [state = "X", parentId] = text.slice(text.lastIndexOf(")") + 2).split(" ")
    return { state, parentId: Number(parentId) }
  } catch {
    return undefined
  }
}

const isAlive = (processId: number): boolean => !/^[ZX]$/u.test(statOf(processId)?.state ?? "X")

/** Lists a process and all its descendants, parents first. */
const familyOf = (processId: number): ReadonlyArray<number> => {
  const parents = readdirSync("/proc")
    .map(Number)
    .filter((id) => id > 0)
    .map((id) => ({ id, parentId: statOf(id)?.parentId }))
  const family = [processId]
  for (const one of family)
    family.push(...parents.filter(({ parentId }) => parentId === one).map(({ id }) => id))
  return family
}

const signal = (processId: number): void => {
  try {
    process.kill(processId, "SIGKILL")
  } catch {
    // The process has already ended.
  }
}

/** Starts the process with the token on its stdin. Its remaining descendants are killed when the scope closes. */
export const start = (asked: Asked, token: string): Effect.Effect<RelayProcess, never, Scope.Scope> =>
  Effect.gen(function* () {
    const left = new Set<number>()
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(
          process.execPath,
          [
            "--disable-warning=ExperimentalWarning",
            LinkedPrograms.pathOf(import.meta.filename),
            JSON.stringify(asked)
          ],
          {
            stdio: ["pipe", "pipe", "inherit"],
            env: { PATH: "/usr/local/bin:/usr/bin:/bin", ...LinkedPrograms.environment, ...Engine.variables }
          }
        )
      ),
      (made) =>
        Effect.sync(() => {
          for (const processId of made.exitCode === null && made.signalCode === null
            ? familyOf(made.pid!)
            : left)
            signal(processId)
        })
    )
    child.stdin.on("error", () => undefined)
    child.stdin.write(`${token}\n`)
    const heard: Array<Told> = []
    const listeners = new Set<() => void>()
    let closed = false
    const change = () => {
      for (const listener of listeners) listener()
    }
    const lines = createInterface({ input: child.stdout })
    lines.on("line", (line) => {
      // Other lines are logs.
      if (!line.startsWith("{")) return
      heard.push(JSON.parse(line))
      change()
    })
    lines.once("close", () => {
      closed = true
      change()
    })
    const told: RelayProcess["told"] = (tag) =>
      Effect.callback<Extract<Told, { readonly _tag: typeof tag }>>((resume) => {
        const listener = () => {
          const found = heard.find(
            (one): one is Extract<Told, { readonly _tag: typeof tag }> => one._tag === tag
          )
          if (found !== undefined) resume(Effect.succeed(found))
          else if (closed) resume(Effect.die(new Error(`the process ended: ${JSON.stringify(heard)}`)))
        }
        listeners.add(listener)
        listener()
        return Effect.sync(() => listeners.delete(listener))
      }).pipe(
        Effect.timeoutOrElse({
          duration: patience,
          orElse: () => Effect.die(new Error(`not ${tag} in ${patience}: ${JSON.stringify(heard)}`))
        })
      )
    const { processId } = yield* told("Started")
    const kill: RelayProcess["kill"] = (what) =>
      Effect.sync(() => {
        const family = familyOf(processId)
        for (const one of what === "alone" ? [processId] : family) signal(one)
        // Its children are in their own process groups, so they survive until they are killed here.
        if (what === "alone") for (const one of family.slice(1)) left.add(one)
        return what === "alone" ? [processId] : family
      }).pipe(
        Effect.flatMap((killed) =>
          Effect.sync(() => killed.some(isAlive)).pipe(
            Effect.repeat({ schedule: Schedule.spaced("5 millis"), while: Boolean, times: 2000 })
          )
        ),
        Effect.asVoid
      )
    return { processId, heard, told, kill }
  })

const tell = (told: Told) => Effect.sync(() => void process.stdout.write(`${JSON.stringify(told)}\n`))

/** Reports a point, and stops there if it is the requested one. */
type Pass = (point: Point) => Effect.Effect<void>

/** Reports the first commit, and waits for the file `go`. */
const waits = "echo committed; timeout 30 sh -c 'until [ -e /workspace/go ]; do sleep 0.02; done'"
const scripts: Readonly<Record<Agent, string>> = {
  works: `echo one > one.txt; git add --all; git commit -qm one; ${waits}
    echo two > two.txt; git add --all; git commit -qm two; echo three > three.txt`,
  fails: `echo one > one.txt; git add --all; git commit -qm one; ${waits}; echo two > two.txt; exit 3`,
  rests: waits
}

/** Runs the agent in a container with the labels of a run, so that a reaper finds it. Returns the exit code. */
const agentIn = (asked: Asked, { workspacePath }: Clone, pass: Pass): Effect.Effect<number> =>
  Effect.gen(function* () {
    const labels = { [label.run]: asked.runId, [label.owner]: formatOwner(HostOwner.self()) }
    const child = spawn(
      "docker",
      [
        ..."run --rm --network none --user 1000:1000 --env HOME=/tmp".split(" "),
        ...Object.entries(labels).flatMap(([name, value]) => ["--label", `${name}=${value}`]),
        "--volume",
        `${workspacePath}:/workspace`,
        "--entrypoint",
        RelaySteps.repositoryProgram,
        asked.image,
        ...(asked.agent === "fails" ? [] : ["--commit", "left"]),
        "--",
        "sh",
        "-euc",
        scripts[asked.agent]
      ],
      { stdio: ["ignore", "pipe", "inherit"] }
    )
    const exited = new Promise<number>((settle) => void child.once("exit", (code) => settle(code ?? -1)))
    yield* Effect.promise(() => new Promise((settle) => void child.stdout.once("data", settle)))
    yield* pass("the agent is between two commits")
    yield* Effect.sync(() => writeFileSync(join(workspacePath, "go"), ""))
    return yield* Effect.promise(() => exited)
  })

const use = (asked: Asked, pass: Pass) => (clone: Clone, began: Effect.Effect<void>) =>
  Effect.gen(function* () {
    yield* began
    yield* pass("the agent may begin")
    const exitCode = yield* agentIn(asked, clone, pass)
    const tip = branchInWorkspace(relayOptions(asked).directory, asked.runId)
    if (tip !== undefined) yield* tell({ _tag: "Worked", tip })
    yield* pass("the agent is done")
    return { succeeded: exitCode === 0 }
  })

/** The relay, with points around the operations that other ports do not show. */
const relay = (pass: Pass) =>
  Layer.effect(
    GitRelay,
    Effect.map(GitRelay, (inner) =>
      GitRelay.of({
        ...inner,
        clone: (request) =>
          pass("clone is asked for").pipe(
            Effect.andThen(inner.clone(request)),
            Effect.tap(pass("clone is done"))
          ),
        collect: (clone, options) =>
          pass("collect is asked for").pipe(
            Effect.andThen(inner.collect(clone, options)),
            Effect.tap(pass("collect is done"))
          ),
        check: (collected) => Effect.tap(inner.check(collected), pass("check is done")),
        push: (checked) => Effect.tap(inner.push(checked), pass("push is done")),
        openPullRequest: (pushed, text) =>
          Effect.tap(inner.openPullRequest(pushed, text), pass("openPullRequest is done")),
        discard: (runId) =>
          pass("discard is asked for").pipe(
            Effect.andThen(inner.discard(runId)),
            Effect.tap(pass("discard is done"))
          )
      })
    )
  )

/** The credentials, with a point after each is minted and before git gets it. */
const announcedCredentials = (pass: Pass) =>
  Layer.effect(
    GitCredentials.GitCredentials,
    Effect.map(GitCredentials.GitCredentials, (inner) => {
      const times = { fetch: 0, push: 0, pull_request: 0 }
      return GitCredentials.GitCredentials.of({
        get: (request) =>
          Effect.tap(inner.get(request), () => {
            const { purpose } = request
            times[purpose] += 1
            if (purpose === "pull_request")
              return times[purpose] === 1 ? pass("the credential of a pull request") : Effect.void
            if (times[purpose] > 2) return Effect.void
            return pass(`the credential of the ${times[purpose] === 1 ? "first" : "second"} ${purpose}`)
          })
      })
    })
  )

const announcedForge = (pass: Pass) =>
  Layer.effect(
    PullRequests,
    Effect.map(PullRequests, (inner) =>
      PullRequests.of({
        find: (target) => Effect.tap(inner.find(target), pass("find is done")),
        create: (target, text) =>
          pass("create is asked for").pipe(
            Effect.andThen(inner.create(target, text)),
            Effect.tap(pass("create is done"))
          )
      })
    )
  )

/** The runtime, with points for the relay's containers: the exporter of commits, and the one that commits leftovers. */
const announcedRuntime = (pass: Pass) =>
  Layer.effect(
    ContainerRuntime,
    Effect.map(ContainerRuntime, (inner) =>
      ContainerRuntime.of({
        ...inner,
        acquire: Effect.fnUntraced(function* (spec) {
          const exports = spec.argv.includes("export")
          const container = yield* inner.acquire(spec)
          const at = (what: "made" | "started" | "ended") =>
            exports
              ? pass(what === "ended" ? "the exporter has ended" : `the exporter is ${what}`)
              : pass(
                  what === "ended"
                    ? "the container for uncommitted changes has ended"
                    : `the container for uncommitted changes is ${what}`
                )
          yield* at("made")
          let first = true
          return {
            ...container,
            start: Effect.tap(container.start, at("started")),
            output: Stream.tap(container.output, ({ channel }) => {
              if (!exports || !first || channel !== "stdout") return Effect.void
              first = false
              return pass("the exporter has written")
            }),
            exit: Effect.tap(container.exit, at("ended"))
          }
        })
      })
    )
  )

const program = (asked: Asked, token: string) => {
  const pass: Pass = (point) =>
    point === asked.point ? Effect.andThen(tell({ _tag: "At", point }), Effect.never) : Effect.void
  const known = announcedCredentials(pass).pipe(Layer.provide(credentials(asked, token)))
  const layers = relay(pass).pipe(
    Layer.provide(HostGitRelay.layer(relayOptions(asked))),
    Layer.provide(announcedForge(pass).pipe(Layer.provide(pullRequests))),
    Layer.provide(announcedRuntime(pass).pipe(Layer.provide(DockerContainerRuntime.layer(Engine.options)))),
    Layer.provide(known)
  )
  const { runId, url } = asked
  return RelayRun.around(
    { runId, url, deliver: "push", createPr: true, uncommittedMessage: RelaySteps.defaultUncommittedMessage },
    use(asked, pass)
  ).pipe(
    Effect.tap(pass("all is done")),
    Effect.flatMap(({ delivery }) => tell({ _tag: "Ended", record: DeliveryRecord.recordOf(delivery) })),
    Effect.provide(layers),
    Effect.catch((error) => tell({ _tag: "Failed", message: error.message }))
  )
}

if (import.meta.main) {
  const asked: Asked = JSON.parse(process.argv[2]!)
  const lines = createInterface({ input: process.stdin })
  NodeRuntime.runMain(
    Effect.gen(function* () {
      const token = yield* Effect.promise(
        () => new Promise<string>((settle) => void lines.once("line", settle))
      )
      yield* tell({ _tag: "Started", processId: process.pid })
      yield* program(asked, token)
      yield* Effect.sync(() => lines.close())
    })
  )
}
