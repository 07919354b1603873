/** Checks that the programs that every cold start waits for stay small: a module of Perl takes as long as all of one. */
import { it } from "@effect/vitest"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

const programs = ["cogni-bridge", "cogni-entrypoint", "cogni-init", "cogni-probe"].map(
  (name) => `images/runtime/${name}`
)

it("the programs that a cold start waits for load no module", () => {
  none(
    programs.flatMap((path) =>
      [...SourceTree.read(path).matchAll(/^\s*(?:use|no|require) (?!strict;|'\/usr\/local\/)[^;]*/gmu)].map(
        ([found]) => `${path}: ${found.trim()}`
      )
    ),
    "Write the few lines that you need, or load the module where no start waits for it"
  )
})
