/** Refusals of the client: states that it has not made, changed snapshots, and what a sandbox cannot have. */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createHost, type Sandbox } from "@cogni/sandbox-promise"
import {
  EnvValueReference,
  InMemoryRemoteSnapshotStore,
  Manifest,
  registerEnvValueReference
} from "@openai/agents-core/sandbox"
import { createHash } from "node:crypto"
import { mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs"
import { chmod, mkdir, readFile, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { sandboxClient, type SandboxClientOptions } from "../src/index.ts"
import { lines, program } from "./MemoryShell.ts"
import { ended, rejected, textOf, through, until } from "./SessionSuite.ts"

const host = createHost({ inMemory: program })
const directory = mkdtempSync(join(tmpdir(), "openai-agents-"))
afterAll(async () => {
  await host.close()
  rmSync(directory, { recursive: true })
})

const clientOf = (options: Partial<SandboxClientOptions> = {}) => {
  const client = sandboxClient({ host, ...options })
  return {
    ...client,
    open: (manifest: ConstructorParameters<typeof Manifest>[0] = {}) =>
      client.create({ manifest: new Manifest(manifest) }),
    stored: async (session: Awaited<ReturnType<typeof client.create>>) =>
      through(await client.serializeSessionState(session.state)),
    restored: async (state: Record<string, unknown>) =>
      await client.resume(await client.deserializeSessionState(state))
  }
}

const file = { "one/file": { type: "file", content: "made" } } as const

/** A state whose sandbox is gone, and the client that has its snapshot. */
const gone = async (options: Partial<SandboxClientOptions>) => {
  const client = clientOf(options)
  const session = await client.open({ entries: file, environment: { KEY: "sk-secret-value" } })
  const state = await client.stored(session)
  await session.close()
  return { client, state }
}

describe("a serialized state", () => {
  it("has no secret, and no path of the host", async () => {
    const { state } = await gone({ snapshot: { type: "local", baseDir: join(directory, "plain") } })
    const text = JSON.stringify(state)
    assert.notInclude(text, "sk-secret-value")
    assert.notInclude(text, directory)
    assert.deepStrictEqual(state["environmentNames"], ["KEY"])
    assert.hasAllKeys(state, [
      "sessionId",
      "environmentNames",
      "manifest",
      "snapshot",
      "snapshotFingerprint",
      "snapshotFingerprintVersion"
    ])
  })

  it("is resumed with the variables of the caller alone", async () => {
    const { client, state } = await gone({ snapshot: { type: "local", baseDir: join(directory, "names") } })
    assert.match(String(await rejected(client.restored(state))), /KEY, or set state\.environment/u)
    const parsed = await client.deserializeSessionState(state)
    parsed.environment = { KEY: "of the caller" }
    const session = await client.resume(parsed)
    assert.deepStrictEqual(session.state.environment, { KEY: "of the caller" })
    assert.strictEqual(textOf(await session.readFile({ path: "one/file" })), "made")
    await session.close()
  })

  it("is refused if it does not have the form of this client", async () => {
    const { client, state } = await gone({ snapshot: { type: "local", baseDir: join(directory, "forged") } })
    const forged: ReadonlyArray<Record<string, unknown>> = [
      {},
      { ...state, sessionId: "../../etc" },
      { ...state, sessionId: 7 },
      { ...state, environmentNames: "KEY" },
      { ...state, snapshot: { type: "local", id: "x".repeat(2000) } },
      { ...state, snapshot: { type: "elsewhere", id: "x" } },
      { ...state, snapshot: null },
      { ...state, snapshotFingerprint: null },
      { ...state, snapshotFingerprint: "0".repeat(63) },
      { ...state, snapshotFingerprintVersion: "other" },
      { ...state, manifest: null },
      { ...state, manifest: [] },
      { ...state, manifest: { root: 7 } },
      { ...state, manifest: { environment: { KEY: { type: "vault", key: "production" } } } },
      { ...state, manifest: { entries: { "../outside": { type: "file", content: "x" } } } },
      { ...state, manifest: { entries: { one: "file" } } }
    ]
    for (const one of forged) {
      const error = await rejected(client.deserializeSessionState(one))
      assert.include(
        ["SandboxConfigurationError", "SandboxInvalidManifestPathError"],
        error.name,
        JSON.stringify(one)
      )
      assert.throws(() => client.validateSessionStateForResume!({ source: "runState", state: one }))
    }
    client.validateSessionStateForResume!({ source: "runState", state })
    const parsed = await client.deserializeSessionState(state)
    const other = { ...parsed, sessionId: "me" }
    assert.throws(() => client.validateSessionStateForResume!({ source: "explicit", state: other }), /form/u)
    assert.match(String(await rejected(client.resume(other))), /form/u)
    assert.match(String(await rejected(client.delete(other))), /form/u)
  })

  it("resolves no reference to a secret that it brings along", async () => {
    let resolved = 0
    class Vault extends EnvValueReference {
      static override readonly type = "vault"
      constructor() {
        super({ ephemeral: false })
      }
      serialize() {
        return { key: "production" }
      }
      resolve() {
        resolved++
        return Promise.resolve("sk-secret-value")
      }
    }
    const unregister = registerEnvValueReference(Vault, () => new Vault())
    const client = clientOf()
    const session = await client.open({ environment: { KEY: new Vault() } })
    assert.strictEqual(session.state.environment["KEY"], "sk-secret-value")
    assert.strictEqual(resolved, 2)
    const state = await client.stored(session)
    assert.notInclude(JSON.stringify(state), "production")
    const environment = { KEY: { type: "vault", key: "production" } }
    const forged = { ...state, manifest: { ...(state["manifest"] as object), environment } }
    assert.match(String(await rejected(client.deserializeSessionState(forged))), /is a reference/u)
    assert.strictEqual(resolved, 2)
    await session.close()
    unregister()
  })

  it("leads to no other file of the host, and to no sandbox of another client", async () => {
    const baseDir = join(directory, "base")
    const { client, state } = await gone({ snapshot: { type: "local", baseDir } })
    writeFileSync(join(directory, "secret.tar"), "secret")
    const snapshotFingerprint = createHash("sha256").update("secret").digest("hex")
    for (const id of ["../secret", join(directory, "secret"), "secret", ".."]) {
      const forged = { ...state, environmentNames: [], snapshot: { type: "local", id }, snapshotFingerprint }
      assert.match(String(await rejected(client.restored(forged))), /snapshot of this state cannot be read/u)
    }
    const session = await client.open()
    const living = await client.stored(session)
    const stranger = clientOf()
    assert.match(String(await rejected(stranger.restored(living))), /this client has no local snapshots/u)
    await session.close()
  })

  it("does not make entries of its manifest again", async () => {
    const { client, state } = await gone({
      snapshot: { type: "local", baseDir: join(directory, "again") },
      localSources: [directory]
    })
    writeFileSync(join(directory, "host-file"), "of the host")
    const entries = { stolen: { type: "local_file", src: join(directory, "host-file") } }
    const session = await client.restored({ ...state, environmentNames: [], manifest: { entries } })
    assert.isFalse(await session.pathExists("stolen"))
    await session.close()
  })
})

describe("a snapshot", () => {
  it("is a file that only this user can read, and the next one replaces it", async () => {
    const baseDir = join(directory, "files")
    const client = clientOf({ snapshot: { type: "local", baseDir } })
    const session = await client.open({ entries: file })
    // Two at the same time leave no snapshot behind either.
    await Promise.all([client.stored(session), client.stored(session)])
    const state = await client.stored(session)
    const [name, ...others] = readdirSync(baseDir)
    assert.deepStrictEqual(others, [])
    assert.strictEqual(statSync(join(baseDir, name!)).mode & 0o777, 0o600)
    assert.strictEqual(name, `${(state["snapshot"] as { id: string }).id}.tar`)
    await client.delete(await client.deserializeSessionState(state))
    assert.deepStrictEqual(readdirSync(baseDir), [])
    assert.isFalse(await session.running())
  })

  it("is not restored if it has changed, is gone, or is a link", async () => {
    const baseDir = join(directory, "changed")
    const { client, state } = await gone({ snapshot: { type: "local", baseDir } })
    const path = join(baseDir, readdirSync(baseDir)[0]!)
    const known = { ...state, environmentNames: [] }
    const archive = await readFile(path)
    await writeFile(path, "changed")
    assert.match(
      String(await rejected(client.restored(known))),
      /not the one that this state was serialized with/u
    )
    rmSync(path)
    assert.match(String(await rejected(client.restored(known))), /cannot be read/u)
    await writeFile(path, archive)
    await (await client.restored(known)).close()
    const small = clientOf({ snapshot: { type: "local", baseDir }, archiveBytesMax: 10 })
    await rejected(small.restored(known))
  })

  it("is not stored in a directory that other users can write", async () => {
    const baseDir = join(directory, "open")
    await mkdir(baseDir)
    // The umask would take the bit away.
    await chmod(baseDir, 0o777)
    const client = clientOf({ snapshot: { type: "local", baseDir } })
    const session = await client.open()
    const error = await rejected(client.stored(session))
    assert.strictEqual(error.name, "SandboxSnapshotPersistError")
    assert.match(error.message, /only this user can write/u)
    await session.close()
  })

  it("in a store is read only with its digest", async () => {
    const store = new InMemoryRemoteSnapshotStore()
    const snapshot = { type: "remote", id: "fixed", store, metadata: { team: "red" } }
    const { client, state } = await gone({ snapshot })
    const known = { ...state, environmentNames: [] }
    const guessed = { ...known, snapshotFingerprint: "0".repeat(64) }
    await rejected(client.restored(guessed))
    await rejected(client.delete(await client.deserializeSessionState(guessed)))
    await (await client.restored(known)).close()
    const small = clientOf({ snapshot, archiveBytesMax: 10 })
    assert.match(String(await rejected(small.restored(known))), /at most 10 are read/u)
    await client.delete(await client.deserializeSessionState(known))
    await rejected(store.load({ id: "fixed" }))
  })

  it("needs a complete spec of a known type", () => {
    for (const snapshot of [
      { type: "local" },
      { type: "local", baseDir: "relative" },
      { type: "remote" },
      { type: "remote", store: {} },
      { type: "cloud" }
    ]) {
      assert.throws(() => sandboxClient({ host, snapshot }), undefined, undefined, JSON.stringify(snapshot))
    }
    for (const archiveBytesMax of [0, -1, 1.5, Number.NaN]) {
      assert.throws(() => sandboxClient({ host, archiveBytesMax }), /whole number/u)
    }
  })

  it("larger than the limit is not stored, and the state keeps the one before", async () => {
    const snapshot = { type: "remote", store: new InMemoryRemoteSnapshotStore() }
    const client = clientOf({ snapshot, archiveBytesMax: 500 })
    const session = await client.open()
    const before = await client.stored(session)
    const content = "x".repeat(1000)
    await session.materializeEntry({ path: "large", entry: { type: "file", content } })
    const error = await rejected(client.stored(session))
    assert.strictEqual(error.name, "SandboxSnapshotPersistError")
    assert.match(error.message, /larger than 500 bytes/u)
    await session.close()
    const restored = await client.restored(before)
    assert.isFalse(await restored.pathExists("large"))
    await restored.close()
  })
})

describe("a sealed sandbox", () => {
  const { open } = clientOf()
  let session: Awaited<ReturnType<typeof open>>
  beforeAll(async () => {
    session = await open()
  })
  afterAll(() => session.close())

  it("rejects with Unsupported what it cannot have, and makes nothing", async () => {
    const good = { good: { type: "file", content: "x" } } as const
    const refused: ReadonlyArray<ConstructorParameters<typeof Manifest>[0]> = [
      { root: "/elsewhere" },
      { users: ["other"] },
      { groups: [{ name: "others" }] },
      { extraPathGrants: [{ path: "/data" }] },
      { entries: { ...good, repo: { type: "git_repo", repo: "owner/name" } } },
      { entries: { ...good, data: { type: "s3_mount", bucket: "data" } } },
      { entries: { ...good, data: { type: "mount", source: "/etc" } } },
      { entries: { ...good, owned: { type: "dir", group: { name: "others" } } } },
      { entries: { ...good, host: { type: "local_file", src: "/etc/passwd" } } },
      { entries: { ...good, host: { type: "local_dir", src: "." } } }
    ]
    for (const init of refused) {
      const manifest = new Manifest(init)
      const error = await rejected(session.applyManifest(manifest))
      assert.include(error, { _tag: "Unsupported" }, JSON.stringify(init))
      assert.isFalse(await session.pathExists("good"))
      if (init?.entries?.["host"] === undefined) {
        assert.include(await rejected(clientOf().open(init)), { _tag: "Unsupported" })
      }
    }
    const asked = [
      session.resolveExposedPort(80),
      session.exec({ cmd: lines.where, runAs: "root" }),
      session.execCommand({ cmd: lines.where, runAs: "root" }),
      session.readFile({ path: "x", runAs: "root" }),
      session.listDir({ path: "x", runAs: "root" }),
      session.viewImage({ path: "x", runAs: "root" }),
      session.pathExists("x", "root"),
      session.directoryExists("x", "root"),
      session.materializeEntry({ path: "x", entry: { type: "dir" }, runAs: "root" }),
      session.applyManifest(new Manifest(), "root")
    ]
    for (const error of await Promise.all(asked.map(rejected))) assert.include(error, { _tag: "Unsupported" })
    assert.throws(() => session.createEditor("root"), /runAs is not supported/u)
    const client = sandboxClient({ host })
    assert.include(await rejected(client.create({ options: { exposedPorts: [80] } })), {
      _tag: "Unsupported"
    })
    assert.include(await rejected(client.create({ snapshot: { type: "cloud" } })), { _tag: "Unsupported" })
  })

  it("copies from the named directories of the host, and follows no link out of them", async () => {
    const root = join(directory, "source")
    await mkdir(join(root, "deep"), { recursive: true })
    writeFileSync(join(root, "deep/file"), "copied")
    writeFileSync(join(root, "top"), "top")
    const own = await clientOf({ localSources: [root] }).open({
      entries: {
        whole: { type: "local_dir", src: root },
        one: { type: "local_file", src: join(root, "deep/file") }
      }
    })
    assert.strictEqual(textOf(await own.readFile({ path: "whole/deep/file" })), "copied")
    assert.strictEqual(textOf(await own.readFile({ path: "whole/top" })), "top")
    assert.strictEqual(textOf(await own.readFile({ path: "one" })), "copied")
    symlinkSync("top", join(root, "inside"))
    const linked = { type: "local_dir", src: root } as const
    const refusal = await rejected(own.materializeEntry({ path: "linked", entry: linked }))
    assert.match(String(refusal), /"inside" is a link/u)
    symlinkSync("/etc/passwd", join(root, "away"))
    for (const src of [
      join(root, "away"),
      root,
      join(root, "../secret.tar"),
      `${root}-other`,
      join(root, "none")
    ]) {
      const type = src === root ? "local_dir" : "local_file"
      await rejected(own.materializeEntry({ path: "copied", entry: { type, src } }))
    }
    assert.isFalse(await own.pathExists("copied/away"))
    await own.close()
  })

  it("does not replace a workspace that is a directory of the host", async () => {
    const path = join(directory, "workspace")
    await mkdir(path)
    const client = sandboxClient({ host, sandbox: { workspace: { type: "directory", path } } })
    const own = await client.create()
    const error = await rejected(own.hydrateWorkspace(await own.persistWorkspace()))
    assert.include(error, { _tag: "Unsupported" })
    await own.close()
  })

  it("tells a model why a command is refused, and starts at most 64 at the same time", async () => {
    assert.match(
      await session.execCommand({ cmd: lines.where, workdir: "/etc" }),
      /exited with code 126\nOutput:\nSandbox path "\/etc" escapes/u
    )
    assert.match(await session.execCommand({ cmd: lines.where, workdir: "none" }), /exited with code 126\n/u)
    const own = await clientOf().open()
    const all = await Promise.all(
      Array.from({ length: 70 }, () => own.execCommand({ cmd: lines.cat, yieldTimeMs: 1 }))
    )
    assert.strictEqual(all.filter((said) => said.includes("running with session ID")).length, 64)
    assert.strictEqual(all.filter((said) => said.includes("64 commands are running")).length, 6)
    await own.stop()
    assert.strictEqual((await ended(own, lines.both)).exitCode, 3)
    await own.close()
  })

  it("forgets commands that ended unread when there is no room", async () => {
    const own = await clientOf().open()
    const { sessionId } = await own.exec({ cmd: lines.sleeps, yieldTimeMs: 1 })
    await until(own, sessionId!, "Process running")
    for (let at = 0; at < 100; at++) await own.exec({ cmd: lines.where, yieldTimeMs: 0 })
    assert.include(await own.writeStdin({ sessionId: sessionId!, yieldTimeMs: 1 }), "Process running")
    await own.close()
  })

  it("refuses input that a command does not read", async () => {
    const { sessionId } = await session.exec({ cmd: lines.sleeps, yieldTimeMs: 1 })
    const chars = "x".repeat(1024 * 1024)
    await session.writeStdin({ sessionId: sessionId!, chars, yieldTimeMs: 1 })
    let said = ""
    for (let at = 0; at < 20 && !said.includes("at most"); at++) {
      said = await session.writeStdin({ sessionId: sessionId!, chars, yieldTimeMs: 1 })
    }
    assert.match(said, /has not read \d+ bytes of its standard input/u)
    await session.stop()
  })

  it("is over when it is closed, and is not started again", async () => {
    const client = clientOf()
    const own = await client.open()
    const state = await client.deserializeSessionState(await client.stored(own))
    assert.isTrue(client.canReusePreservedOwnedSession!(state))
    await own.start()
    await Promise.all([own.shutdown(), own.delete(), own.close()])
    await own.stop()
    assert.isFalse(await own.running())
    assert.isFalse(client.canReusePreservedOwnedSession!(state))
    assert.match(String(await rejected(own.start())), /Resume its state/u)
    const asked = [
      own.exec({ cmd: lines.where }),
      own.execCommand({ cmd: lines.where }),
      own.readFile({ path: "x" })
    ]
    for (const error of await Promise.all(asked.map(rejected))) assert.include(error, { _tag: "Closed" })
  })

  it("is closed when its sandbox is over, although the SDK has dropped it", async () => {
    const over = Promise.withResolvers<undefined>()
    const sandboxes: Array<Sandbox> = []
    const client = sandboxClient({
      host: {
        createSandbox: async (options) => {
          const sandbox = await host.createSandbox(options)
          sandboxes.push(sandbox)
          return { ...sandbox, ended: over.promise }
        }
      }
    })
    const { state } = await client.create()
    over.resolve(undefined)
    assert.isUndefined(await sandboxes[0]!.ended)
    assert.isFalse(await client.canReusePreservedOwnedSession!(state))
  })

  it("is removed if its manifest cannot be made", async () => {
    const closed = createHost({ inMemory: program })
    let opened = 0
    let over = 0
    const client = sandboxClient({
      host: {
        createSandbox: async (options) => {
          const sandbox = await closed.createSandbox(options)
          opened++
          void sandbox.ended.then(() => over++)
          const close = async () => {
            await sandbox.close()
            throw new Error("the release failed as well")
          }
          return { ...sandbox, close }
        }
      },
      localSources: [directory]
    })
    const entries = { missing: { type: "local_file", src: join(directory, "missing") } } as const
    assert.notInclude(String(await rejected(client.create({ manifest: { entries } }))), "the release failed")
    assert.deepStrictEqual([opened, over], [1, 1])
    await closed.close()
  })
})
