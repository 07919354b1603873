/** Checks that the programs that every cold start waits for stay small: a module of Perl takes as long as all of one. */
import { it } from "@effect/vitest"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

const programs = ["bridge", "entrypoint", "init", "probe", "program"].map(
  (name) => `images/runtime/cogni-${name}`
)

/** A module that is loaded, and a variable that loads one: `%!` and `%+`. */
const modules =
  /(?:^|[;{(]|\bdo\b)\s*(?:use|no|require) (?!strict;|'\/usr\/local\/)[^;}]*|[$%@][!+-](?:\{|\b)[^;]*/gmu

it("the programs that a cold start waits for load no module", () => {
  none(
    programs.flatMap((path) =>
      [
        ...SourceTree.read(path)
          .replaceAll(/^\s*#.*/gmu, "")
          .matchAll(modules)
      ].map(([found]) => `${path}: ${found.trim()}`)
    ),
    "Write the few lines that you need, or load the module where no start waits for it"
  )
})
