import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as MemoryObjects from "../src/internal/git/MemoryObjects.ts"
import * as GitObject from "../src/internal/git/GitObject.ts"

const byte = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 }))
const utf8 = (text: string) => Buffer.from(text, "utf8")
const id = "0123456789abcdef0123456789abcdef01234567"
const plain = `tree ${id}\nparent ${id}\nauthor A <a@b> 1 +0000\ncommitter C <c@d> 2 -0130\n`

describe("trees", () => {
  const name = Schema.Array(byte).check(Schema.isMinLength(1))
  const entry = Schema.Struct({
    mode: Schema.Literals(["40000", "100644", "100755", "120000", "160000", "040000", "777"]),
    name,
    id: Schema.Array(byte).check(Schema.isMinLength(32), Schema.isMaxLength(32))
  })

  it.prop(
    "parses what it encodes",
    [Schema.Array(entry), Schema.Literals(["sha1", "sha256"])],
    ([raw, format]) => {
      const entries = raw.map(({ id, mode, name }, index) => ({
        mode,
        name: `${index}${Buffer.from(name).toString("latin1").replace(/[/\0]/gu, "_")}`,
        id: Buffer.from(id)
          .toString("hex")
          .slice(0, format === "sha1" ? 40 : 64)
      }))
      assert.deepStrictEqual(GitObject.parseTree(GitObject.encodeTree(entries), format), entries)
    }
  )

  it.prop(
    "refuses any bytes, or parses them to a tree with the same encoding",
    [Schema.Array(byte), Schema.Array(entry), Schema.Int, Schema.Literals(["sha1", "sha256"])],
    ([noise, raw, where, format]) => {
      const whole = GitObject.encodeTree(
        raw.map(({ id, mode, name }) => ({
          mode,
          name: Buffer.from(name).toString("latin1"),
          id: Buffer.from(id)
            .toString("hex")
            .slice(0, format === "sha1" ? 40 : 64)
        }))
      )
      const cut = Math.abs(where) % (whole.byteLength + 1)
      const broken = Buffer.concat([whole.subarray(0, cut), Uint8Array.from(noise), whole.subarray(cut)])
      for (const bytes of [Buffer.from(noise), Buffer.from(whole), broken]) {
        const entries = GitObject.parseTree(bytes, format)
        if (entries !== undefined) assert.isTrue(bytes.equals(GitObject.encodeTree(entries)))
      }
    },
    { arbitrary: { runs: 1000, seed: "trees" } }
  )

  it("refuses a tree with a name that is empty, has a slash or occurs twice", () => {
    const one = { mode: "100644", name: "a", id }
    const parse = (entries: ReadonlyArray<GitObject.TreeEntry>) =>
      GitObject.parseTree(GitObject.encodeTree(entries), "sha1")
    assert.deepStrictEqual(parse([one]), [one])
    assert.deepStrictEqual(parse([]), [])
    assert.isUndefined(parse([{ ...one, name: "" }]))
    assert.isUndefined(parse([{ ...one, name: "a/b" }]))
    assert.isUndefined(parse([one, { ...one, mode: "40000" }]))
    assert.isUndefined(parse([{ ...one, mode: "" }]))
    assert.isUndefined(parse([{ ...one, mode: "10x644" }]))
    assert.isUndefined(parse([{ ...one, mode: "00000100644" }]))
    assert.isUndefined(GitObject.parseTree(GitObject.encodeTree([one]), "sha256"))
  })

  it("parses a large tree, and refuses endless noise at once", () => {
    const entries = Array.from({ length: 100_000 }, (_, index) => ({ mode: "100644", name: `f${index}`, id }))
    assert.lengthOf(GitObject.parseTree(GitObject.encodeTree(entries), "sha1")!, 100_000)
    assert.isUndefined(GitObject.parseTree(new Uint8Array(16 * 1024 * 1024).fill(0x31), "sha1"))
  })
})

describe("commits", () => {
  it("parses all parts of a commit", () => {
    const text = `${plain}gpgsig -----BEGIN\n author Z <z@z>\n\nsübject\n\nbody\n`
    const commit = GitObject.parseCommit(utf8(text), "sha1")!
    assert.deepStrictEqual(
      {
        ...commit,
        header: commit.header.split("\n").length,
        message: Buffer.from(commit.message, "latin1").toString()
      },
      {
        tree: id,
        parents: [id],
        author: "A <a@b>",
        committer: "C <c@d>",
        header: 6,
        message: "sübject\n\nbody\n"
      }
    )
    assert.strictEqual(GitObject.parseCommit(utf8(plain), "sha1")?.message, "")
    assert.strictEqual(GitObject.treeOfCommit(utf8(text), "sha1"), id)
  })

  it.each([
    "",
    `${id}\n`,
    plain.replace("tree", "trees"),
    plain.replace(id, id.toUpperCase()),
    plain.replace(id, `${id}0`),
    plain.replace(`parent ${id}`, "parent 1"),
    plain.replace("author A <a@b> 1 +0000\n", ""),
    plain.replace("A <a@b>", "nobody"),
    `${plain}parent ${id}\n\nx`,
    `${plain}tree ${id}\n\nx`,
    `${plain}author B <b@b> 1 +0000\n\nx`
  ])("refuses %j", (text) => assert.isUndefined(GitObject.parseCommit(utf8(text), "sha1")))

  it.prop(
    "never throws, for any bytes",
    [Schema.Array(byte), Schema.String, Schema.Int],
    ([noise, text, where]) => {
      const cut = Math.abs(where) % plain.length
      const broken = `${plain.slice(0, cut)}${text}${plain.slice(cut)}`
      for (const bytes of [Uint8Array.from(noise), utf8(broken), utf8(plain.slice(0, cut))]) {
        GitObject.parseCommit(bytes, "sha256")
        GitObject.treeOfCommit(bytes, "sha1")
        const parsed = GitObject.parseCommit(bytes, "sha1")
        if (parsed !== undefined) assert.match(parsed.tree, /^[0-9a-f]{40}$/u)
      }
    }
  )
})

describe("objects in memory", () => {
  it("have git's own IDs", () => {
    const objects = MemoryObjects.make()
    assert.strictEqual(objects.putBlob("hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a")
    assert.strictEqual(objects.putTree([]), "4b825dc642cb6eb9a060e54bf8d69288fbee4904")
    assert.strictEqual(
      MemoryObjects.make("sha256").putTree([]),
      "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
    )
    const tree = objects.putFiles({ "a/x": "1", "a.b": "2", "a-b": "3" })
    const names = GitObject.parseTree(objects.get(tree)!.content, "sha1")!.map(({ name }) => name)
    assert.deepStrictEqual(names, ["a-b", "a.b", "a"])
  })
})
