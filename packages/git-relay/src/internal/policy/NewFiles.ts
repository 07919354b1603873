/** Checks the contents of new files: sizes first, then each file once. */
import { Effect } from "effect"
import type { Policy } from "../../CommitPolicy.ts"
import type { CommitId } from "../../Refs.ts"
import type { Finding } from "./SecretScan.ts"
import * as SecretScan from "./SecretScan.ts"
import type { Change, Found, Rules } from "./CommitRules.ts"
import * as GitObject from "../git/GitObject.ts"
import type { ObjectReader } from "../git/ObjectReader.ts"
import { isGitmodules, linkTargetBytesMax } from "./PathNames.ts"
import type { ViolationReport } from "./ViolationReport.ts"

interface Place {
  readonly commit: CommitId
  readonly path: string
}

interface SpecialPlace extends Place {
  readonly is: "symlink" | "gitmodules"
}

/** New files and names, collected from listings. */
export type NewFiles = ReturnType<typeof make>

export interface CheckOptions<E> {
  readonly reader: ObjectReader<E>
  readonly policy: Policy
  readonly rules: Rules
  readonly report: ViolationReport
  readonly known: (bytes: Uint8Array) => ReadonlyArray<string>
  /** Files that the base has anywhere. Requested only if something is found. */
  readonly baseFiles: Effect.Effect<ReadonlySet<string>, E>
}

export const make = () => {
  /** Each blob by its ID, with the first place where it occurs. */
  const blobs = new Map<string, Place>()
  /** All places of links and .gitmodules, because their meaning depends on the place. */
  const special = new Map<string, Array<SpecialPlace>>()
  /** Paths that a parent did not have, with the commit that adds them. */
  const added = new Map<string, CommitId>()
  return {
    blobs,
    special,
    added,
    note: ({ after, before, path }: Change, commit: CommitId) => {
      if (after === undefined) return
      if (before === undefined && !added.has(path)) added.set(path, commit)
      const kind = GitObject.kindOf(after.mode)
      if (kind !== "file" && kind !== "symlink") return
      if (!blobs.has(after.id)) blobs.set(after.id, { commit, path })
      const is = kind === "symlink" ? kind : isGitmodules(path) ? "gitmodules" : undefined
      if (is === undefined) return
      const places = special.get(after.id) ?? []
      if (!places.some((place) => place.path === path && place.is === is)) places.push({ commit, path, is })
      special.set(after.id, places)
    }
  }
}

export const check = Effect.fnUntraced(function* <E>(options: CheckOptions<E>, files: NewFiles) {
  const { reader, report } = options
  for (const id of yield* toRead(options, files)) {
    const place = files.blobs.get(id)
    if (report.ended()) return
    if (place === undefined) continue
    const content = yield* reader.content(id)
    if (content === undefined) {
      report.add(missing, place)
      continue
    }
    yield* ofFile(options, id, place, content)
    ofPlaces(options, files.special.get(id) ?? [], content)
  }
})

/** Returns a violation that names the run's own secrets in a file. */
export const ofKnown = (names: ReadonlyArray<string>): ReadonlyArray<Found> =>
  names.length === 0
    ? []
    : [{ rule: "known-secret", detail: `it contains a secret of the run: ${names.slice(0, 5).join(", ")}` }]

export const ofFindings = (findings: ReadonlyArray<Finding>, where = "it"): ReadonlyArray<Found> => {
  const [first] = findings
  if (first === undefined) return []
  const more = findings.length > 1 ? `, and ${findings.length - 1} more` : ""
  const detail = `there is text that looks like a secret in ${where} (${first.kind}, at line ${first.line}${more})`
  return [{ rule: "secret", detail }]
}

const missing: Found = { rule: "object", detail: "the file is missing or is not a file" }

/** Content of a file that is too large to read. It is refused as a link and as a .gitmodules. */
const tooLong = new Uint8Array(linkTargetBytesMax + 1)

const ofPlaces = <E>(
  { report, rules }: CheckOptions<E>,
  places: ReadonlyArray<SpecialPlace>,
  content: Uint8Array
) => {
  for (const { commit, is, path } of places) {
    const text = Buffer.from(content).toString("latin1", 0, linkTargetBytesMax + 1)
    const all = is === "symlink" ? rules.ofLink(path, text) : rules.ofGitmodules(content)
    for (const found of all) report.add(found, { commit, path })
  }
}

/** Returns the blobs to read: those that are files, and small enough both each and together. */
const toRead = Effect.fnUntraced(function* <E>(options: CheckOptions<E>, { blobs, special }: NewFiles) {
  const { policy, reader, report } = options
  if (report.ended()) return []
  const places = [...blobs]
  const infos = yield* reader.info(places.map(([id]) => id))
  const sized: Array<{ readonly id: string; readonly bytes: number }> = []
  for (const [index, [id, place]] of places.entries()) {
    const info = infos[index]
    if (info !== undefined && info.bytes > policy.blobBytesMax)
      ofPlaces(options, special.get(id) ?? [], tooLong)
    if (info?.type !== "blob") report.add(missing, place)
    else if (info.bytes <= policy.blobBytesMax) sized.push({ id, bytes: info.bytes })
    else if (!(yield* options.baseFiles).has(id)) {
      const detail = `the file has ${info.bytes} bytes, and ${policy.blobBytesMax} are allowed`
      report.add({ rule: "blob-bytes", detail }, place)
    }
  }
  const sum = (of: typeof sized) => of.reduce((total, { bytes }) => total + bytes, 0)
  if (sum(sized) > policy.totalBytesMax) {
    const old = yield* options.baseFiles
    const bytes = sum(sized.filter(({ id }) => !old.has(id)))
    const detail = `new files have ${bytes} bytes in all, and ${policy.totalBytesMax} are allowed`
    if (bytes > policy.totalBytesMax) report.end({ rule: "total-bytes", detail }, {})
  }
  return sized.map(({ id }) => id)
})

const ofFile = Effect.fnUntraced(function* <E>(
  options: CheckOptions<E>,
  id: string,
  place: Place,
  content: Uint8Array
) {
  const { baseFiles, known, policy, report, rules } = options
  for (const found of ofKnown(known(content))) report.add(found, place)
  const findings = policy.secrets === "allow" ? [] : yield* SecretScan.scan(content, place.path)
  const found = [...rules.ofContent(content), ...ofFindings(findings)]
  if (found.length === 0 || (yield* baseFiles).has(id)) return
  for (const one of found) report.add(one, place)
})
