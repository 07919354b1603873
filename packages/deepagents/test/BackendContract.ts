/**
 * The contract of deepagents' sandbox protocol (version 2), as one case for each promise.
 *
 * LangChain's own suite is not published. Its README lists eleven areas, and these cases cover all of them: life cycle,
 * commands, copies, write, read, edit, ls, grep, glob, initial files and whole workflows. A case needs a real shell.
 */
import { assert } from "@effect/vitest"
import type { DeepAgentsBackend, DeepAgentsOptions } from "../src/index.ts"

export interface World {
  readonly backend: DeepAgentsBackend
  /** Creates another backend over the same sandbox. */
  readonly backendWith: (options: DeepAgentsOptions) => DeepAgentsBackend
  /** A directory that no other case uses. It does not exist yet. */
  readonly directory: string
}

export interface Case {
  readonly title: string
  readonly check: (world: World) => Promise<void>
}

const utf8 = new TextEncoder()

const text = (content: Uint8Array | null): string =>
  new TextDecoder().decode(content ?? assert.fail("no content"))

/** Writes files, and asserts that each was written. Paths are relative to the case's directory. */
const put = async ({ backend, directory }: World, files: Readonly<Record<string, string>>): Promise<void> => {
  for (const [name, content] of Object.entries(files)) {
    const path = `${directory}/${name}`
    assert.deepInclude(await backend.write(path, content), { path })
  }
}

const run = async ({ backend, directory }: World, line: string): Promise<string> => {
  const { exitCode, output } = await backend.execute(
    `mkdir -p '${directory}' && cd '${directory}' && { ${line}\n}`
  )
  assert.strictEqual(exitCode, 0, output)
  return output
}

const content = async ({ backend, directory }: World, name: string): Promise<string> => {
  const [file] = await backend.downloadFiles([`${directory}/${name}`])
  return text(file!.content)
}

const lines = (count: number): string =>
  Array.from({ length: count }, (_, at) => `line ${at + 1};`).join("\n")

const lifeCycle: ReadonlyArray<Case> = [
  {
    title: "has an ID, and runs",
    check: async ({ backend }) => {
      assert.isAbove(backend.id.length, 0)
      assert.isTrue(backend.isRunning)
    }
  },
  {
    title: "has files before the first command, which commands and tools see",
    check: async (world) => {
      const { backend, directory } = world
      const files = { "a.txt": "one", "src/deep/b.sh": "echo two" }
      const asked = Object.entries(files).map(([name, content]): [string, Uint8Array] => [
        `${directory}/${name}`,
        utf8.encode(content)
      ])
      for (const { error } of await backend.uploadFiles(asked)) assert.isNull(error)
      assert.strictEqual(await run(world, "cat a.txt; echo; sh src/deep/b.sh"), "one\ntwo\n")
      const { files: found = [] } = await backend.ls(`${directory}/src/deep`)
      assert.deepStrictEqual(
        found.map(({ path }) => path),
        [`${directory}/src/deep/b.sh`]
      )
    }
  }
]

const commands: ReadonlyArray<Case> = [
  {
    title: "runs a line in a shell, and returns its output",
    check: async ({ backend }) => {
      const said = await backend.execute('export WORD="a b" && echo "$WORD" && printf two')
      assert.deepStrictEqual(said, { output: "a b\ntwo", exitCode: 0, truncated: false })
    }
  },
  {
    title: "returns an exit code as a value, and standard error after standard output",
    check: async ({ backend }) => {
      const said = await backend.execute("echo bad >&2; printf good; exit 42")
      assert.deepStrictEqual(said, { output: "good\nbad\n", exitCode: 42, truncated: false })
    }
  },
  {
    title: "returns exit code 127 if the program does not exist",
    check: async ({ backend }) => {
      const { exitCode, output } = await backend.execute("no-such-program")
      assert.strictEqual(exitCode, 127)
      assert.include(output, "no-such-program")
    }
  },
  {
    title: "starts commands in the workspace, as a user without privileges",
    check: async ({ backend }) => {
      assert.strictEqual((await backend.execute("pwd; id -u")).output, "/workspace\n1000\n")
    }
  },
  {
    title: "cuts off output over its limit, and reports it",
    check: async ({ backendWith }) => {
      const backend = backendWith({ outputRetainedBytesMax: 10 })
      const said = await backend.execute("printf 0123456789abc; printf ABCDEFGHIJKLM >&2")
      assert.deepStrictEqual(said, { output: "0123456789\nABCDEFGHIJ", exitCode: 0, truncated: true })
    }
  },
  {
    title: "does not cut off the listings of the file tools at that limit",
    check: async (world) => {
      await put(world, { "a.txt": lines(100) })
      const backend = world.backendWith({ outputRetainedBytesMax: 10 })
      assert.include((await backend.read(`${world.directory}/a.txt`)).content, "line 100;")
      assert.lengthOf((await backend.grep("line", world.directory)).matches ?? [], 100)
      assert.lengthOf((await backend.ls(world.directory)).files ?? [], 1)
      assert.lengthOf((await backend.glob("*.txt", world.directory)).files ?? [], 1)
      assert.isUndefined((await backend.delete(`${world.directory}/a.txt`)).error)
    }
  },
  {
    title: "ends a command at its time limit with all its children, and reports exit code 124 and the reason",
    check: async ({ backend, backendWith }) => {
      const { exitCode, output } = await backendWith({ timeoutSecondsMax: 1 }).execute(
        "sleep 54321 & sleep 54321"
      )
      assert.strictEqual(exitCode, 124)
      assert.match(output, /still running after 1 s/u)
      const { output: left } = await backend.execute("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
      assert.notMatch(left, /sleep 54321/u)
    }
  },
  {
    title: "reports a command line that is too long, instead of failing",
    check: async ({ backend }) => {
      const { exitCode, output } = await backend.execute(`true ${"x".repeat(200_000)}`)
      assert.strictEqual(exitCode, 126)
      assert.match(output, /at most \d+ bytes/u)
    }
  }
]

const copies: ReadonlyArray<Case> = [
  {
    title: "copies any bytes into the sandbox and out of it",
    check: async ({ backend, directory }) => {
      const bytes = Uint8Array.from({ length: 70_000 }, (_, at) => (at * 7) % 256)
      const path = `${directory}/bytes.bin`
      assert.deepStrictEqual(await backend.uploadFiles([[path, bytes]]), [{ path, error: null }])
      const [file] = await backend.downloadFiles([path])
      assert.isNull(file!.error)
      assert.deepStrictEqual([...file!.content!], [...bytes])
    }
  },
  {
    title: "copies an empty file",
    check: async (world) => {
      const path = `${world.directory}/empty`
      await world.backend.uploadFiles([[path, new Uint8Array(0)]])
      const [file] = await world.backend.downloadFiles([path])
      assert.deepStrictEqual([file!.error, file!.content?.byteLength], [null, 0])
    }
  },
  {
    title: "copies the other files if one of them cannot be copied, and names each problem",
    check: async (world) => {
      await run(
        world,
        "mkdir folder && mkfifo pipe && printf x > plain && printf y > closed && chmod 0 closed"
      )
      const at = (name: string) => `${world.directory}/${name}`
      const up = await world.backend.uploadFiles(
        ["folder", "plain", "plain/below", "closed/below", "good"].map((name) => [
          at(name),
          utf8.encode("new")
        ])
      )
      assert.deepStrictEqual(
        up.map(({ error }) => error),
        ["is_directory", null, up[2]!.error, up[3]!.error, null]
      )
      assert.isNotNull(up[2]!.error)
      assert.isNotNull(up[3]!.error)
      const down = await world.backend.downloadFiles(["absent", "folder", "good", "closed"].map(at))
      assert.deepStrictEqual(
        down.map(({ error }) => error),
        ["file_not_found", "is_directory", null, "permission_denied"]
      )
      assert.strictEqual(text(down[2]!.content), "new")
      assert.isNull(down[0]!.content)
      const [pipe] = await world.backend.downloadFiles([at("pipe")])
      assert.isNotNull(pipe!.error, "a FIFO is refused, not waited for")
    }
  },
  {
    title: "refuses to write where the sandbox is read-only",
    check: async ({ backend }) => {
      const [up] = await backend.uploadFiles([["/usr/bin/new", utf8.encode("x")]])
      assert.deepStrictEqual(up, { path: "/usr/bin/new", error: "permission_denied" })
      assert.match((await backend.write("/usr/bin/new", "x")).error ?? "", /permission_denied/u)
    }
  }
]

const writing: ReadonlyArray<Case> = [
  {
    title: "writes text exactly, into new directories",
    check: async (world) => {
      const files = {
        "a.txt": "first\nsecond",
        "deep/er/b.txt": "$VAR `cmd` $(sub) \\ 'quoted' \"double\"\ttab",
        "with spaces/c d.txt": "spaces",
        "unicode.txt": "Grüße 世界 👋\nпривет",
        "empty.txt": "",
        "newlines.txt": "\n\n\n",
        "long.txt": lines(1000)
      }
      await put(world, files)
      for (const [name, expected] of Object.entries(files))
        assert.strictEqual(await content(world, name), expected, name)
      assert.strictEqual(await run(world, "cat a.txt; wc -l < newlines.txt"), "first\nsecond3\n")
    }
  },
  {
    title: "replaces a file, and accepts repeated slashes",
    check: async (world) => {
      await put(world, { "a.txt": "a longer first text" })
      await world.backend.write(`${world.directory}///a.txt`, "second")
      assert.strictEqual(await content(world, "a.txt"), "second")
    }
  }
]

const reading: ReadonlyArray<Case> = [
  {
    title: "reads text with line numbers",
    check: async (world) => {
      await put(world, { "a.txt": "eins\n世界" })
      const found = await world.backend.read(`${world.directory}/a.txt`)
      assert.strictEqual(found.content, "     1\teins\n     2\t世界\n")
      assert.deepInclude(found, { mimeType: "text/plain", totalLines: 2, startLine: 1, endLine: 2 })
    }
  },
  {
    title: "reads a window of a long file",
    check: async (world) => {
      await put(world, { "a.txt": lines(1000) })
      const path = `${world.directory}/a.txt`
      for (const [offset, limit, expected] of [
        [0, 5, [1, 2, 3, 4, 5]],
        [10, 2, [11, 12]],
        [998, 500, [999, 1000]],
        [5000, 10, []],
        [0, 0, []]
      ] as const) {
        const { content, error } = await world.backend.read(path, offset, limit)
        assert.isUndefined(error)
        const numbers = [...String(content).matchAll(/line (\d+);/gu)].map(([, number]) => Number(number))
        assert.deepStrictEqual(numbers, [...expected], `${offset}, ${limit}`)
      }
    }
  },
  {
    title: "reads a long line, an empty file, and bytes of an image",
    check: async (world) => {
      await put(world, { "long.txt": `${"x".repeat(50_000)}\nend`, "empty.txt": "" })
      const { backend, directory } = world
      assert.include((await backend.read(`${directory}/long.txt`)).content, "end")
      assert.isUndefined((await backend.read(`${directory}/empty.txt`)).error)
      const png = Uint8Array.of(137, 80, 78, 71, 0, 255)
      await backend.uploadFiles([[`${directory}/a.png`, png]])
      const { content, mimeType } = await backend.read(`${directory}/a.png`)
      assert.deepStrictEqual([[...(content as Uint8Array)], mimeType], [[...png], "image/png"])
    }
  },
  {
    title: "reads whole files raw",
    check: async (world) => {
      await put(world, { "a.json": '{"a":1}' })
      const { data } = await world.backend.readRaw(`${world.directory}/a.json`)
      assert.deepInclude(data, { content: '{"a":1}', mimeType: "application/json" })
    }
  },
  {
    title: "reports a missing file to read",
    check: async ({ backend, directory }) => {
      assert.match((await backend.read(`${directory}/absent.txt`)).error ?? "", /not found/iu)
      assert.match((await backend.readRaw(`${directory}/absent.txt`)).error ?? "", /not found/iu)
    }
  }
]

/** Text before, the arguments of `edit`, and the text after with the count, or the error. */
const edits: ReadonlyArray<
  readonly [
    title: string,
    before: string,
    find: string,
    replace: string,
    after: string,
    count: number | RegExp,
    all?: true
  ]
> = [
  ["one occurrence", "Hello world\nBye world", "Bye", "So long", "Hello world\nSo long world", 1],
  ["part of a line", "the quick brown fox", "quick brown", "slow red", "the slow red fox", 1],
  ["several lines", "a\nb\nc", "a\nb", "ab", "ab\nc", 1],
  ["special characters literally", "cost: $1.00 [a-z]*", "$1.00 [a-z]*", "$2 \\1", "cost: $2 \\1", 1],
  ["Unicode", "Hi 👋 世界", "👋", "🌍", "Hi 🌍 世界", 1],
  ["white space", "a    b", "    ", " ", "a b", 1],
  ["a long text", `a${"x".repeat(2000)}b`, "x".repeat(2000), "y".repeat(3000), `a${"y".repeat(3000)}b`, 1],
  ["a text by nothing", "keep\ndrop\nkeep", "drop\n", "", "keep\nkeep", 1],
  ["a text by itself", "same", "same", "same", "same", 1],
  ["an empty file by a text", "", "", "new", "new", 1],
  ["all occurrences", "a b a c a", "a", "x", "x b x c x", 3, true],
  ["nothing if there are several occurrences", "a b a", "a", "x", "a b a", /multiple/iu],
  ["nothing if there is no occurrence", "a b a", "z", "x", "a b a", /not found/iu]
]

const editing: ReadonlyArray<Case> = [
  ...edits.map(([title, before, find, replace, after, expected, all = false]) => ({
    title: `edit replaces ${title}`,
    check: async (world: World) => {
      await put(world, { "a.txt": before })
      const { error, occurrences } = await world.backend.edit(`${world.directory}/a.txt`, find, replace, all)
      if (expected instanceof RegExp) assert.match(error ?? "", expected)
      else assert.deepStrictEqual([error, occurrences], [undefined, expected])
      assert.strictEqual(await content(world, "a.txt"), after)
    }
  })),
  {
    title: "edit reports a missing file",
    check: async ({ backend, directory }) => {
      assert.match((await backend.edit(`${directory}/absent`, "a", "b")).error ?? "", /not found/iu)
    }
  },
  {
    title: "edit keeps the permissions of a file",
    check: async (world) => {
      await run(world, "printf 'echo one' > run.sh && chmod 751 run.sh")
      await world.backend.edit(`${world.directory}/run.sh`, "one", "two")
      assert.strictEqual(await run(world, "stat -c %a run.sh; sh run.sh"), "751\ntwo\n")
    }
  }
]

const listing: ReadonlyArray<Case> = [
  {
    title: "lists files, hidden files and directories with absolute paths",
    check: async (world) => {
      await put(world, { ".hidden": "1", "plain.txt": "four", "sub dir/c.txt": "x", "测试 (1).txt": "x" })
      const { directory } = world
      for (const asked of [directory, `${directory}/`]) {
        const { error, files = [] } = await world.backend.ls(asked)
        assert.isUndefined(error)
        const found = files
          .map(({ is_dir, path }) => [path.replace(/\/+/gu, "/"), is_dir] as const)
          .toSorted(([one], [other]) => (one < other ? -1 : 1))
        assert.deepStrictEqual(found, [
          [`${directory}/.hidden`, false],
          [`${directory}/plain.txt`, false],
          [`${directory}/sub dir/`, true],
          [`${directory}/测试 (1).txt`, false]
        ])
      }
      const { files = [] } = await world.backend.ls(directory)
      const plain = files.find(({ path }) => path.endsWith("plain.txt"))
      assert.strictEqual(plain?.size, 4)
      assert.isAbove(Date.parse(plain?.modified_at ?? ""), Date.parse("2020-01-01"))
    }
  },
  {
    title: "lists an empty directory, a missing one, and one with 300 files",
    check: async (world) => {
      await run(world, "mkdir empty many && for i in $(seq 300); do : > many/file-$i; done")
      const count = async (name: string) =>
        (await world.backend.ls(`${world.directory}/${name}`)).files?.length
      assert.deepStrictEqual([await count("empty"), await count("absent"), await count("many")], [0, 0, 300])
    }
  }
]

const tree = {
  "root.txt": "Hello world\nhello again\nHello 世界",
  "sub/one.py": "say('Hello')\n# $100 [a-z]* /usr/bin",
  "sub/deep/two.py": "nothing\n\nHello: a:b:c",
  "sub/.hidden": "x"
}

const searching: ReadonlyArray<Case> = [
  {
    title: "finds literal text in all files below a directory, with line numbers",
    check: async (world) => {
      await put(world, tree)
      const find = async (pattern: string, glob?: string) => {
        const { error, matches = [] } = await world.backend.grep(pattern, world.directory, glob)
        assert.isUndefined(error)
        return matches
          .map(({ line, path, text }) => `${path.slice(world.directory.length + 1)} ${line} ${text}`)
          .toSorted()
      }
      assert.deepStrictEqual(await find("Hello"), [
        "root.txt 1 Hello world",
        "root.txt 3 Hello 世界",
        "sub/deep/two.py 3 Hello: a:b:c",
        "sub/one.py 1 say('Hello')"
      ])
      assert.deepStrictEqual(await find("Hello", "*.py"), [
        "sub/deep/two.py 3 Hello: a:b:c",
        "sub/one.py 1 say('Hello')"
      ])
      assert.deepStrictEqual(await find("世界"), ["root.txt 3 Hello 世界"])
      for (const special of ["$100", "[a-z]*", "/usr/bin", "say('"])
        assert.lengthOf(await find(special), 1, special)
      assert.deepStrictEqual(await find("absent"), [])
    }
  },
  {
    title: "searches one file, and stops at a number of matches",
    check: async (world) => {
      await put(world, { "a.txt": lines(100) })
      const path = `${world.directory}/a.txt`
      assert.deepStrictEqual((await world.backend.grep("line 50;", path)).matches, [
        { path, line: 50, text: "line 50;" }
      ])
      const { matches, truncated } = await world.backend.grep("line", world.directory, null, 7)
      assert.deepStrictEqual([matches?.length, truncated], [7, true])
    }
  },
  {
    title: "finds files by pattern, relative to a directory",
    check: async (world) => {
      await put(world, { ...tree, "file1.txt": "", "file2.txt": "", "file10.txt": "" })
      const found = async (pattern: string) => {
        const { error, files = [] } = await world.backend.glob(pattern, world.directory)
        assert.isUndefined(error)
        return files.map(({ is_dir, path }) => (is_dir ? `${path}/` : path)).toSorted()
      }
      assert.deepStrictEqual(await found("*.txt"), ["file1.txt", "file10.txt", "file2.txt", "root.txt"])
      assert.deepStrictEqual(await found("file?.txt"), ["file1.txt", "file2.txt"])
      assert.deepStrictEqual(await found("file[2-9].txt"), ["file2.txt"])
      assert.deepStrictEqual(await found("**/*.py"), ["sub/deep/two.py", "sub/one.py"])
      assert.deepStrictEqual(await found("sub/*"), ["sub/.hidden", "sub/deep/", "sub/one.py"])
      assert.deepStrictEqual(await found("**/two.*"), ["sub/deep/two.py"])
      assert.deepStrictEqual(await found("sub/.*"), ["sub/.hidden"])
      assert.deepStrictEqual(await found("*.md"), [])
    }
  }
]

const removing: ReadonlyArray<Case> = [
  {
    title: "deletes a file, and a directory with everything in it",
    check: async (world) => {
      await put(world, tree)
      const { backend, directory } = world
      for (const path of [`${directory}/root.txt`, `${directory}/sub`])
        assert.deepInclude(await backend.delete(path), { path })
      assert.deepStrictEqual((await backend.ls(directory)).files, [])
      assert.match((await backend.delete(`${directory}/sub`)).error ?? "", /not found/iu)
    }
  },
  {
    title: "deletes a link, not its target",
    check: async (world) => {
      await run(world, "mkdir kept && printf x > kept/file && ln -s kept link && ln -s nowhere dangling")
      for (const name of ["link", "dangling"])
        assert.isUndefined((await world.backend.delete(`${world.directory}/${name}`)).error)
      assert.strictEqual(await run(world, "ls; cat kept/file"), "kept\nx")
    }
  },
  {
    title: "reports why it cannot delete",
    check: async ({ backend }) => {
      assert.match((await backend.delete("/usr/bin/env")).error ?? "", /read-only/iu)
    }
  }
]

const workflows: ReadonlyArray<Case> = [
  {
    title: "commands and file tools see each other's changes",
    check: async (world) => {
      const { backend, directory } = world
      await put(world, { "main.js": "console.log(6 * 6)\n" })
      await backend.edit(`${directory}/main.js`, "6 * 6", "6 * 7")
      assert.strictEqual(await run(world, "node main.js | tee out.txt"), "42\n")
      assert.include((await backend.read(`${directory}/out.txt`)).content, "42")
      assert.lengthOf((await backend.glob("**/*", directory)).files ?? [], 2)
    }
  }
]

/** Each title begins with its area. */
export const cases: ReadonlyArray<Case> = Object.entries({
  lifeCycle,
  commands,
  copies,
  writing,
  reading,
  editing,
  listing,
  searching,
  removing,
  workflows
}).flatMap(([area, found]) => found.map(({ check, title }) => ({ title: `${area}: ${title}`, check })))
