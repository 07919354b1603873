/**
 * The same library as root and as an ordinary user in the engine's group. An agent runs as the user of the host
 * process, and never as root.
 *
 * The ordinary user is a separate host process that drops root. It needs no account on the machine.
 */
import { assert, describe, it } from "@effect/vitest"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { defaultPath } from "@cogni/sandbox-docker/DockerSocket"
import { Effect } from "effect"
import { execFile } from "node:child_process"
import { chmodSync, chownSync, lstatSync, mkdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import * as HostProcess from "../harness/HostProcess.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as Pace from "../harness/Pace.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const ordinaryExecutor = fileURLToPath(new URL("../harness/OrdinaryExecutor.ts", import.meta.url))

const isRoot = process.getuid?.() === 0

/** IDs without an account. */
const user = { userId: 64_321, groupId: 64_322 }

const engineGroup = () => statSync(defaultPath).gid

/** Prints its IDs, and writes to its workspace, its home and /tmp. */
const whoami =
  "id -u; id -g; id -G; echo mine > made; mkdir -p in/side; echo x > in/side/too; echo h > ~/h; echo t > /tmp/t"

const spec = (workspace?: string): SandboxSpecInput => ({
  image: Images.runtime,
  argv: ["sh", "-c", whoami],
  limits: { runtimeSecondsMax: Pace.runSecondsMax },
  ...(workspace === undefined ? {} : { workspace: { type: "directory", path: workspace } })
})

/** Creates a state directory and a workspace that belong to `owner`. */
const directories = (owner: { readonly userId: number; readonly groupId: number }) =>
  Effect.map(RunHarness.Directory, (parent) => {
    chmodSync(parent, 0o755)
    const made = ["state", "workspace"].map((name) => {
      const path = join(parent, name)
      mkdirSync(path, { mode: 0o700 })
      chownSync(path, owner.userId, owner.groupId)
      return path
    })
    return { state: made[0]!, workspace: made[1]! }
  })

const ran = Effect.fnUntraced(function* (asked: HostProcess.Asked) {
  const host = yield* HostProcess.start(asked)
  const told = yield* host.last
  assert.deepStrictEqual(LeakCheck.directories(asked.directory), [], "left behind")
  return told
}, Effect.scoped)

const ended = Effect.fnUntraced(function* (asked: HostProcess.Asked) {
  const told = yield* ran(asked)
  assert(told._tag === "Ended", JSON.stringify(told))
  assert.strictEqual(told.result.exitCode, 0, told.result.output.stderr.text)
  return told.result
})

const ownerOf = (path: string) => {
  const { gid, uid } = lstatSync(path)
  return { userId: uid, groupId: gid }
}

describe.skipIf(!isRoot)("an ordinary user of the engine's group", () => {
  const become = { ...user, groups: [engineGroup()] }
  const asOrdinary = <A, E>(
    test: (at: {
      readonly state: string
      readonly workspace: string
    }) => Effect.Effect<A, E, RunHarness.Directory>
  ) =>
    Effect.flatMap(directories(user), test).pipe(Effect.provide(RunHarness.Directory.layer, { local: true }))

  it.live("the agent runs as that user without the engine's group, and its files belong to that user", () =>
    asOrdinary(({ state, workspace }) =>
      Effect.gen(function* () {
        const result = yield* ended({ directory: state, spec: spec(workspace), become })
        assert.strictEqual(result.output.stdout.text, `${user.userId}\n${user.groupId}\n${user.groupId}\n`)
        assert.deepStrictEqual([...new Set(result.posture.userIds)], [user.userId])
        assert.deepStrictEqual([...new Set(result.posture.groupIds)], [user.groupId])
        for (const path of ["made", "in", "in/side", "in/side/too"]) {
          assert.deepStrictEqual(ownerOf(join(workspace, path)), user, path)
        }
        assert.strictEqual(readFileSync(join(workspace, "made"), "utf8"), "mine\n")
      })
    )
  )

  it.live("a run with a fresh workspace and a model succeeds", () =>
    asOrdinary(({ state }) =>
      Effect.gen(function* () {
        const llm = { model: "demo", identity: { billingAccountId: "account" } }
        const result = yield* ended({
          directory: state,
          spec: { ...spec(), llm },
          become,
          proxyImage: Images.proxy
        })
        assert.strictEqual(result.output.stdout.text.split("\n")[0], String(user.userId))
        assert.strictEqual(result.llm?.proxy, "nginx")
        assert.strictEqual(ownerOf(result.llm!.auditPath!).userId, user.userId)
      })
    )
  )

  it.live("another user's workspace is refused, with a chown command as the remedy", () =>
    asOrdinary(({ state, workspace }) =>
      Effect.gen(function* () {
        chownSync(workspace, 1000, 1000)
        const told = yield* ran({ directory: state, spec: spec(workspace), become })
        assert(told._tag === "Failed", JSON.stringify(told))
        assert.strictEqual(told.reason, "WorkspaceFailed")
        assert.include(told.message, `chown -R ${user.userId}:${user.groupId} ${workspace}`)
      })
    )
  )

  it.live("a user outside the engine's group gets an error that explains how to join it", () =>
    asOrdinary(({ state }) =>
      Effect.gen(function* () {
        const told = yield* ran({ directory: state, spec: spec(), become: { ...become, groups: [] } })
        assert(told._tag === "Failed", JSON.stringify(told))
        assert.strictEqual(told.reason, "RuntimeUnavailable")
        assert.match(told.message, /refuses this user.*usermod -aG docker/su)
      })
    )
  )
})

describe.skipIf(!isRoot)("root", () => {
  const asRoot = <A, E>(
    owner: { readonly userId: number; readonly groupId: number },
    test: (at: {
      readonly state: string
      readonly workspace: string
    }) => Effect.Effect<A, E, RunHarness.Directory>
  ) =>
    Effect.flatMap(directories(owner), test).pipe(Effect.provide(RunHarness.Directory.layer, { local: true }))

  it.live("the agent runs as the owner of its workspace", () =>
    asRoot(user, ({ state, workspace }) =>
      Effect.gen(function* () {
        const result = yield* ended({ directory: state, spec: spec(workspace) })
        assert.strictEqual(result.output.stdout.text, `${user.userId}\n${user.groupId}\n${user.groupId}\n`)
        assert.deepStrictEqual(ownerOf(join(workspace, "in/side/too")), user)
      })
    )
  )

  it.live("the agent runs as user 1000 in a fresh workspace", () =>
    asRoot(user, ({ state }) =>
      Effect.gen(function* () {
        const result = yield* ended({ directory: state, spec: spec() })
        assert.strictEqual(result.output.stdout.text, "1000\n1000\n1000\n")
      })
    )
  )

  it.live("a workspace of root is refused, because an agent never runs as root", () =>
    asRoot({ userId: 0, groupId: 0 }, ({ state, workspace }) =>
      Effect.gen(function* () {
        const told = yield* ran({ directory: state, spec: spec(workspace) })
        assert(told._tag === "Failed", JSON.stringify(told))
        assert.match(told.message, /belongs to root.*chown -R 1000:1000/su)
      })
    )
  )
})

describe("a host executor of an ordinary user", () => {
  it.live("fails with permission_denied where that user has no access", () =>
    Effect.gen(function* () {
      const { workspace } = yield* directories(isRoot ? user : { userId: -1, groupId: -1 })
      const { stdout } = yield* Effect.promise(() =>
        promisify(execFile)(process.execPath, [ordinaryExecutor, workspace, String(user.userId)], {
          cwd: workspace
        })
      )
      assert.deepStrictEqual(JSON.parse(stdout), {
        read: "permission_denied",
        list: "permission_denied",
        write: "permission_denied",
        begin: "CommandRefused"
      })
    }).pipe(Effect.provide(RunHarness.Directory.layer))
  )
})
