/**
 * Checks that what every start waits for stays small: the programs of a cold start, where a module of Perl takes as
 * long as all of one, and the modules that the command loads.
 */
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

/** Libraries that few starts of the command need: each takes 15 to 30 ms of processor time to load. */
const lateLibraries = /^(?:import|export) (?!type\b)[^"=(]*"(?:jose|@secretlint\/[^"]*)"/gmu

it("the command loads large libraries when it needs them", () => {
  none(
    SourceTree.files("packages/*/src/**/*.ts").flatMap((path) =>
      [...SourceTree.read(path).matchAll(lateLibraries)].map(([found]) => `${path}: ${found}`)
    ),
    "Load it where it is used first: import(…)"
  )
})
