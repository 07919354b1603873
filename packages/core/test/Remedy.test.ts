/** One text for libraries and programs: names of options, which a program replaces with its own words. */
import { assert, describe, it } from "@effect/vitest"
import * as Remedy from "@cogni/sandbox-core/Remedy"

const words = Object.fromEntries(Remedy.names.map((name) => [name, `<${name.length}>`])) as unknown as Record<
  Remedy.Name,
  string
>

describe("Remedy", () => {
  it.each(Remedy.names)("replaces %s, also at the end of a sentence", (name) => {
    const text = `Set ${Remedy.named(name)}, then try again (${name}). Read ${name}.`
    const own = words[name]
    assert.strictEqual(Remedy.render(text, words), `Set ${own}, then try again (${own}). Read ${own}.`)
  })

  it("leaves longer names, paths and other words unchanged", () => {
    const text =
      "see DockerDoctorate, DockerDoctor.examine, x.DockerDoctor, /a/DockerDoctor and DockerReaper-2"
    assert.strictEqual(Remedy.render(text, words), text)
  })
})
