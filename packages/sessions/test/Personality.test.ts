/** Personalities and skills as files: what is written is read back, and what a reviewer could not see is refused. */
import * as Personality from "@cogni/sandbox-sessions/config/Personality"
import { describe as describeProblem } from "@cogni/sandbox-sessions/config/ConfigurationError"
import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"

const problemsOf = (found: ReturnType<typeof Personality.parse>): ReadonlyArray<string> =>
  Result.isFailure(found) ? found.failure.map(describeProblem) : []

/** Texts that mean something in YAML, or at the end of its part of the file. */
const hostile = (
  "yes,null,0o17,1e3,~,2026-01-01,- a,a: b,a #b,&a,*a,!!js/function x,---,...,{a: 1},[1,',\",|,>,%YAML 1.1,\\," +
  "<<,__proto__,Ünï 👩‍💻,=,@,`,a\\nb,? x,: x"
).split(",")

const Line = Schema.Union([Schema.Literals(hostile), Schema.String])

const isPersonality = Schema.is(Personality.Personality)
const isSkill = Schema.is(Personality.Skill)

const arbitrary = { arbitrary: { runs: 1000, seed: "personality-files" } }

describe("a file of a personality", () => {
  it.prop(
    "is read back unchanged, whatever its texts contain",
    [Line, Line, Schema.Literals(["yes", "null", "openai/gpt-5:free", "#m", "~", "1.0"]), Schema.Array(Line)],
    ([displayName, description, model, lines]) => {
      const instructions = lines.join("\n").trim()
      for (const one of [
        { displayName, description, model, skills: ["one", "2"], instructions },
        { description, instructions }
      ]) {
        if (isPersonality(one))
          assert.deepStrictEqual(Result.getOrThrow(Personality.parse(Personality.format(one))), one)
      }
      const skill = { description, instructions }
      if (isSkill(skill)) {
        const written = Personality.formatSkill("a-skill", skill)
        assert.deepStrictEqual(Result.getOrThrow(Personality.parseSkill("a-skill", written)), skill)
      }
    },
    arbitrary
  )

  it.each(hostile)("is read back unchanged with %j in every text", (text) => {
    const one = { displayName: text, description: text, instructions: `${text}\n${text}` }
    assert.isTrue(isPersonality(one))
    assert.deepStrictEqual(Result.getOrThrow(Personality.parse(Personality.format(one))), one)
  })

  it("has no empty settings", () => {
    assert.strictEqual(Personality.format({ skills: [], instructions: "Rhyme." }), "---\n---\n\nRhyme.\n")
    assert.deepStrictEqual(Result.getOrThrow(Personality.parse("---\n---\n\nRhyme.\n")), {
      instructions: "Rhyme."
    })
  })

  it.each([
    ["no settings", "Rhyme.", "1:1: Expected a first line"],
    ["settings without an end", "---\nmodel: m\n", "1:1: Expected a first line"],
    ["a list of settings", "---\n- a\n---\nx\n", "2:1: Expected settings"],
    ["an unknown setting", "---\nmodle: m\n---\nx\n", "2:1 modle: "],
    ["a setting in its other spelling", "---\ndisplayName: m\n---\nx\n", "2:1 displayName: "],
    ["a setting twice", "---\nmodel: m\nmodel: n\n---\nx\n", "3:1 model: Expected each key once"],
    ["a tag", "---\nmodel: !!js/function m\n---\nx\n", "2:8: Expected no tag"],
    ["a model with a space", "---\nmodel: a b\n---\nx\n", "2:1 model: Expected the name of a model"],
    ["a skill that leaves its directory", "---\nskills: [../x]\n---\nx\n", "2:10 skills.0: Expected a name"],
    ["instructions in the settings", "---\ninstructions: x\n---\ny\n", "instructions"],
    ["an empty text", "---\nmodel: m\n---\n\n", "Expected a text"],
    ["a right-to-left override", "---\n---\nx\u202ey\n", "U+202E in line 1"],
    ["an invisible tag", "---\n---\nx\n\u{e0041}\n", "U+E0041 in line 2"],
    ["a zero-width space", "---\ndescription: a\u200bb\n---\nx\n", "U+200B"],
    ["text in selectors of variants", "---\n---\nx😀\u{e0141}\u{e0142}\n", "U+E0141 in line 1"],
    ["a selector after a letter", "---\n---\nx\ufe0f\n", "U+FE0F"],
    ["two selectors after an emoji", "---\n---\n❤\ufe0f\ufe0e\n", "U+FE0E"],
    ["a joiner between letters", "---\n---\nx\u200dy\n", "U+200D"],
    ["a Hangul filler", "---\n---\nx\u3164\n", "U+3164"],
    ["a grapheme joiner", "---\n---\nx\u034f\n", "U+034F"],
    ["an empty Braille pattern", "---\n---\nx\u2800\n", "U+2800"],
    ["a Mongolian selector", "---\n---\nx\u180b\n", "U+180B"],
    ["an escape of a terminal", "---\n---\nx\u001b[2J\n", "U+001B"],
    ["lines of Windows", "---\n---\nx\r\ny\n", "U+000D"],
    ["more than 32 KiB", `---\n---\n${"ü".repeat(16 * 1024)}x\n`, "at most 32768 bytes"]
  ])("is refused with %s", (_, text, says) => {
    const problems = problemsOf(Personality.parse(text))
    assert.isTrue(problems.length > 0)
    assert.include(problems.join("\n"), says)
  })

  it.each(["❤️", "👨‍👩‍👧", "👩🏽‍💻", "🏳️‍🌈", "שלום", "日本語", "한국어", "e\u0301"])("may have the text %s", (text) => {
    assert.isTrue(isPersonality({ instructions: text }))
  })

  it("has the name of its directory, if it is of a skill", () => {
    const written = Personality.formatSkill("one", { description: "d", instructions: "i" })
    assert.isTrue(Result.isFailure(Personality.parseSkill("two", written)))
  })
})

describe("names", () => {
  it.each(["../x", "/x", "x/y", "", "X", "x.md", "xö", "сoder", "-x", ".x", "x\n", "a".repeat(65)])(
    "%j is not a valid name",
    (name) => {
      assert.isFalse(Schema.is(Personality.PersonalityName)(name))
      assert.isFalse(Schema.is(Personality.SkillName)(name))
    }
  )
})

describe("an edit", () => {
  it("keeps fields that are absent, and removes those that are null", () => {
    const before = { model: "m", description: "d", instructions: "i" }
    assert.deepStrictEqual(Personality.edited(before, { model: null, description: "e" }), {
      description: "e",
      instructions: "i"
    })
  })
})
