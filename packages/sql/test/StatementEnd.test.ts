/** The end of a statement, and semicolons that do not end one. */
import { assert, describe, it } from "@effect/vitest"
import * as ReadOnlyPostgres from "../src/internal/ReadOnlyPostgres.ts"
import * as StatementEnd from "../src/internal/StatementEnd.ts"

describe("the rest after a statement", () => {
  it("begins after a semicolon that nothing hides", () => {
    for (const [text, rest] of [
      ["SELECT 1", undefined],
      ["SELECT 1;", ""],
      ["SELECT ';', 'it''s;' ; -- x", " -- x"],
      [String.raw`SELECT E'\';' || name';' ; x`, " x"],
      [String.raw`SELECT '\'; x`, " x"],
      ['SELECT ";" FROM "a"";b";x', "x"],
      ["SELECT $$;$$, $a$ ; $b$;$$ $a$; x", " x"],
      ["SELECT a$b$; x$b$", " x$b$"],
      ["SELECT $1; x $1", " x $1"],
      ["SELECT 1 -- ; '\n; x", " x"],
      ["SELECT 1 /* ; /* ; */ ; ' */; x", " x"],
      ["SELECT 1 /* ; /* */", undefined],
      ["SELECT '; x", undefined],
      ["SELECT $$; x", undefined],
      ["SELECT ü;x", "x"]
    ] as const)
      assert.strictEqual(StatementEnd.restOf(text), rest, text)
  })
})

describe("a query of PostgreSQL", () => {
  it("is refused with what follows its semicolon, whatever the types of its columns", () => {
    for (const tail of ["; -- words", ";/* words */", "; SELECT 2", "; ; --"])
      assert.include(
        ReadOnlyPostgres.refusalOf(`SELECT 1${tail}`) ?? "",
        "Leave out the semicolon and what follows it"
      )
    for (const text of ["SELECT 1;", "SELECT 1 ;\n; ", "SELECT 1 -- words;", "SELECT 'a; b'"])
      assert.isUndefined(ReadOnlyPostgres.refusalOf(text), text)
  })
})
