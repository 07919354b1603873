/**
 * The promises of the SDK's sandbox sessions, by title. They run over sandboxes in memory, sandboxes on Docker, and the
 * SDK's own client for local directories, so that they are the SDK's promises and not ours.
 */
import { assert } from "@effect/vitest"
import {
  InMemoryRemoteSnapshotStore,
  Manifest,
  type SandboxClient,
  type SandboxExecResult,
  type SandboxSession,
  type SandboxSessionState
} from "@openai/agents-core/sandbox"
import * as Pace from "../../../test/harness/Pace.ts"
import { lines } from "./MemoryShell.ts"

/** All members of a session. */
export type WholeSession = Required<
  Omit<SandboxSession, "registerPreStopHook" | "runPreStopHooks" | "preStop" | "start" | "running" | "state">
> &
  Pick<SandboxSession, "start" | "running" | "state">

/** A client to test. */
export interface Subject {
  readonly client: (
    snapshot:
      | { readonly type: "remote"; readonly store: InMemoryRemoteSnapshotStore }
      | { readonly type: "noop" }
  ) => Required<
    Pick<
      // The state belongs to the client.
      SandboxClient<Record<string, unknown>, any>,
      "create" | "resume" | "serializeSessionState" | "deserializeSessionState"
    >
  >
  /** Whether commands are run by a real shell. */
  readonly isReal: boolean
  /** Whether the sandbox has its own files: a mode, a link. The SDK's archive has neither. */
  readonly keepsModes: boolean
}

/** A command that should end is waited for until a hang is certain. */
const endMillis = Pace.hangMillis / 2

export const bytesOf = (text: string) => new TextEncoder().encode(text)

export const textOf = (content: string | Uint8Array) =>
  typeof content === "string" ? content : new TextDecoder().decode(content)

export const rejected = async (
  promise: PromiseLike<unknown>
): Promise<Error & { readonly _tag?: string }> => {
  try {
    await promise
  } catch (error) {
    return error as Error
  }
  return assert.fail("it did not reject")
}

export const ended = (session: WholeSession, cmd: string): Promise<SandboxExecResult> =>
  session.exec({ cmd, yieldTimeMs: endMillis })

/** Polls a running command until it has said these words. Returns all that it has said. */
export const until = async (session: WholeSession, sessionId: number, words: string): Promise<string> => {
  let said = ""
  while (!said.includes(words)) {
    const answer = await session.writeStdin({ sessionId, yieldTimeMs: 250 })
    if (answer.includes("session not found")) return assert.fail(`it ended without ${words}: ${said}`)
    said += answer
  }
  return said
}

/** Starts a command that goes on, and waits until it says that it does. */
const started = async (session: WholeSession, cmd: string, words: string): Promise<number> => {
  const { output, sessionId } = await session.exec({ cmd, yieldTimeMs: 1 })
  if (sessionId === undefined) return assert.fail(`it has ended: ${output}`)
  if (!output.includes(words)) await until(session, sessionId, words)
  return sessionId
}

type Promises = Readonly<Record<string, (session: WholeSession, subject: Subject) => Promise<void>>>

const commandPromises: Promises = {
  "runs a command in the root of the manifest, and reports both outputs and the exit code": async (
    session
  ) => {
    const both = await ended(session, lines.both)
    assert.include(both, { stdout: "out", stderr: "err", exitCode: 3 })
    assert.sameMembers(both.output.match(/out|err/gu) ?? [], ["out", "err"])
    assert.isUndefined(both.sessionId)
    assert.isAtLeast(both.wallTimeSeconds, 0)
    assert.strictEqual((await ended(session, lines.where)).stdout, `${session.state.manifest.root}\n`)
    const text = await session.execCommand({ cmd: lines.both, yieldTimeMs: endMillis })
    assert.match(
      text,
      /^Chunk ID: [0-9a-f]{6}\nWall time: [\d.]+ seconds\nProcess exited with code 3\nOutput:\n/u
    )
  },

  "starts a command in a directory of the workspace, and refuses one outside": async (session) => {
    await session.materializeEntry({ path: "inner/deep/file", entry: { type: "file", content: "" } })
    const root = session.state.manifest.root
    for (const [workdir, found] of [
      ["inner/deep", `${root}/inner/deep`],
      [`${root}/inner`, `${root}/inner`],
      ["", root]
    ] as const) {
      const { stdout } = await session.exec({ cmd: lines.where, workdir, yieldTimeMs: endMillis })
      assert.strictEqual(stdout, `${found}\n`)
    }
    for (const workdir of ["/etc", "../etc"]) {
      assert.match(String(await rejected(session.exec({ cmd: lines.where, workdir }))), /escape/u)
    }
  },

  "returns the number of a command that still runs, and passes input to it": async (session) => {
    const { exitCode, sessionId } = await session.exec({ cmd: lines.cat, yieldTimeMs: 1 })
    assert.isUndefined(exitCode)
    if (sessionId === undefined) return assert.fail("it has ended")
    const first = await session.writeStdin({ sessionId, chars: "hello\n", yieldTimeMs: 1 })
    assert.include(first, `Process running with session ID ${sessionId}`)
    if (!first.includes("hello")) await until(session, sessionId, "hello")
    const again = await session.writeStdin({ sessionId, chars: "again\n", yieldTimeMs: 1 })
    assert.notInclude(again, "hello")
    if (!again.includes("again")) await until(session, sessionId, "again")
    await session.stop()
    assert.include(await session.writeStdin({ sessionId }), "session not found")
  },

  "keeps commands apart that run at the same time": async (session) => {
    const one = await session.exec({ cmd: lines.cat, yieldTimeMs: 1 })
    const other = await session.exec({ cmd: lines.cat, yieldTimeMs: 1 })
    assert.notStrictEqual(one.sessionId, other.sessionId)
    const said = await session.writeStdin({ sessionId: one.sessionId!, chars: "to one\n", yieldTimeMs: 1 })
    if (!said.includes("to one")) await until(session, one.sessionId!, "to one")
    assert.notInclude(await session.writeStdin({ sessionId: other.sessionId!, yieldTimeMs: 1 }), "to one")
    await session.stop()
  },

  "interrupts a command with Ctrl-C": async (session, { isReal }) => {
    if (!isReal) return
    const sessionId = await started(session, lines.sleeps, "ready")
    const said = await session.writeStdin({ sessionId, chars: "\u0003", yieldTimeMs: endMillis })
    assert.include(said, "Process exited with code 130")
    assert.include(await session.writeStdin({ sessionId }), "session not found")
  },

  "gives a command a terminal if asked to": async (session, { isReal }) => {
    assert.isTrue(session.supportsPty())
    const { exitCode, output, sessionId } = await session.exec({
      cmd: lines.terminal,
      tty: true,
      yieldTimeMs: endMillis
    })
    assert.isUndefined(sessionId)
    assert.strictEqual(exitCode, 0)
    assert.include(output, "terminal")
    if (isReal) assert.strictEqual((await ended(session, lines.terminal)).exitCode, 1)
  },

  "shortens an output to the number of tokens, and says so": async (session) => {
    const { originalTokenCount, output, stdout } = await session.exec({
      cmd: lines.long,
      maxOutputTokens: 50,
      yieldTimeMs: endMillis
    })
    assert.strictEqual(stdout.length, 10_000)
    assert.isAtMost(output.length, 200)
    assert.include(output, "tokens truncated")
    assert.strictEqual(originalTokenCount, 2500)
  },

  "tells a model that a command number is unknown": async (session) => {
    assert.include(await session.writeStdin({ sessionId: 999_999 }), "session not found: 999999")
  }
}

const filePromises: Promises = {
  "reads files, and no more than the bytes that are asked for": async (session) => {
    const content = Uint8Array.of(0x61, 0, 0xff, 0xc3, 0xbc)
    await session.materializeEntry({ path: "read/file", entry: { type: "file", content } })
    assert.deepStrictEqual([...bytes(await session.readFile({ path: "read/file" }))], [...content])
    assert.deepStrictEqual([...bytes(await session.readFile({ path: "read/file", maxBytes: 2 }))], [0x61, 0])
    const absolute = `${session.state.manifest.root}/read/file`
    assert.strictEqual(bytes(await session.readFile({ path: absolute, maxBytes: 100 })).byteLength, 5)
    for (const path of ["read/none", "read", "../outside", "/etc/passwd"]) {
      await rejected(session.readFile({ path }))
    }
  },

  "lists a directory, with paths from the root": async (session) => {
    await session.materializeEntry({ path: "list/a/b", entry: { type: "file", content: "" } })
    await session.materializeEntry({ path: "list/c", entry: { type: "file", content: "" } })
    assert.sameDeepMembers(await session.listDir({ path: "list" }), [
      { name: "a", path: "list/a", type: "dir" },
      { name: "c", path: "list/c", type: "file" }
    ])
    assert.deepInclude(await session.listDir({ path: "." }), { name: "list", path: "list", type: "dir" })
    for (const path of ["list/none", "list/c", ".."]) await rejected(session.listDir({ path }))
  },

  "tells whether a path exists, and is a directory": async (session) => {
    await session.materializeEntry({ path: "exists/file", entry: { type: "file", content: "" } })
    for (const [path, exists, isDirectory] of [
      ["exists", true, true],
      ["exists/file", true, false],
      ["exists/none", false, false],
      ["none/none", false, false],
      [".", true, true]
    ] as const) {
      assert.strictEqual(await session.pathExists(path), exists, path)
      assert.strictEqual(await session.directoryExists(path), isDirectory, path)
    }
    await rejected(session.pathExists("../none"))
  },

  "creates, changes, moves and deletes files by patches": async (session) => {
    const editor = session.createEditor()
    const read = async (path: string) => textOf(await session.readFile({ path }))
    await editor.createFile({ type: "create_file", path: "patch/one", diff: "+first\n+second\n" })
    assert.match(await read("patch/one"), /^first\nsecond\n?$/u)
    await editor.updateFile({ type: "update_file", path: "patch/one", diff: "@@\n first\n-second\n+2nd\n" })
    assert.match(await read("patch/one"), /^first\n2nd\n?$/u)
    const diff = "@@\n-first\n+1st\n 2nd\n"
    await editor.updateFile({ type: "update_file", path: "patch/one", diff, moveTo: "patch/two" })
    assert.match(await read("patch/two"), /^1st\n2nd\n?$/u)
    assert.isFalse(await session.pathExists("patch/one"))
    await editor.deleteFile({ type: "delete_file", path: "patch/two" })
    assert.isFalse(await session.pathExists("patch/two"))
  },

  "rejects a patch that does not fit, and changes nothing": async (session) => {
    const editor = session.createEditor()
    await session.materializeEntry({ path: "unfit", entry: { type: "file", content: "first\n" } })
    const diff = "@@\n-another\n+1st\n"
    const patches = [
      editor.createFile({ type: "create_file", path: "unfit", diff: "+x\n" }),
      editor.updateFile({ type: "update_file", path: "unfit", diff }),
      editor.updateFile({ type: "update_file", path: "none", diff }),
      editor.deleteFile({ type: "delete_file", path: "none" }),
      editor.createFile({ type: "create_file", path: "../outside", diff: "+x\n" }),
      editor.deleteFile({ type: "delete_file", path: "/etc/passwd" })
    ]
    await Promise.all(patches.map((patch) => rejected(Promise.resolve(patch))))
    assert.strictEqual(textOf(await session.readFile({ path: "unfit" })), "first\n")
    assert.isFalse(await session.pathExists("none"))
  },

  "shows an image, and says why something is not one": async (session) => {
    const content = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 1, 2)
    await session.materializeEntry({ path: "image/one.png", entry: { type: "file", content } })
    await session.materializeEntry({ path: "image/text", entry: { type: "file", content: "text" } })
    const shown = await session.viewImage({ path: "image/one.png" })
    assert.deepStrictEqual(shown, { type: "image", image: { data: content, mediaType: "image/png" } })
    for (const [path, words] of [
      ["image/none.png", /not found/u],
      ["image", /not a file/u],
      ["image/text", /Unsupported image format/u]
    ] as const) {
      assert.match(String(await rejected(session.viewImage({ path }))), words)
    }
  }
}

const bytes = (content: string | Uint8Array) => (typeof content === "string" ? bytesOf(content) : content)

const manifestPromises: Promises = {
  "makes the files and directories of an entry, and remembers it": async (session, { isReal }) => {
    await session.materializeEntry({
      path: "entry",
      entry: {
        type: "dir",
        children: {
          "run.sh": { type: "file", content: "#!/bin/sh\nprintf ran\n" },
          private: { type: "file", content: "x", permissions: { owner: 6, group: 0, other: 0 } },
          empty: { type: "dir" },
          deep: { type: "dir", children: { file: { type: "file", content: bytesOf("deep") } } }
        }
      }
    })
    assert.strictEqual(textOf(await session.readFile({ path: "entry/deep/file" })), "deep")
    assert.isTrue(await session.directoryExists("entry/empty"))
    assert.strictEqual(session.state.manifest.entries["entry"]?.type, "dir")
    if (!isReal) return
    assert.strictEqual((await ended(session, "entry/run.sh")).stdout, "ran")
    assert.match((await ended(session, "ls -l entry/private")).stdout, /^-rw-------/u)
  },

  "adds the entries and variables of a manifest": async (session) => {
    const entries = { "applied/file": { type: "file" as const, content: "applied" } }
    await session.applyManifest(new Manifest({ entries, environment: { WORD: "a b" } }))
    assert.strictEqual(textOf(await session.readFile({ path: "applied/file" })), "applied")
    assert.strictEqual((await ended(session, lines.variable)).stdout, "a b")
    assert.property(session.state.manifest.entries, "applied/file")
    assert.property(session.state.manifest.environment, "WORD")
  },

  "refuses entries that leave the workspace": async (session) => {
    for (const path of ["../outside", "/etc/outside"]) {
      await rejected(session.materializeEntry({ path, entry: { type: "file", content: "x" } }))
    }
  },

  "persists the workspace without ephemeral entries, and hydrates it, in place of other files": async (
    session,
    { isReal, keepsModes }
  ) => {
    await session.materializeEntry({ path: "kept/run.sh", entry: { type: "file", content: "printf kept" } })
    await session.materializeEntry({ path: "kept/[a]*", entry: { type: "file", content: "odd name" } })
    await session.materializeEntry({
      path: "passing",
      entry: { type: "dir", ephemeral: true, children: { file: { type: "file", content: "x" } } }
    })
    if (isReal && keepsModes) await ended(session, "ln -s run.sh kept/link; chmod 500 kept/run.sh")
    const archive = await session.persistWorkspace()
    await session.createEditor().deleteFile({ type: "delete_file", path: "kept/run.sh" })
    await session.materializeEntry({ path: "later/file", entry: { type: "file", content: "x" } })
    await session.hydrateWorkspace(archive)
    assert.strictEqual(textOf(await session.readFile({ path: "kept/run.sh" })), "printf kept")
    assert.strictEqual(textOf(await session.readFile({ path: "kept/[a]*" })), "odd name")
    assert.isFalse(await session.pathExists("later"))
    assert.isFalse(await session.pathExists("passing"))
    if (!isReal || !keepsModes) return
    assert.match((await ended(session, "ls -l kept/run.sh")).stdout, /^-r-x------/u)
    assert.strictEqual((await ended(session, "readlink kept/link")).stdout, "run.sh\n")
  },

  "hydrates nothing that exceeds a limit, or is no archive": async (session) => {
    await session.materializeEntry({
      path: "limited/file",
      entry: { type: "file", content: "x".repeat(500) }
    })
    const archive = await session.persistWorkspace()
    await session.createEditor().deleteFile({ type: "delete_file", path: "limited/file" })
    for (const archiveLimits of [{ maxInputBytes: 10 }, { maxMembers: 1 }, { maxExtractedBytes: 100 }]) {
      assert.match(
        String(await rejected(session.hydrateWorkspace(archive, { archiveLimits }))),
        /limit|allowed/u
      )
    }
    session.setArchiveLimits({ maxMembers: 1 })
    await rejected(session.hydrateWorkspace(archive))
    session.setArchiveLimits(null)
    await rejected(session.hydrateWorkspace(bytesOf("no archive")))
    assert.isTrue(await session.pathExists("limited"))
    assert.isFalse(await session.pathExists("limited/file"))
    await session.hydrateWorkspace(archive)
    assert.isTrue(await session.pathExists("limited/file"))
  }
}

/** Promises of a session that they share. */
export const promises: Promises = { ...commandPromises, ...filePromises, ...manifestPromises }

export const through = <A>(value: A): A => JSON.parse(JSON.stringify(value)) as A

/** Promises about the life of sessions. Each has its own. */
export const lifePromises: Readonly<Record<string, (subject: Subject) => Promise<void>>> = {
  "resumes a state from JSON while the session is open": async ({ client: make }) => {
    const client = make({ type: "remote", store: new InMemoryRemoteSnapshotStore() })
    const session = (await client.create({
      manifest: { entries: { "one/file": { type: "file", content: "made" } }, environment: { WORD: "word" } }
    })) as WholeSession
    const serialized = through(await client.serializeSessionState(session.state))
    const state: SandboxSessionState = await client.deserializeSessionState(serialized)
    state.environment = { ...state.environment, WORD: "word" }
    const resumed = (await client.resume(state)) as WholeSession
    assert.strictEqual(textOf(await resumed.readFile({ path: "one/file" })), "made")
    assert.strictEqual((await ended(resumed, lines.variable)).stdout, "word")
    await resumed.close()
    await session.close()
  },

  "restores the workspace of a state from JSON after its session has closed": async ({ client: make }) => {
    const client = make({ type: "remote", store: new InMemoryRemoteSnapshotStore() })
    const first = (await client.create({
      manifest: { entries: { "one/file": { type: "file", content: "made" } } }
    })) as WholeSession
    const diff = "@@\n-made\n+changed\n"
    await first.createEditor().updateFile({ type: "update_file", path: "one/file", diff })
    const serialized = through(await client.serializeSessionState(first.state))
    await first.close()
    const second = (await client.resume(await client.deserializeSessionState(serialized))) as WholeSession
    assert.match(textOf(await second.readFile({ path: "one/file" })), /^changed\n?$/u)
    assert.property(second.state.manifest.entries, "one/file")
    const again = through(await client.serializeSessionState(second.state))
    await second.close()
    const third = (await client.resume(await client.deserializeSessionState(again))) as WholeSession
    assert.isTrue(await third.pathExists("one/file"))
    await third.close()
  },

  "does not resume a state without a snapshot after its session has closed": async ({ client: make }) => {
    const client = make({ type: "noop" })
    const session = (await client.create({})) as WholeSession
    const serialized = through(await client.serializeSessionState(session.state))
    await session.close()
    await session.close()
    const state = await client.deserializeSessionState(serialized)
    assert.match(String(await rejected(client.resume(state))), /snapshot/u)
  }
}
