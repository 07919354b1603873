/** The promises of Mastra's documentation of a filesystem, by title. They run in memory and on Docker. */
import { assert } from "@effect/vitest"
import type { Sandbox } from "@cogni/sandbox-promise"
import {
  DirectoryNotEmptyError,
  DirectoryNotFoundError,
  FileExistsError,
  FileNotFoundError,
  IsDirectoryError,
  type MastraFilesystem,
  NotDirectoryError,
  PermissionError,
  StaleFileError
} from "@mastra/core/workspace"
import { mastraSandbox } from "../src/index.ts"
import { codeOf, rejected } from "./SandboxSuite.ts"

interface Opened {
  readonly files: MastraFilesystem
  readonly sandbox: Sandbox
  readonly isReal: boolean
}

type Promises = Readonly<Record<string, (opened: Opened) => Promise<void>>>

type ErrorClass = Parameters<typeof assert.instanceOf<Error>>[1]

const fails = async (expected: ErrorClass, call: () => unknown): Promise<void> => {
  assert.instanceOf(await rejected(call), expected)
}

const cases: Promises = {
  "reads text and bytes, and refuses what is no file": async ({ files, sandbox }) => {
    await files.writeFile("read/one.bin", Uint8Array.of(0x61, 0xff))
    const bytes = await files.readFile("read/one.bin")
    assert.isTrue(Buffer.isBuffer(bytes))
    assert.deepStrictEqual([...bytes], [0x61, 0xff])
    assert.strictEqual(await files.readFile(`${sandbox.workspace}/read/one.bin`, { encoding: "hex" }), "61ff")
    await fails(FileNotFoundError, () => files.readFile("read/none"))
    await fails(IsDirectoryError, () => files.readFile("read"))
  },

  "shows commands the same files under the same paths": async ({ files, sandbox }) => {
    await files.writeFile("seen/a.txt", "by a tool")
    assert.strictEqual(await sandbox.files.readText("seen/a.txt"), "by a tool")
    await sandbox.files.write("seen/b.txt", "by a command")
    assert.strictEqual(
      await files.readFile(`${sandbox.workspace}/seen/b.txt`, { encoding: "utf-8" }),
      "by a command"
    )
  },

  "replaces a file, or refuses to": async ({ files }) => {
    await files.writeFile("write/file", "one")
    await fails(FileExistsError, () => files.writeFile("write/file", "two", { overwrite: false }))
    assert.strictEqual(await files.readFile("write/file", { encoding: "utf-8" }), "one")
    await files.writeFile("write/other", "new", { overwrite: false })
    assert.strictEqual(await files.readFile("write/other", { encoding: "utf-8" }), "new")
    await files.writeFile("write/file", "two")
    assert.strictEqual(await files.readFile("write/file", { encoding: "utf-8" }), "two")
    await fails(DirectoryNotFoundError, () => files.writeFile("write/none/file", "", { recursive: false }))
    await fails(NotDirectoryError, () => files.writeFile("write/file/below", "", { recursive: false }))
  },

  "refuses to overwrite a file that has changed since it was read": async ({ files }) => {
    await files.writeFile("stale", "one")
    const { modifiedAt } = await files.stat("stale")
    await files.writeFile("stale", "two", { expectedMtime: modifiedAt })
    await fails(StaleFileError, () => files.writeFile("stale", "three", { expectedMtime: new Date(1000) }))
  },

  "appends, and creates missing directories": async ({ files }) => {
    await files.appendFile("append/log", "one\n")
    await files.appendFile("append/log", Buffer.from("two\n"))
    assert.strictEqual(await files.readFile("append/log", { encoding: "utf-8" }), "one\ntwo\n")
    await fails(IsDirectoryError, () => files.appendFile("append", "x"))
  },

  "deletes a file, and refuses a missing one": async ({ files }) => {
    await files.writeFile("delete/file", "")
    await fails(IsDirectoryError, () => files.deleteFile("delete"))
    await files.deleteFile("delete/file")
    assert.isFalse(await files.exists("delete/file"))
    await fails(FileNotFoundError, () => files.deleteFile("delete/file"))
    await files.deleteFile("delete/file", { force: true })
  },

  "copies and moves files": async ({ files }) => {
    await files.writeFile("from/file", "content")
    await files.copyFile("from/file", "to/deep/copy")
    await files.moveFile("from/file", "to/moved")
    assert.isFalse(await files.exists("from/file"))
    for (const path of ["to/deep/copy", "to/moved"]) {
      assert.strictEqual(await files.readFile(path, { encoding: "utf-8" }), "content")
    }
    for (const call of ["copyFile", "moveFile"] as const) {
      await fails(FileNotFoundError, () => files[call]("from/none", "to/x"))
      await fails(FileExistsError, () => files[call]("to/moved", "to/deep/copy", { overwrite: false }))
    }
  },

  "lists a directory, with sizes and by extension": async ({ files }) => {
    await files.writeFile("list/a.ts", "1")
    await files.writeFile("list/b.md", "22")
    await files.writeFile("list/deep/c.ts", "333")
    assert.deepStrictEqual(await files.readdir("list"), [
      { name: "a.ts", type: "file", size: 1 },
      { name: "b.md", type: "file", size: 2 },
      { name: "deep", type: "directory" }
    ])
    const names = async (options: Parameters<MastraFilesystem["readdir"]>[1]) =>
      (await files.readdir("list", options)).map(({ name }) => name)
    assert.deepStrictEqual(await names({ extension: "ts" }), ["a.ts", "deep"])
    assert.deepStrictEqual(await names({ extension: [".ts"], recursive: true }), [
      "a.ts",
      "deep",
      "deep/c.ts"
    ])
    assert.deepStrictEqual(await names({ recursive: true, maxDepth: 0 }), ["a.ts", "b.md", "deep"])
    await fails(DirectoryNotFoundError, () => files.readdir("list/none"))
    await fails(NotDirectoryError, () => files.readdir("list/a.ts"))
  },

  "describes files and directories": async ({ files, sandbox }) => {
    await files.writeFile("stat/picture.png", "four")
    const { modifiedAt, ...found } = await files.stat("stat/picture.png")
    assert.deepInclude(found, {
      name: "picture.png",
      path: `${sandbox.workspace}/stat/picture.png`,
      type: "file",
      size: 4,
      mimeType: "image/png"
    })
    assert.instanceOf(modifiedAt, Date)
    assert.deepInclude(await files.stat("stat"), { type: "directory", size: 0 })
    assert.strictEqual((await files.stat("")).path, sandbox.workspace)
    await fails(FileNotFoundError, () => files.stat("stat/none"))
    assert.isTrue(await files.exists("stat"))
    assert.isFalse(await files.exists("stat/none/none"))
    assert.isFalse(await files.exists("stat/picture.png/below"))
  },

  "removes directories": async ({ files, isReal }) => {
    await files.writeFile("remove/full/file", "")
    await fails(NotDirectoryError, () => files.rmdir("remove/full/file"))
    if (isReal) await fails(DirectoryNotEmptyError, () => files.rmdir("remove/full"))
    await files.rmdir("remove/full", { recursive: true })
    assert.isFalse(await files.exists("remove/full"))
    await fails(DirectoryNotFoundError, () => files.rmdir("remove/full"))
    await files.rmdir("remove/full", { force: true })
  },

  "refuses other directories than the workspace": async ({ files }) => {
    for (const path of ["/etc/passwd", "../outside", "/workspace/../etc/passwd", "/workspacex"]) {
      for (const call of [
        () => files.readFile(path),
        () => files.writeFile(path, "x"),
        () => files.writeFile(path, "x", { overwrite: false }),
        () => files.appendFile(path, "x"),
        () => files.deleteFile(path, { force: true }),
        () => files.mkdir(path),
        () => files.rmdir(path, { recursive: true, force: true }),
        () => files.readdir(path),
        () => files.stat(path),
        () => files.exists(path),
        () => files.copyFile("a", path),
        () => files.copyFile(path, "a"),
        () => files.moveFile("a", path),
        () => files.moveFile(path, "a")
      ]) {
        await fails(PermissionError, call)
      }
    }
    assert.strictEqual(await codeOf(() => files.rmdir("", { recursive: true })), "INVALID_PATH")
  },

  "refuses a file that is too large": async ({ files }) => {
    assert.strictEqual(
      await codeOf(() => files.writeFile("large", Buffer.alloc(16 * 1024 * 1024 + 1))),
      "TOO_LARGE"
    )
  }
}

/** These need the programs of a real system. */
const realCases: Promises = {
  "creates directories": async ({ files }) => {
    await files.mkdir("made/deep/er")
    await files.mkdir("made/deep/er")
    assert.strictEqual((await files.stat("made/deep/er")).type, "directory")
    await files.mkdir("made/one", { recursive: false })
    await fails(DirectoryNotFoundError, () => files.mkdir("made/none/one", { recursive: false }))
    await files.writeFile("made/file", "")
    await fails(FileExistsError, () => files.mkdir("made/file"))
    await files.rmdir("made/one")
    assert.isFalse(await files.exists("made/one"))
  },

  "copies and moves whole directories, with the modes of their files": async ({ files, sandbox }) => {
    await sandbox.exec("mkdir -p tree/sub && echo 'echo ran' > tree/sub/run && chmod 755 tree/sub/run")
    await fails(IsDirectoryError, () => files.copyFile("tree", "copied"))
    await files.copyFile("tree", "copied", { recursive: true })
    await files.copyFile("tree", "copied", { recursive: true })
    await files.moveFile("tree", "moved")
    const { stdout } = await sandbox.exec("copied/sub/run; moved/sub/run; ls copied")
    assert.strictEqual(stdout, "ran\nran\nsub\n")
  },

  "lists links by their targets, and never follows one in a recursive listing": async ({
    files,
    sandbox
  }) => {
    await sandbox.exec(
      "mkdir links && cd links && echo x > file && ln -s file to-file && ln -s . loop && ln -s /etc out && ln -s none broken && mkfifo pipe"
    )
    const entries = await files.readdir("links", { recursive: true })
    assert.deepStrictEqual(
      entries.map(({ isSymlink, name, type }) => `${name} ${type}${isSymlink === true ? " link" : ""}`),
      [
        "broken file link",
        "file file",
        "loop directory link",
        "out file link",
        "pipe file",
        "to-file file link"
      ]
    )
    await fails(IsDirectoryError, () => files.readFile("links/pipe"))
    await fails(PermissionError, () => files.readFile("links/out/passwd"))
  },

  "passes names on as they are": async ({ files, sandbox }) => {
    const name = "-n $(touch x) 'quoted' ü"
    await files.mkdir(`names/${name}`)
    await files.writeFile(`names/${name}/file`, "a", { overwrite: false })
    await files.moveFile(`names/${name}/file`, `names/${name}/other`)
    await files.appendFile(`names/${name}/other`, "b")
    assert.strictEqual(await sandbox.files.readText(`names/${name}/other`), "ab")
    await files.deleteFile(`names/${name}/other`)
    await files.rmdir(`names/${name}`)
    assert.deepStrictEqual(await files.readdir("names"), [])
  },

  "creates a file for one of two writers": async ({ files }) => {
    const wrote = await Promise.allSettled(
      ["one", "two"].map((content) => files.writeFile("race", content, { overwrite: false }))
    )
    assert.deepStrictEqual(wrote.map(({ status }) => status).toSorted(), ["fulfilled", "rejected"])
  }
}

const promisesOf = (all: Promises) =>
  Object.fromEntries(
    Object.entries(all).map(([title, check]) => [
      title,
      (sandbox: Sandbox, isReal: boolean) =>
        check({ sandbox, isReal, files: mastraSandbox(sandbox).filesystem })
    ])
  )

export const promises = promisesOf(cases)

export const realPromises = promisesOf(realCases)
