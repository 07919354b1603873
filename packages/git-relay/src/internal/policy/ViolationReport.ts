/**
 * Collects violations in any order and reports them in a fixed one: first the one that ended the check, then known
 * secrets, then by commit from the oldest, path and rule.
 */
import { Rule } from "../../CommitPolicy.ts"
import type { Violation } from "../../GitRelayError.ts"
import type { CommitId } from "../../Refs.ts"
import { type Found, remedies } from "./CommitRules.ts"
import { showPath } from "../git/ShownText.ts"

/** Maximum number of reported violations. */
const violationsMax = 50

/** Number of violations that ends the check. */
const foundMax = 10_000

export interface Where {
  readonly commit?: CommitId | undefined
  /** As latin1. */
  readonly path?: string | undefined
}

interface Entry extends Where {
  readonly found: Found
  readonly rank: number
}

export type ViolationReport = ReturnType<typeof make>

/** Creates a report. `order` has the positions of the commits, from the oldest. */
export const make = (order: ReadonlyMap<string, number>) => {
  const entries = new Map<string, Entry>()
  let over = false

  const put = (found: Found, { commit, path }: Where, rank: number) => {
    const key = `${found.rule} ${commit ?? ""} ${path ?? ""}`
    if (!entries.has(key)) entries.set(key, { found, commit, path, rank })
    if (entries.size >= foundMax) over = true
  }
  const compare = (a: Entry, b: Entry): number =>
    a.rank - b.rank ||
    positionOf(order, a) - positionOf(order, b) ||
    compareText(a.path ?? "", b.path ?? "") ||
    Rule.literals.indexOf(a.found.rule) - Rule.literals.indexOf(b.found.rule)

  const told = () => [...entries.values()].toSorted(compare).slice(0, violationsMax)

  return {
    /** Adds a violation. A rule is reported once for a commit and a path. */
    add: (found: Found, where: Where) => put(found, where, found.rule === "known-secret" ? 1 : 2),
    /** Adds a violation that ends the check. */
    end: (found: Found, where: Where) => {
      put(found, where, 0)
      over = true
    },
    ended: () => over,
    /** Paths of the reported violations. */
    paths: () => told().flatMap(({ path }) => (path === undefined ? [] : [path])),
    /** Returns the violations to report. Paths that contain a secret are not shown. */
    result: (secretPaths: ReadonlySet<string>) => ({
      violations: told().map(({ commit, found: { detail, rule }, path }): Violation => ({
        rule,
        ...(commit === undefined ? {} : { commit }),
        ...(path === undefined ? {} : { path: secretPaths.has(path) ? hiddenPath : showPath(path) }),
        detail,
        remedy: remedies[rule]
      })),
      violationsTotal: entries.size
    })
  }
}

const hiddenPath = "[a path with a secret in it]"

const positionOf = (order: ReadonlyMap<string, number>, { commit }: Entry): number =>
  commit === undefined ? -1 : (order.get(commit) ?? -1)

const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)
