import * as CommitPolicy from "@cogni/sandbox-git-relay/CommitPolicy"
import type { CommitId } from "@cogni/sandbox-git-relay/Refs"
import * as MemoryObjects from "../src/internal/git/MemoryObjects.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import * as CommitWalk from "../src/internal/policy/CommitWalk.ts"

type Files = Parameters<MemoryObjects.MemoryObjects["putFiles"]>[0]

const token = `ghp_${"aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3eF5"}`
const known = { name: "model_key", secret: "Zq8vK2mW5xR9tB4nL7cJ3hD6" }
const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${"4".repeat(64)}\nsize 4\n`

/** A repository with a base, and commits on top of it. */
const history = (start: Files) => {
  const objects = MemoryObjects.make()
  let time = 0
  const commit = (files: Files, parents: ReadonlyArray<CommitId>) =>
    objects.putCommit({ tree: objects.putFiles(files), parents, time: ++time })
  const base = commit(start, [])
  const walk = (tip: CommitId) =>
    CommitWalk.walk({
      reader: objects.reader,
      base,
      tip,
      policy: CommitPolicy.defaultPolicy,
      objectFormat: "sha1",
      secrets: [known]
    })
  return { commit, base, walk }
}

describe("random histories", () => {
  const plants: ReadonlyArray<readonly [rule: string, path: string, file: Files[string]]> = [
    ["protected-path", ".github/workflows/x.yml", "on: push"],
    ["submodule", "sub", { mode: "160000", id: "3".repeat(40) }],
    ["lfs-config", "a/.lfsconfig", "x"],
    ["lfs-pointer", "big", pointer],
    ["symlink", "d/l", { mode: "120000", content: "../.." }],
    ["dot-git", "d/.git/x", "x"],
    ["secret", "d/key", token],
    ["known-secret", "d/known", Buffer.from(known.secret).toString("hex")]
  ]
  const small = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1000 }))
  const Step = Schema.Struct({
    parent: small,
    merge: Schema.optionalKey(small),
    /** Parent whose files a commit keeps: 0 is `-s ours`, 1 is `-s theirs`. */
    keep: Schema.Literals([0, 1]),
    edit: small,
    plant: Schema.optionalKey(Schema.Literals([0, 1, 2, 3, 4, 5, 6, 7])),
    clean: Schema.Boolean
  })

  it.effect.prop(
    "finds everything that is planted, and nothing else",
    [Schema.NonEmptyArray(Step)],
    ([steps]) =>
      Effect.gen(function* () {
        const start: Files = { README: "x", "d/e/f": "y" }
        const { base, commit, walk } = history(start)
        const made: Array<{ readonly id: CommitId; readonly files: Files }> = [{ id: base, files: start }]
        const parentOf = (step: typeof Step.Type) => made[step.parent % made.length]!
        const planted = new Map<CommitId, string>()
        const ends = new Set<CommitId>([base])
        for (const [index, step] of steps.slice(0, 12).entries()) {
          const one = parentOf(step)
          const two = step.merge === undefined ? one : made[step.merge % made.length]!
          const kept = step.keep === 0 ? one.files : two.files
          const bad = new Set(plants.map(([, path]) => path))
          const from = step.clean
            ? Object.fromEntries(Object.entries(kept).filter(([path]) => !bad.has(path)))
            : kept
          const edited: Files = { ...from, [`d/n${step.edit % 5}`]: `${index} ${step.edit}` }
          const plant = step.plant === undefined ? undefined : plants[step.plant]
          const files = plant === undefined ? edited : { ...edited, [plant[1]]: plant[2] }
          const id = commit(files, one === two ? [one.id] : [one.id, two.id])
          made.push({ id, files })
          if (plant !== undefined && !(plant[1] in edited)) planted.set(id, `${plant[0]} ${plant[1]}`)
          for (const parent of [one, two]) ends.delete(parent.id)
          ends.add(id)
        }
        // Merges all commits into one history that keeps no planted file.
        let tip = base
        for (const end of ends) if (end !== tip) tip = commit(start, [tip, end])
        const walked = yield* walk(tip)
        const found = walked.violations.map(({ path, rule }) => `${rule} ${path}`)
        const cut = walked.violationsTotal > walked.violations.length
        // If several commits make the same change to the same directory, the first one is reported.
        for (const [id, is] of planted) assert.isTrue(cut || found.includes(is), `${is} of ${id}`)
        if (planted.size === 0) assert.strictEqual(walked.violationsTotal, 0)
        const kinds = new Set(planted.values())
        for (const is of found) assert.isTrue(kinds.has(is), `${is} was never planted`)
      }),
    { arbitrary: { runs: 300, seed: "histories" } }
  )
})
