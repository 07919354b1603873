/**
 * The promises of the documentation of `Experimental_SandboxSession`, by title. They run over a sandbox in memory and
 * one on Docker. The commands are shell lines, which {@link program} knows by heart.
 */
import { assert } from "@effect/vitest"
import type { MemoryProgram, Sandbox } from "@cogni/sandbox-promise"
import { SandboxError } from "@cogni/sandbox-promise"
import { sandboxSession, type SandboxSession } from "../src/index.ts"

const lines = {
  both: "printf out; printf err >&2; exit 3",
  cat: "cat",
  first: "head -c 3",
  where: "pwd",
  variable: 'printf %s "$WORD"',
  sleeps: "echo ready; sleep 1000",
  polite: "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done",
  stubborn: "trap '' TERM; echo ready; while :; do sleep 0.1; done",
  floods: "head -c 9000000 /dev/zero | tr '\\0' e >&2; echo done"
}

const mebibyte = 1024 * 1024

/** A sandbox in memory runs this in place of the shell. */
export const program: MemoryProgram = async ({
  argv,
  env,
  signal,
  stderr,
  stdin,
  stdout,
  workingDirectory
}) => {
  const line = argv[2]
  const aborted = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()))
  switch (line) {
    case lines.both:
      return { stdout: "out", stderr: "err", exitCode: 3 }
    case lines.cat:
      for await (const piece of stdin) await stdout(piece)
      return {}
    case lines.first:
      for await (const piece of stdin) return { stdout: piece.subarray(0, 3) }
      return {}
    case lines.where:
      return { stdout: `${workingDirectory}\n` }
    case lines.variable:
      return { stdout: env["WORD"] ?? "" }
    case lines.sleeps:
    case lines.stubborn:
      await stdout("ready\n")
      await aborted
      return {}
    case lines.floods:
      for (let at = 0; at < 90; at++) await stderr("e".repeat(100_000))
      return { stdout: "done\n" }
    default:
      return { exitCode: 127, stderr: `${line}: not found\n` }
  }
}

const bytesOf = (text: string) => new TextEncoder().encode(text)

const textOf = async (stream: ReadableStream<Uint8Array>): Promise<string> => {
  let text = ""
  const decoder = new TextDecoder()
  for await (const piece of stream) text += decoder.decode(piece, { stream: true })
  return text
}

/** Waits until the stream has yielded this text. The rest of it remains readable. */
const until = async (stream: ReadableStream<Uint8Array>, words: string): Promise<void> => {
  const reader = stream.getReader()
  let text = ""
  while (!text.includes(words)) {
    const { done, value } = await reader.read()
    if (done) return assert.fail(`it ended without ${JSON.stringify(words)}: ${text}`)
    text += new TextDecoder().decode(value)
  }
  reader.releaseLock()
}

const streamOf = (...pieces: ReadonlyArray<string>) =>
  new ReadableStream<Uint8Array>({
    start: (controller) => {
      for (const piece of pieces) controller.enqueue(bytesOf(piece))
      controller.close()
    }
  })

const rejected = async (promise: PromiseLike<unknown>): Promise<unknown> => {
  try {
    await promise
  } catch (error) {
    return error
  }
  return assert.fail("it did not reject")
}

/** The problem of an expected refusal of a file. */
const problemOf = async (promise: PromiseLike<unknown>): Promise<string> => {
  const error = await rejected(promise)
  if (!(error instanceof SandboxError)) return assert.fail(String(error))
  return error.reason._tag === "FileRefused" ? error.reason.problem : error.reason._tag
}

interface Opened {
  readonly session: SandboxSession
  readonly sandbox: Sandbox
  /** Whether the sandbox has a real shell. */
  readonly isReal: boolean
}

type Promises = Readonly<Record<string, (opened: Opened) => Promise<void>>>

const filePromises: Promises = {
  "reads a file as a stream, bytes and text, and a missing one as null": async ({ session }) => {
    await session.writeBinaryFile({ path: "read/file", content: Uint8Array.of(0x61, 0, 0xff, 0xc3, 0xbc) })
    const bytes = await session.readBinaryFile({ path: "read/file" })
    assert.deepStrictEqual([...bytes!], [0x61, 0, 0xff, 0xc3, 0xbc])
    assert.strictEqual(await textOf((await session.readFile({ path: "read/file" }))!), "a\0\ufffdü")
    assert.strictEqual(await session.readTextFile({ path: "read/file" }), "a\0\ufffdü")
    await session.writeTextFile({ path: "read/empty", content: "" })
    assert.strictEqual(await textOf((await session.readFile({ path: "read/empty" }))!), "")
    assert.strictEqual(await session.readTextFile({ path: "read/empty" }), "")
    for (const path of ["read/none", "none/none", "read/file/below"]) {
      assert.isNull(await session.readFile({ path }), path)
      assert.isNull(await session.readBinaryFile({ path }), path)
      assert.isNull(await session.readTextFile({ path }), path)
    }
    for (const read of [session.readFile, session.readBinaryFile, session.readTextFile]) {
      assert.strictEqual(await problemOf(read({ path: "read" })), "not_a_file")
      assert.strictEqual(await problemOf(read({ path: "/etc/passwd" })), "outside_workspace")
    }
  },

  "reads a range of lines, from 1 and inclusive, and clamps it to the file": async ({ session }) => {
    await session.writeTextFile({ path: "lines", content: "one\ntwo\nthree" })
    const read = (startLine?: number, endLine?: number) =>
      session.readTextFile({ path: "lines", startLine, endLine })
    assert.strictEqual(await read(), "one\ntwo\nthree")
    assert.strictEqual(await read(2), "two\nthree")
    assert.strictEqual(await read(undefined, 2), "one\ntwo")
    assert.strictEqual(await read(2, 2), "two")
    assert.strictEqual(await read(2, 100), "two\nthree")
    assert.strictEqual(await read(4, 9), "")
    await session.writeTextFile({ path: "lines", content: "one\r\ntwo\r\nthree\r\n" })
    assert.strictEqual(await read(2, 3), "two\r\nthree")
    await session.writeTextFile({ path: "lines", content: "one\rtwo" })
    assert.strictEqual(await read(2, 2), "two")
  },

  "writes and reads text in other encodings, and refuses what they cannot represent": async ({ session }) => {
    const path = "encoded"
    for (const [encoding, content, bytes] of [
      ["utf-16le", "ü☃", [0xfc, 0, 0x03, 0x26]],
      ["iso-8859-1", "ü\x80", [0xfc, 0x80]],
      ["us-ascii", "plain", [...bytesOf("plain")]],
      ["UTF-8", "\ufeffü", [0xef, 0xbb, 0xbf, 0xc3, 0xbc]]
    ] as const) {
      await session.writeTextFile({ path, content, encoding })
      assert.deepStrictEqual([...(await session.readBinaryFile({ path }))!], [...bytes], encoding)
      assert.strictEqual(await session.readTextFile({ path, encoding }), content, encoding)
    }
    await session.writeBinaryFile({ path, content: Uint8Array.of(0x82, 0xa0) })
    assert.strictEqual(await session.readTextFile({ path, encoding: "shift_jis" }), "あ")
    for (const [encoding, content] of [
      ["iso-8859-1", "☃"],
      ["us-ascii", "ü"]
    ] as const) {
      assert.instanceOf(await rejected(session.writeTextFile({ path, content, encoding })), RangeError)
    }
    for (const encoding of ["hex", "no such encoding"]) {
      const error = await rejected(session.writeTextFile({ path, content: "61", encoding }))
      assert.include(error, { _tag: "Unsupported", operation: "writeTextFile" })
    }
    assert.include(await rejected(session.readTextFile({ path, encoding: "no such" })), {
      _tag: "Unsupported"
    })
    assert.deepStrictEqual([...(await session.readBinaryFile({ path }))!], [0x82, 0xa0])
  },

  "writes a stream, makes directories, replaces files, and rejects a directory": async ({ session }) => {
    await session.writeFile({ path: "made/below/file", content: streamOf("one ", "", "two") })
    assert.strictEqual(await session.readTextFile({ path: "made/below/file" }), "one two")
    await session.writeBinaryFile({ path: "made/below/file", content: bytesOf("3") })
    assert.strictEqual(await session.readTextFile({ path: "made/below/file" }), "3")
    assert.strictEqual(
      await problemOf(session.writeFile({ path: "made", content: streamOf("x") })),
      "not_a_file"
    )
    assert.strictEqual(
      await problemOf(session.writeBinaryFile({ path: "made/below", content: bytesOf("x") })),
      "not_a_file"
    )
    assert.strictEqual(await problemOf(session.writeTextFile({ path: ".", content: "x" })), "not_a_file")
  },

  "cancels a stream that is too long or fails, and writes nothing of it": async ({ session }) => {
    let isCancelled = false
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(mebibyte)),
      cancel: () => {
        isCancelled = true
      }
    })
    assert.strictEqual(await problemOf(session.writeFile({ path: "long", content: endless })), "too_large")
    assert.isTrue(isCancelled)
    const broken = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        controller.enqueue(bytesOf("a part"))
        controller.error(new Error("broken"))
      }
    })
    assert.match(String(await rejected(session.writeFile({ path: "long", content: broken }))), /broken/u)
    const abort = new AbortController()
    const silent = new ReadableStream<Uint8Array>({
      cancel: (reason) => {
        isCancelled = reason === "enough"
      }
    })
    isCancelled = false
    const waiting = session.writeFile({ path: "long", content: silent, abortSignal: abort.signal })
    abort.abort("enough")
    assert.strictEqual(await rejected(waiting), "enough")
    assert.isTrue(isCancelled)
    assert.isNull(await session.stat({ path: "long" }))
  },

  "describes a file and a directory, and returns null for a missing path": async ({ session }) => {
    await session.writeTextFile({ path: "stat/file", content: "12345" })
    assert.deepStrictEqual(await session.stat({ path: "stat/file" }), { type: "file", size: 5 })
    assert.strictEqual((await session.stat({ path: "stat" }))?.type, "directory")
    assert.isNull(await session.stat({ path: "stat/none" }))
    assert.isNull(await session.stat({ path: "stat/file/below" }))
  },

  "lists a directory without its subdirectories, null for a missing one, and rejects a file": async ({
    session
  }) => {
    await session.writeTextFile({ path: "list/a/b", content: "" })
    await session.writeTextFile({ path: "list/c", content: "" })
    assert.sameDeepMembers((await session.listDirectory({ path: "list" }))!, [
      { name: "a", type: "directory" },
      { name: "c", type: "file" }
    ])
    assert.isNull(await session.listDirectory({ path: "list/none" }))
    assert.strictEqual(await problemOf(session.listDirectory({ path: "list/c" })), "not_a_directory")
  },

  "deletes a file once, and rejects a directory": async ({ session }) => {
    await session.writeTextFile({ path: "delete/file", content: "" })
    assert.isTrue(await session.deleteFile({ path: "delete/file" }))
    assert.isFalse(await session.deleteFile({ path: "delete/file" }))
    assert.isFalse(await session.deleteFile({ path: "delete/none/below" }))
    assert.strictEqual(await problemOf(session.deleteFile({ path: "delete" })), "not_a_file")
    assert.deepStrictEqual(await session.listDirectory({ path: "delete" }), [])
  },

  "sees and deletes links themselves, and follows them in stat": async ({ isReal, sandbox, session }) => {
    if (!isReal) return
    const { exitCode } = await sandbox.exec(
      "mkdir links; printf 123 > links/file; cd links; ln -s file short; ln -s nowhere dangling; ln -s /etc/passwd away; mkfifo fifo"
    )
    assert.strictEqual(exitCode, 0)
    assert.sameDeepMembers((await session.listDirectory({ path: "links" }))!, [
      { name: "file", type: "file" },
      { name: "short", type: "symlink" },
      { name: "dangling", type: "symlink" },
      { name: "away", type: "symlink" },
      { name: "fifo", type: "other" }
    ])
    assert.deepStrictEqual(await session.stat({ path: "links/short" }), { type: "file", size: 3 })
    assert.strictEqual((await session.stat({ path: "links/fifo" }))?.type, "other")
    assert.isNull(await session.stat({ path: "links/dangling" }))
    assert.strictEqual(await problemOf(session.stat({ path: "links/away" })), "outside_workspace")
    for (const name of ["short", "dangling", "away"]) {
      assert.isTrue(await session.deleteFile({ path: `links/${name}` }), name)
    }
    assert.deepStrictEqual(await session.stat({ path: "links/file" }), { type: "file", size: 3 })
    assert.strictEqual((await sandbox.exec("test -s /etc/passwd")).exitCode, 0)
  },

  "rejects every operation whose signal has aborted, with its reason": async ({ session }) => {
    const reason = new Error("no longer needed")
    const given = { path: "aborted", abortSignal: AbortSignal.abort(reason) }
    const command = { command: lines.where, abortSignal: given.abortSignal }
    const asked = [
      session.readFile(given),
      session.readBinaryFile(given),
      session.readTextFile(given),
      session.writeFile({ ...given, content: streamOf("x") }),
      session.writeBinaryFile({ ...given, content: bytesOf("x") }),
      session.writeTextFile({ ...given, content: "x" }),
      session.stat(given),
      session.listDirectory(given),
      session.deleteFile(given),
      session.run(command),
      session.spawn(command),
      session.spawn({ ...command, stdin: true })
    ]
    for (const error of await Promise.all(asked.map(rejected))) assert.strictEqual(error, reason)
    assert.isNull(await session.stat({ path: "aborted" }))
  }
}

const commandPromises: Promises = {
  "runs a command in the workspace, with its variables and both outputs": async ({ sandbox, session }) => {
    assert.deepStrictEqual(await session.run({ command: lines.both }), {
      exitCode: 3,
      stdout: "out",
      stderr: "err"
    })
    assert.strictEqual((await session.run({ command: lines.variable, env: { WORD: "a b" } })).stdout, "a b")
    assert.strictEqual((await session.run({ command: lines.where })).stdout, `${sandbox.workspace}\n`)
    await session.writeTextFile({ path: "inner/deep/file", content: "" })
    for (const [workingDirectory, found] of [
      ["inner/deep", `${sandbox.workspace}/inner/deep`],
      [`${sandbox.workspace}/inner`, `${sandbox.workspace}/inner`]
    ] as const) {
      const { stdout } = await session.run({ command: lines.where, workingDirectory })
      assert.strictEqual(stdout, `${found}\n`)
    }
    assert.strictEqual(
      await problemOf(session.run({ command: lines.where, workingDirectory: "none" })),
      "CommandRefused"
    )
  },

  "says at the end of an output that it is truncated": async ({ session }) => {
    const { stderr, stdout } = await session.run({ command: lines.floods })
    assert.strictEqual(stdout, "done\n")
    // Not one expression over the whole text: millions of characters can exceed the stack of the engine.
    const end = stderr.indexOf("\n")
    assert.isAbove(end, 0)
    assert.isTrue(stderr.slice(0, end) === "e".repeat(end))
    assert.match(stderr.slice(end), /^\n\[truncated: the command wrote 9000000 bytes\./u)
  },

  "spawns a process whose outputs are streams": async ({ session }) => {
    const process = await session.spawn({ command: lines.both })
    assert.notProperty(process, "stdin")
    assert.deepStrictEqual(await Promise.all([textOf(process.stdout), textOf(process.stderr)]), [
      "out",
      "err"
    ])
    assert.deepStrictEqual(await process.wait(), { exitCode: 3 })
    assert.deepStrictEqual(await process.wait(), { exitCode: 3 })
    await process.kill()
    await process.kill()
  },

  "writes to a process until its input is closed, which does not end it": async ({ session }) => {
    const process = await session.spawn({ command: lines.cat, stdin: true })
    const writer = process.stdin.getWriter()
    const reader = process.stdout.getReader()
    let said = ""
    const heard = async (words: string) => {
      while (said.length < words.length) said += new TextDecoder().decode((await reader.read()).value)
      assert.strictEqual(said, words)
    }
    await writer.write(bytesOf("one\n"))
    await heard("one\n")
    await writer.write(bytesOf("two\n"))
    void writer.write(bytesOf("three\n"))
    await writer.close()
    await heard("one\ntwo\nthree\n")
    assert.isTrue((await reader.read()).done)
    assert.deepStrictEqual(await process.wait(), { exitCode: 0 })
  },

  "fails the writes to a process that has ended": async ({ session }) => {
    const process = await session.spawn({ command: lines.first, stdin: true })
    const writer = process.stdin.getWriter()
    const failed = rejected(
      (async () => {
        for (;;) await writer.write(new Uint8Array(mebibyte).fill(0x61))
      })()
    )
    assert.strictEqual(await textOf(process.stdout), "aaa")
    assert.deepStrictEqual(await process.wait(), { exitCode: 0 })
    assert.match(String(await failed), /no longer reads its standard input/u)
  },

  "kills a process whose input is aborted, because a part of it is not the whole": async ({ session }) => {
    const process = await session.spawn({ command: lines.cat, stdin: true })
    const writer = process.stdin.getWriter()
    await writer.write(bytesOf("a part\n"))
    await until(process.stdout, "a part\n")
    await writer.abort(new Error("the source broke"))
    const error = await rejected(process.wait())
    assert.strictEqual(error instanceof SandboxError && error.reason._tag, "CommandInputFailed")
    assert.include(String(error), "the source broke")
  },

  "gives a process without stdin an empty input": async ({ session }) => {
    for (const options of [{}, { stdin: false as const }]) {
      const process = await session.spawn({ command: lines.cat, ...options })
      assert.deepStrictEqual(await process.wait(), { exitCode: 0 })
      assert.notProperty(process, "stdin")
    }
  },

  "pauses a process whose output is not read, and drops an output that is cancelled": async ({ session }) => {
    const paused = await session.spawn({ command: lines.floods })
    let isOver = false
    const waiting = paused.wait()
    void waiting.then(() => (isOver = true))
    const reader = paused.stderr.getReader()
    assert.isAbove((await reader.read()).value!.byteLength, 0)
    assert.isFalse(isOver)
    await reader.cancel()
    assert.strictEqual(await textOf(paused.stdout), "done\n")
    assert.deepStrictEqual(await waiting, { exitCode: 0 })
  },

  "kills a process, however often it is asked to": async ({ session }) => {
    for (const command of [lines.sleeps, lines.stubborn]) {
      const process = await session.spawn({ command })
      await until(process.stdout, "ready\n")
      await Promise.all([process.kill(), process.kill()])
      assert.isAbove((await process.wait()).exitCode, 128)
      await process.kill()
    }
  },

  "lets a process clean up when it is killed": async ({ isReal, session }) => {
    if (!isReal) return
    const process = await session.spawn({ command: lines.polite })
    await until(process.stdout, "ready\n")
    await process.kill()
    assert.deepStrictEqual(await process.wait(), { exitCode: 7 })
    assert.strictEqual(await textOf(process.stdout), "bye\n")
  },

  "kills a process and rejects its wait with the reason, when its signal aborts": async ({
    isReal,
    sandbox,
    session
  }) => {
    const abort = new AbortController()
    const process = await session.spawn({ command: lines.sleeps, stdin: true, abortSignal: abort.signal })
    await until(process.stdout, "ready\n")
    const reason = new Error("enough")
    abort.abort(reason)
    assert.strictEqual(await rejected(process.wait()), reason)
    assert.strictEqual(await rejected(process.wait()), reason)
    assert.strictEqual(await rejected(textOf(process.stdout)), reason)
    if (isReal)
      assert.strictEqual((await sandbox.exec("cat /proc/[0-9]*/comm | grep -cx sleep")).stdout, "0\n")
    const run = new AbortController()
    const running = session.run({ command: lines.sleeps, abortSignal: run.signal })
    run.abort(reason)
    assert.strictEqual(await rejected(running), reason)
    await process.kill()
  }
}

/** Promises by title, of a sandbox that they share. */
export const promises: Readonly<Record<string, (sandbox: Sandbox, isReal: boolean) => Promise<void>>> =
  Object.fromEntries(
    Object.entries({ ...filePromises, ...commandPromises }).map(([title, promise]) => [
      title,
      (sandbox: Sandbox, isReal: boolean) => promise({ session: sandboxSession(sandbox), sandbox, isReal })
    ])
  )
