import * as CommitPolicy from "@cogni/sandbox-git-relay/CommitPolicy"
import type { CommitId } from "@cogni/sandbox-git-relay/Refs"
import * as MemoryObjects from "../src/internal/git/MemoryObjects.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as CommitWalk from "../src/internal/policy/CommitWalk.ts"

const { defaultPolicy } = CommitPolicy
type Files = Parameters<MemoryObjects.MemoryObjects["putFiles"]>[0]

const token = `ghp_${"aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3eF5"}`
const known = { name: "model_key", secret: "Zq8vK2mW5xR9tB4nL7cJ3hD6" }
const pointer = (n: number) =>
  `version https://git-lfs.github.com/spec/v1\noid sha256:${String(n).repeat(64).slice(0, 64)}\nsize ${n}\n`
const link = (target: string) => ({ mode: "120000", content: target })
const submodule = (n: number) => ({ mode: "160000", id: String(n).repeat(40) })

const baseFiles: Files = {
  "README.md": "hello\n",
  "src/a.ts": "export {}\n",
  ".github/workflows/ci.yml": "on: push\n",
  "vendored/lib": submodule(1),
  "old/key.txt": `${token}\n`,
  "old/large.bin": pointer(1),
  "old/known.txt": known.secret,
  current: link("src")
}

/** A repository with a base, and commits on top of it. */
const history = (files: Files = baseFiles, format?: "sha1" | "sha256") => {
  const objects = MemoryObjects.make(format)
  let time = 0
  const commit = (
    files: Files,
    parents: ReadonlyArray<CommitId>,
    options: Partial<MemoryObjects.CommitOptions> = {}
  ) => objects.putCommit({ tree: objects.putFiles(files), parents, time: ++time, ...options })
  const base = commit(files, [])
  const walk = (tip: CommitId, policy: Partial<CommitPolicy.Policy> = {}) =>
    CommitWalk.walk({
      reader: objects.reader,
      base,
      tip,
      policy: { ...defaultPolicy, ...policy },
      objectFormat: objects.format,
      secrets: [known]
    })
  return { objects, commit, base, walk }
}

const short = (walked: CommitWalk.Walked) =>
  walked.violations.map(({ path, rule }) => `${rule} ${path ?? "-"}`)

describe("accepted commits", () => {
  it.effect("accepts an ordinary history", () =>
    Effect.gen(function* () {
      for (const format of ["sha1", "sha256"] as const) {
        const { "vendored/lib": _, ...files } = baseFiles
        const { base, commit, walk } = history(files, format)
        const one = commit({ ...files, "src/b.ts": "1", "run.sh": { mode: "100755", content: "#!" } }, [base])
        const side = commit({ ...files, "ünï/x": "2", "src/l": link("../README.md") }, [base])
        const merge = commit({ ...files, "src/b.ts": "1", "ünï/x": "2", "src/l": link("../README.md") }, [
          one,
          side
        ])
        assert.deepStrictEqual(yield* walk(merge), {
          commits: 3,
          paths: 4,
          violations: [],
          violationsTotal: 0
        })
      }
    })
  )

  it.effect("accepts an empty history", () =>
    Effect.gen(function* () {
      const { base, walk } = history()
      assert.deepStrictEqual(yield* walk(base), { commits: 0, paths: 0, violations: [], violationsTotal: 0 })
    })
  )

  it.effect("accepts files of the base that are only moved, except for the run's own secrets", () =>
    Effect.gen(function* () {
      const { base, commit, walk } = history()
      const { "old/key.txt": key, "old/large.bin": large, ...rest } = baseFiles
      const moved = { ...rest, "new/key.txt": key!, "new/large.bin": large! }
      assert.deepStrictEqual(short(yield* walk(commit(moved, [base]))), [])
      assert.deepStrictEqual(short(yield* walk(commit({ ...baseFiles, "key.txt": `${token} \n` }, [base]))), [
        "secret key.txt"
      ])
      const again = commit({ ...baseFiles, "x.txt": known.secret }, [base])
      assert.deepStrictEqual(short(yield* walk(again)), ["known-secret x.txt"])
      const tight = { blobBytesMax: 20, totalBytesMax: 20 }
      assert.deepStrictEqual(short(yield* walk(commit(moved, [base]), tight)), [])
      assert.deepStrictEqual(short(yield* walk(commit(moved, [base]), { totalBytesMax: 20 })), [])
      const named = history({ [`${token}.txt`]: "1" })
      const changed = named.commit({ [`${token}.txt`]: "2" }, [named.base])
      assert.deepStrictEqual(short(yield* named.walk(changed)), [], "a name that was there")
    })
  )

  it.effect("accepts everything that a policy allows", () =>
    Effect.gen(function* () {
      const { base, commit, walk } = history()
      const allowed = {
        submodules: "allow",
        lfsPointers: "allow",
        symlinks: "allow",
        secrets: "allow"
      } as const
      const files = {
        ...baseFiles,
        "vendored/lib": submodule(2),
        ".gitmodules": '[submodule "lib"]\n\tpath = vendored/lib\n',
        "new.bin": pointer(3),
        out: link("/etc/hosts"),
        "key.txt": `x ${token}`
      }
      const tip = commit(files, [base], { message: `see ${token}` })
      assert.deepStrictEqual(short(yield* walk(tip, allowed)), [])
      assert.deepStrictEqual(short(yield* walk(tip)), [
        "secret -",
        "submodule .gitmodules",
        "secret key.txt",
        "lfs-pointer new.bin",
        "symlink out",
        "submodule vendored/lib"
      ])
      const carriage = commit({ ...files, a: "[x]\r\n", ".gitmodules": "[x]\r\n" }, [base])
      assert.deepStrictEqual(short(yield* walk(carriage, allowed)), ["submodule .gitmodules"])
      const leaked = commit({ ...files, x: known.secret.split("").join(" ") }, [base])
      assert.deepStrictEqual(short(yield* walk(leaked, allowed)), ["known-secret x"])
    })
  )
})

describe("refused commits", () => {
  const rows: ReadonlyArray<readonly [expected: string, files: Files]> = [
    ["protected-path .github/workflows/ci.yml", { ".github/workflows/ci.yml": "on: pull_request_target\n" }],
    ["submodule vendored/lib", { "vendored/lib": submodule(2) }],
    ["submodule vendored/other", { "vendored/other": submodule(1) }],
    ["submodule src/.gitmodules", { "src/.gitmodules": "x" }],
    ["lfs-config .lfsconfig", { ".lfsconfig": "[lfs]\n\turl = https://evil.example\n" }],
    ["lfs-pointer big.bin", { "big.bin": pointer(2) }],
    ["symlink src/up", { "src/up": link("../../etc") }],
    ["symlink current", { current: link("/etc") }],
    ["symlink README.md", { "README.md": link("/etc/x") }],
    ["symlink long", { long: link("x".repeat(5000)) }],
    ["control-character a\\x1bb", { "a\u001bb": "x" }],
    ["dot-git sub/.GIT/hooks/pre-push", { "sub/.GIT/hooks/pre-push": "x" }],
    ["mode tool", { tool: { mode: "104755", content: "x" } }],
    ["secret src/key.ts", { "src/key.ts": `const key = "${token}" // secretlint-disable-line\n` }],
    ["known-secret x.txt", { "x.txt": Buffer.from(known.secret).toString("base64") }],
    ["known-secret l", { l: link(`a/${known.secret}`) }],
    ["known-secret [a path with a secret in it]", { [`d/${known.secret}/x`]: "x" }],
    ["secret [a path with a secret in it]", { [`d/${token}.txt`]: "x" }]
  ]

  it.effect.each(rows)("reports %s", ([expected, files]) =>
    Effect.gen(function* () {
      const { base, commit, walk } = history()
      const tip = commit({ ...baseFiles, ...files }, [base])
      const walked = yield* walk(tip)
      assert.deepStrictEqual(short(walked), [expected])
      assert.strictEqual(walked.violations[0]?.commit, tip)
      for (const secret of [token, known.secret]) assert.notInclude(JSON.stringify(walked), secret)

      const back = commit(baseFiles, [tip])
      assert.include(short(yield* walk(back)), expected, "taken away again")
      const merge = commit(baseFiles, [base, tip])
      assert.include(short(yield* walk(merge)), expected, "merged without effect")
    })
  )

  it.effect("refuses the removal of a protected path or a submodule", () =>
    Effect.gen(function* () {
      const { base, commit, walk } = history()
      const { ".github/workflows/ci.yml": _, "vendored/lib": __, ...files } = baseFiles
      const rules = ["protected-path .github/workflows/ci.yml", "submodule vendored/lib"]
      assert.deepStrictEqual(short(yield* walk(commit(files, [base]))), rules)
      assert.deepStrictEqual(short(yield* walk(commit({ ...files, ".github": "a file" }, [base]))), rules)
    })
  )

  it.effect("checks a file that becomes a directory, and the reverse", () =>
    Effect.gen(function* () {
      const { base, commit, walk } = history({ a: "1", "b/c": "2" })
      const walked = yield* walk(commit({ "a/.git/x": "1", b: link("..") }, [base]))
      assert.deepStrictEqual([walked.paths, ...short(walked)], [4, "dot-git a/.git/x", "symlink b"])
    })
  )

  it.effect("checks an existing entry of which only the mode changes", () =>
    Effect.gen(function* () {
      const { base, commit, objects, walk } = history({ a: "/etc/passwd", b: "x" })
      const tip = commit({ a: link("/etc/passwd"), b: { mode: "100755", content: "x" } }, [base])
      assert.deepStrictEqual(short(yield* walk(tip)), ["symlink a"])
      const whole = objects.putTree([{ mode: "40000", name: "a", id: objects.putBlob("x") }])
      const wrong = objects.putCommit({ tree: whole, parents: [base] })
      assert.deepStrictEqual(short(yield* walk(wrong)), ["object a"])
      const listing = objects.get(objects.putFiles({ x: "1" }))!.content
      const blobAsTree = objects.putTree([{ mode: "40000", name: "a", id: objects.putBlob(listing) }])
      const disguised = objects.putCommit({ tree: blobAsTree, parents: [base] })
      assert.deepStrictEqual(short(yield* walk(disguised)), ["object a"])
      const treeAsBlob = commit({ a: "/etc/passwd", b: { mode: "100644", id: objects.putFiles({}) } }, [base])
      assert.deepStrictEqual(short(yield* walk(treeAsBlob)), ["object b"])
    })
  )

  it.effect(
    "checks a file in every place, of which only one makes it a link that leaves the repository",
    () =>
      Effect.gen(function* () {
        const { base, commit, walk } = history()
        const files = { ...baseFiles, "a/b/l": link("../../x"), "a/l": link("../../x"), text: "../../x" }
        assert.deepStrictEqual(short(yield* walk(commit(files, [base]))), ["symlink a/l"])
      })
  )

  it.effect("checks the message and the header of a commit", () =>
    Effect.gen(function* () {
      const { base, commit, walk } = history()
      const of = (options: Partial<MemoryObjects.CommitOptions>) =>
        Effect.map(walk(commit({ ...baseFiles, x: "x" }, [base], options)), short)
      assert.deepStrictEqual(yield* of({ message: `key\n\n${token}\n` }), ["secret -"])
      assert.deepStrictEqual(yield* of({ message: `the key is ${known.secret}` }), ["known-secret -"])
      assert.deepStrictEqual(yield* of({ author: `${known.secret} <a@b>` }), ["known-secret -"])
      assert.deepStrictEqual(yield* of({ header: `x-note ${known.secret}` }), ["known-secret -"])
      assert.deepStrictEqual(yield* of({ committer: `${token} <a@b>` }), ["secret -"])
      assert.deepStrictEqual(yield* of({ message: "\u001b]0;x\u0007" }), ["message -"])
      assert.deepStrictEqual(yield* of({ message: "x".repeat(70_000) }), ["message-bytes -"])
      assert.deepStrictEqual(yield* of({ message: "x".repeat(200_000) }), ["message-bytes -"])
    })
  )

  it.effect("refuses histories that do not build on the base, or that are incomplete or malformed", () =>
    Effect.gen(function* () {
      const { base, commit, objects, walk } = history()
      const root = commit({ x: "1" }, [])
      assert.deepStrictEqual(short(yield* walk(root)), ["base-ancestor -"])
      assert.deepStrictEqual(short(yield* walk(commit(baseFiles, [base, root]))), ["root-commit -"])

      const lost = commit({ x: "1" }, [base])
      const child = commit({ x: "2" }, [lost, base])
      objects.remove(lost)
      assert.deepStrictEqual(short(yield* walk(child)), ["object -"])

      const bare = objects.putCommit({ tree: "1".repeat(40), parents: [base] })
      assert.deepStrictEqual(short(yield* walk(bare)), ["object -"])
      const empty = objects.putTree([{ mode: "40000", name: token, id: objects.putTree([]) }])
      const walked = yield* walk(objects.putCommit({ tree: empty, parents: [base] }))
      assert.deepStrictEqual(short(walked).slice(0, 1), ["object [a path with a secret in it]"])
      const blob = objects.putTree([{ mode: "100644", name: "x", id: "2".repeat(40) }])
      const without = objects.putCommit({ tree: blob, parents: [base] })
      assert.include(short(yield* walk(without)), "object x")
      const broken = objects.put("tree", Buffer.from("nonsense"))
      assert.deepStrictEqual(short(yield* walk(objects.putCommit({ tree: broken, parents: [base] }))), [
        "object -"
      ])
    })
  )

  it.effect("refuses a grafted history, whose listed parents differ from the written ones", () =>
    Effect.gen(function* () {
      const { base, commit, objects } = history()
      const hidden = commit({ ...baseFiles, ".github/workflows/ci.yml": "x" }, [base])
      const tip = commit({ ...baseFiles, x: "1" }, [hidden])
      const walked = yield* CommitWalk.walk({
        reader: { ...objects.reader, commits: () => Effect.succeed([{ id: tip, parents: [base] }]) },
        base,
        tip,
        policy: defaultPolicy,
        objectFormat: "sha1",
        secrets: []
      })
      assert.deepStrictEqual(short(walked), ["object -"])
    })
  )

  it.effect("finds a change that only the second parent shows", () =>
    Effect.gen(function* () {
      const { base, commit, walk } = history()
      const side = commit({ ...baseFiles, x: "1" }, [base])
      const ours = commit({ ...baseFiles, y: "1" }, [base])
      // Relative to the first parent nothing is new. Relative to the second, a protected file is lost.
      const { "README.md": _, ...without } = baseFiles
      const first = commit({ ...without, y: "1" }, [ours])
      const merge = commit({ ...without, y: "1" }, [first, side])
      const walked = yield* walk(merge, { protectedPaths: ["README.md", "x"] })
      assert.deepStrictEqual(
        walked.violations.map(({ commit, path }) => [commit, path]),
        [
          [side, "x"],
          [first, "README.md"],
          [merge, "README.md"],
          [merge, "x"]
        ]
      )
    })
  )
})

describe("limits", () => {
  const many = (count: number, prefix = "f"): Files =>
    Object.fromEntries(
      Array.from({ length: count }, (_, index) => [`${prefix}${index}`, `${prefix}${index}`])
    )

  it.effect("refuses commits, paths, depth and sizes exactly above their limits", () =>
    Effect.gen(function* () {
      const { base, commit, walk } = history({ a: "1" })
      let tip = base
      for (let at = 0; at < 5; at++) tip = commit({ a: "1", [`x${at}`]: `${at}` }, [tip])
      assert.deepStrictEqual(short(yield* walk(tip, { commitsMax: 5 })), [])
      assert.deepStrictEqual(short(yield* walk(tip, { commitsMax: 4 })), ["commits -"])
      assert.deepStrictEqual(short(yield* walk(tip, { pathsMax: 5 })), [])
      assert.deepStrictEqual(short(yield* walk(tip, { pathsMax: 4 })), ["paths -"])
      const deep = commit({ a: "1", "1/2/3/4": "x" }, [base])
      assert.deepStrictEqual(short(yield* walk(deep, { depthMax: 4 })), [])
      assert.deepStrictEqual(short(yield* walk(deep, { depthMax: 3 })), ["depth 1/2/3"])
      assert.deepStrictEqual(short(yield* walk(deep, { treesMax: 5 })), [])
      assert.deepStrictEqual(short(yield* walk(deep, { treesMax: 4 })), ["trees 1/2/3"])
      const wide = commit({ a: "1", b: "12345", c: "123456" }, [base])
      assert.deepStrictEqual(short(yield* walk(wide, { blobBytesMax: 6, totalBytesMax: 11 })), [])
      assert.deepStrictEqual(short(yield* walk(wide, { blobBytesMax: 5 })), ["blob-bytes c"])
      assert.deepStrictEqual(short(yield* walk(wide, { totalBytesMax: 10 })), ["total-bytes -"])
      assert.deepStrictEqual(short(yield* walk(wide, { treeBytesMax: 87 })), [])
      assert.deepStrictEqual(short(yield* walk(wide, { treeBytesMax: 86 })), ["tree-bytes -"])
      assert.deepStrictEqual(short(yield* walk(wide, { treesBytesMax: 29 + 87 })), [])
      assert.deepStrictEqual(short(yield* walk(wide, { treesBytesMax: 29 + 86 })), ["tree-bytes -"])
      const long = commit({ a: "1", ["x".repeat(4097)]: "1" }, [base])
      assert.match(short(yield* walk(long))[0] ?? "", /^path-bytes x{399}…$/u)
    })
  )

  const bomb = (objects: MemoryObjects.MemoryObjects, levels: number, leaf: string) => {
    let id = leaf
    for (let level = 0; level < levels; level++)
      id = objects.putTree(["a", "b"].map((name) => ({ mode: "40000", name, id })))
    return id
  }

  it.effect("reads little more than the listings of a tree of 2^60 paths", () =>
    Effect.gen(function* () {
      for (const leaf of ["files", "nothing", "base"] as const) {
        const start = MemoryObjects.make()
        const end = leaf === "nothing" ? start.putTree([]) : start.putFiles({ x: "1" })
        const huge = bomb(start, 60, end)
        const small = start.putFiles({ x: "2" })
        const [before, after] = leaf === "base" ? [huge, small] : [small, huge]
        const base = start.putCommit({ tree: before })
        const tip = start.putCommit({ tree: after, parents: [base] })
        const walked = yield* CommitWalk.walk({
          reader: start.reader,
          base,
          tip,
          policy: defaultPolicy,
          objectFormat: "sha1",
          secrets: [known]
        })
        assert.match(short(walked)[0] ?? "", /^trees /u)
        assert.isBelow(start.reads().contents, 100)
        assert.isBelow(start.reads().infos, 100)
      }
    })
  )

  it.effect("compares the two trees of criss-cross merges once", () =>
    Effect.gen(function* () {
      const { base, commit, objects, walk } = history({ a: "1" })
      const files = [many(20, "d/x"), many(20, "d/y")] as const
      let pair = [commit(files[0], [base]), commit(files[1], [base])] as const
      for (let at = 0; at < 100; at++)
        pair = [commit(files[0], [pair[0], pair[1]]), commit(files[1], [pair[1], pair[0]])]
      const tip = commit(files[0], [pair[0], pair[1]])
      const walked = yield* walk(tip, { treesMax: 20 })
      assert.deepStrictEqual([walked.commits, walked.paths, walked.violationsTotal], [203, 41, 0])
      assert.isBelow(objects.reads().contents, 203 + 60)
    })
  )

  it.effect("reports fifty violations and counts all of them, the same every time", () =>
    Effect.gen(function* () {
      const { base, commit, walk } = history({ a: "1" })
      const files = Object.fromEntries(Array.from({ length: 60 }, (_, index) => [`l${index}`, link("/x")]))
      const one = commit({ ...files, z: known.secret }, [base])
      const tip = commit({ ...files, "0": link("/y") }, [one])
      const walked = yield* walk(tip)
      assert.deepStrictEqual([walked.violations.length, walked.violationsTotal], [50, 62])
      assert.strictEqual(short(walked)[0], "known-secret z")
      assert.deepStrictEqual(yield* walk(tip), walked)
      for (const { detail, remedy } of walked.violations) {
        assert.notMatch(detail, /\.$/u)
        assert.match(remedy, /\.$/u)
      }
    })
  )

  it.effect("stops after ten thousand violations", () =>
    Effect.gen(function* () {
      const { base, commit, walk } = history({ a: "1" })
      const tip = commit({ a: "1", ...many(10_050) }, [base])
      const walked = yield* walk(tip, { protectedPaths: ["**"], pathsMax: 20_000 })
      assert.deepStrictEqual([walked.violations.length, walked.violationsTotal], [50, 10_000])
    })
  )

  it.effect("never reads a file that is refused for its size", () =>
    Effect.gen(function* () {
      const { base, commit, objects } = history({ a: "1" })
      const tip = commit({ a: "1", big: "12345678", l: link("12345678") }, [base])
      const big = objects.putBlob("12345678")
      const walked = yield* CommitWalk.walk({
        reader: {
          ...objects.reader,
          content: (id) => (id === big ? Effect.die("it was read") : objects.reader.content(id))
        },
        base,
        tip,
        policy: { ...defaultPolicy, blobBytesMax: 7 },
        objectFormat: "sha1",
        secrets: []
      })
      assert.deepStrictEqual(short(walked), ["blob-bytes big", "symlink l"])
    })
  )
})
