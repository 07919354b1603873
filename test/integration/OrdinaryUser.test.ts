/**
 * The same library as root, and as an ordinary user of the engine's group: an agent is whoever the host process is,
 * and never root.
 *
 * The ordinary user is a host process of its own that gives up root; it needs no account on the machine.
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
import * as RunHarness from "../harness/RunHarness.ts"

const ordinaryExecutor = fileURLToPath(new URL("../harness/OrdinaryExecutor.ts", import.meta.url))

const isRoot = process.getuid?.() === 0

/** Of nobody's. */
const user = { userId: 64_321, groupId: 64_322 }

const engineGroup = () => statSync(defaultPath).gid

/** Says who it is, and writes into its workspace, its home and /tmp. */
const whoami =
  "id -u; id -g; id -G; echo mine > made; mkdir -p in/side; echo x > in/side/too; echo h > ~/h; echo t > /tmp/t"

const spec = (workspace?: string): SandboxSpecInput => ({
  image: Images.runtime,
  argv: ["sh", "-c", whoami],
  limits: { runtimeSecondsMax: 30 },
  ...(workspace === undefined ? {} : { workspace: { type: "directory", path: workspace } })
})

/** A state directory and a workspace of this owner. */
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

  it.live("the agent is that user, without the engine's group, and what it writes belongs to that user", () =>
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

  it.live("a fresh workspace, and a way to a model", () =>
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

  it.live("somebody else's workspace is refused, with the command that helps", () =>
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

  it.live("a user outside the engine's group is told how to get into it", () =>
    asOrdinary(({ state }) =>
      Effect.gen(function* () {
        const told = yield* ran({ directory: state, spec: spec(), become: { ...become, groups: [] } })
        assert(told._tag === "Failed", JSON.stringify(told))
        assert.strictEqual(told.reason, "RuntimeUnavailable")
        assert.match(told.message, /may not be used by this user.*usermod -aG docker/su)
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

  it.live("the agent becomes the owner of its workspace", () =>
    asRoot(user, ({ state, workspace }) =>
      Effect.gen(function* () {
        const result = yield* ended({ directory: state, spec: spec(workspace) })
        assert.strictEqual(result.output.stdout.text, `${user.userId}\n${user.groupId}\n${user.groupId}\n`)
        assert.deepStrictEqual(ownerOf(join(workspace, "in/side/too")), user)
      })
    )
  )

  it.live("in a fresh workspace it is user 1000", () =>
    asRoot(user, ({ state }) =>
      Effect.gen(function* () {
        const result = yield* ended({ directory: state, spec: spec() })
        assert.strictEqual(result.output.stdout.text, "1000\n1000\n1000\n")
      })
    )
  )

  it.live("root's own workspace is refused: an agent is never root", () =>
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
  it.live("is refused what that user may not touch, and says so", () =>
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
