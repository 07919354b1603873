/** Messages of configuration errors. */
import { assert, describe, it } from "@effect/vitest"
import * as ConfigurationError from "@cogni/sandbox-sessions/config/ConfigurationError"

describe("a problem", () => {
  it.each<readonly [ConfigurationError.Problem, string]>([
    [{ line: 12, column: 5, key: "sandbox.memory_limit", message: "no" }, "12:5 sandbox.memory_limit: no"],
    [{ line: 1, column: 1, key: "", message: "no" }, "1:1: no"],
    [{ key: "sandbox", message: "no" }, " sandbox: no"],
    [{ key: "", message: "no" }, " no"]
  ])("%j", (problem, said) => assert.strictEqual(ConfigurationError.describe(problem), said))
})

describe("an error", () => {
  const at = (line: number, column: number) => ({ line, column, key: "k", message: `m${line}` })

  it("lists problems in file order, with file, line, column and key", () => {
    const error = ConfigurationError.invalid("f.yaml", [at(9, 1), at(2, 7), at(2, 3)])
    assert.deepStrictEqual(error.lines, ["f.yaml:2:3 k: m2", "f.yaml:2:7 k: m2", "f.yaml:9:1 k: m9"])
    assert.strictEqual(
      error.message,
      "the configuration f.yaml is refused: f.yaml:2:3 k: m2; f.yaml:2:7 k: m2; f.yaml:9:1 k: m9"
    )
  })

  it("lists a hundred problems, and counts the rest", () => {
    const rest = Array.from({ length: 120 }, (_, line) => at(line + 2, 1))
    const error = ConfigurationError.invalid("f.yaml", [at(1, 1), ...rest])
    assert.lengthOf(error.lines, ConfigurationError.problemsMax + 1)
    assert.strictEqual(error.lines.at(-1), "f.yaml: and 21 more")
    assert.include(error.message, "; f.yaml: and 21 more")
  })

  it("has a remedy if a file cannot be read", () => {
    const error = ConfigurationError.unreadable("f.yaml", "it is not UTF-8", "Save it as UTF-8")
    assert.strictEqual(
      error.message,
      "the configuration f.yaml cannot be read: it is not UTF-8. Save it as UTF-8"
    )
    assert.deepStrictEqual(error.lines, ["f.yaml: it is not UTF-8. Save it as UTF-8"])
  })
})
