/** Results of a measurement, as data and as tables. */
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { Summary } from "./Samples.ts"

export interface Row extends Summary {
  readonly name: string
}

export interface LoadRow extends Row {
  readonly atOnce: number
  readonly runsPerSecond: number
}

/** A value that must not get worse. */
export interface Bar {
  readonly name: string
  readonly value: number
  /** Without a bound, the value is only reported. */
  readonly atMost?: number
  readonly atLeast?: number
}

export interface Report {
  readonly takenAt: string
  readonly machine: Readonly<Record<string, string | number>>
  readonly rows: ReadonlyArray<Row>
  /** Medians of the phases of our runs; they overlap. */
  readonly phases: Readonly<Record<string, Readonly<Record<string, number>>>>
  readonly load: ReadonlyArray<LoadRow>
  readonly sustained: {
    readonly runs: number
    readonly succeeded: number
    readonly seconds: number
    readonly runsPerSecond: number
  }
  readonly bars: ReadonlyArray<Bar>
}

export const isMissed = ({ atLeast, atMost, value }: Bar): boolean =>
  !(value <= (atMost ?? Infinity)) || !(value >= (atLeast ?? -Infinity))

export const table = (
  header: ReadonlyArray<string>,
  rows: ReadonlyArray<ReadonlyArray<string | number>>
): string => {
  const all = [header, ...rows].map((row) => row.map(String))
  const widths = header.map((_, column) => Math.max(...all.map((row) => row[column]!.length)))
  const line = (row: ReadonlyArray<string>) =>
    `| ${row.map((cell, column) => (column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!))).join(" | ")} |`
  const rule = `|${widths.map((width, column) => `${column === 0 ? ":" : "-"}${"-".repeat(width)}${column === 0 ? "-" : ":"}`).join("|")}|`
  return [line(all[0]!), rule, ...all.slice(1).map(line)].join("\n")
}

const bound = ({ atLeast, atMost }: Bar) =>
  atMost !== undefined ? `≤ ${atMost}` : atLeast !== undefined ? `≥ ${atLeast}` : "–"

/** Returns the time and the machine of a measurement. */
export const taken = ({ machine, takenAt }: Pick<Report, "machine" | "takenAt">): string =>
  `Taken ${takenAt} on: ${Object.entries(machine)
    .map(([name, value]) => `${name} ${value}`)
    .join(", ")}.`

/** Prints a report, writes it as data and as a page if a directory is given, and fails if a bar is missed. */
export const publish = (options: {
  readonly name: string
  readonly title: string
  readonly text: string
  readonly data: object
  readonly bars?: ReadonlyArray<Bar>
  readonly directory: string | undefined
}): void => {
  const { bars = [], data, directory, name, text, title } = options
  process.stdout.write(`${text}\n`)
  if (directory !== undefined) {
    mkdirSync(directory, { recursive: true })
    writeFileSync(join(directory, `${name}.json`), `${JSON.stringify(data, undefined, 2)}\n`)
    writeFileSync(join(directory, `${name}.md`), `# ${title}\n\n${text}\n`)
  }
  if (bars.some(isMissed)) process.exitCode = 1
}

/** Returns a table of values and their bounds. */
export const barTable = (bars: ReadonlyArray<Bar>): string =>
  table(
    ["", "is", "must be", ""],
    bars.map((bar) => [
      bar.name,
      bar.value,
      bound(bar),
      bar.atLeast === undefined && bar.atMost === undefined ? "" : isMissed(bar) ? "MISSED" : "ok"
    ])
  )

export const format = (report: Report): string =>
  [
    "Milliseconds from the call until the result. All rows are measured in turns. Plain Docker has removed its container " +
      "by then. A sealed run has ended all of its processes. Its empty sandbox is removed in the background, unless it has " +
      "a volume or a network, which cannot be removed before it.",
    table(
      ["one at a time", "n", "min", "p50", "p95", "p99"],
      report.rows.map(({ count, min, name, p50, p95, p99 }) => [name, count, min, p50, p95, p99])
    ),
    table(
      ["several at once", "at once", "n", "p50", "p95", "p99", "runs/s"],
      report.load.map((row) => [
        row.name,
        row.atOnce,
        row.count,
        row.p50,
        row.p95,
        row.p99,
        row.runsPerSecond
      ])
    ),
    `Sustained: ${report.sustained.succeeded} of ${report.sustained.runs} runs succeeded, four at once, in ${report.sustained.seconds} s (${report.sustained.runsPerSecond} runs/s).`,
    barTable(report.bars),
    table(
      ["median of a phase", ...Object.keys(report.phases)],
      [...new Set(Object.values(report.phases).flatMap(Object.keys))].map((phase) => [
        phase,
        ...Object.values(report.phases).map((own) => own[phase] ?? "")
      ])
    ),
    taken(report)
  ].join("\n\n")
