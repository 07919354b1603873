/**
 * A real Prometheus that scrapes the targets of a test, with its own directory and port, and its tool for rules.
 *
 * `./dev test` unpacks Debian's package. If it is missing, tests that need it fail with a message; they are never
 * skipped. The server is ended by its process ID when the scope closes.
 */
import { Effect, type Scope } from "effect"
import { execFile, spawn } from "node:child_process"
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { homedir, tmpdir } from "node:os"
import { join } from "node:path"
import { stringify } from "yaml"
import * as Await from "./Await.ts"
import { freePort } from "./FreePort.ts"

/** A series of the answer to a query, with its newest value. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

export interface Rule {
  readonly name: string
  readonly health: "err" | "ok" | "unknown"
  readonly state: "firing" | "inactive" | "pending"
  readonly lastError?: string
}

/** An exemplar of one series, by the series' labels. */
export interface Exemplar {
  readonly series: Readonly<Record<string, string>>
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

export interface Prometheus {
  /** Evaluates an expression. Dies with Prometheus's message if it is invalid. */
  readonly query: (expr: string) => Effect.Effect<ReadonlyArray<Sample>>
  /** Stored exemplars of the series that an expression names, of any time. */
  readonly exemplars: (expr: string) => Effect.Effect<ReadonlyArray<Exemplar>>
  readonly rules: Effect.Effect<ReadonlyArray<Rule>>
  /** Waits until every target was scraped once more. */
  readonly scraped: Effect.Effect<void>
}

/** Directory of the programs: the one that `./dev` names, the one where it unpacks them, or Debian's. */
const programs = (): string =>
  [
    process.env["COGNI_PROMETHEUS_BIN"] ?? "",
    join(homedir(), ".cache/cogni-sandbox/prometheus/usr/bin"),
    "/usr/bin"
  ].find((directory) => existsSync(join(directory, "promtool"))) ?? ""

const missing = Effect.die(new Error("there is no Prometheus. Run ./dev test, which unpacks Debian's"))

/** Runs `promtool` in a directory, and returns whether it succeeded, and its output. */
export const promtool = (
  directory: string,
  argv: ReadonlyArray<string>
): Effect.Effect<{ readonly succeeded: boolean; readonly output: string }> =>
  programs() === ""
    ? missing
    : Effect.callback((resume) => {
        execFile(join(programs(), "promtool"), [...argv], { cwd: directory }, (error, stdout, stderr) =>
          resume(Effect.succeed({ succeeded: error === null, output: `${stdout}${stderr}` }))
        )
      })

type Labels = Readonly<Record<string, string>>

interface Values {
  readonly result: ReadonlyArray<{ readonly metric: Labels; readonly value: readonly [number, string] }>
}

interface Rules {
  readonly groups: ReadonlyArray<{ readonly rules: ReadonlyArray<Rule> }>
}

type SeriesExemplars = ReadonlyArray<{
  readonly seriesLabels: Labels
  readonly exemplars: ReadonlyArray<{ readonly labels: Labels; readonly value: string }>
}>

/** Starts a Prometheus that scrapes `host:port` targets of one job four times a second, and evaluates these rules. */
export const acquire = Effect.fnUntraced(function* (options: {
  readonly job: string
  readonly targets: ReadonlyArray<string>
  readonly rules: string
}): Effect.fn.Return<Prometheus, never, Scope.Scope> {
  if (programs() === "") return yield* missing
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-prometheus-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const port = yield* freePort
  const config = join(directory, "prometheus.yaml")
  const often = { scrape_interval: "250ms", scrape_timeout: "250ms", evaluation_interval: "500ms" }
  const jobs = [{ job_name: options.job, static_configs: [{ targets: options.targets }] }]
  writeFileSync(config, stringify({ global: often, rule_files: [options.rules], scrape_configs: jobs }))
  const argv = [
    `--config.file=${config}`,
    `--storage.tsdb.path=${join(directory, "data")}`,
    `--web.listen-address=127.0.0.1:${port}`,
    "--enable-feature=exemplar-storage",
    "--log.level=warn"
  ]
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      // Its errors are in the output of the tests.
      return spawn(join(programs(), "prometheus"), argv, { stdio: ["ignore", "ignore", "inherit"] })
    }),
    (child) =>
      Effect.callback<void>((resume) => {
        if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
        child.once("exit", () => resume(Effect.void))
        child.kill("SIGKILL")
      })
  )
  const url = `http://127.0.0.1:${port}`
  yield* Await.until(
    "Prometheus is ready",
    Effect.promise(() =>
      fetch(`${url}/-/ready`).then(
        ({ ok }) => ok,
        () => false
      )
    )
  )
  const ask = <Data>(path: string, parameters: Labels = {}): Effect.Effect<Data> =>
    Effect.promise(async () => {
      const answer = await fetch(`${url}/api/v1/${path}?${new URLSearchParams(parameters)}`)
      const { data, error, status } = (await answer.json()) as any
      if (status !== "success") throw new Error(`${path}: ${error}`)
      return data
    })
  const query: Prometheus["query"] = (expr) =>
    Effect.map(ask<Values>("query", { query: expr }), ({ result }) =>
      result.map(({ metric: labels, value: [, value] }) => ({ labels, value: Number(value) }))
    )
  return {
    query,
    exemplars: (expr) =>
      Effect.map(
        ask<SeriesExemplars>("query_exemplars", {
          query: expr,
          start: "0",
          end: String(Date.now() / 1000 + 60)
        }),
        (found) =>
          found.flatMap(({ exemplars, seriesLabels: series }) =>
            exemplars.map(({ labels, value }) => ({ series, labels, value: Number(value) }))
          )
      ),
    scraped: Effect.suspend(() => {
      const since = Date.now() / 1000
      return Await.until(
        "another scrape",
        // timestamp() needs a plain selector: of any other expression, it is the time of the question.
        Effect.map(query("min(timestamp(up)) and min(up) == 1"), ([sample]) => (sample?.value ?? 0) > since)
      )
    }),
    rules: Effect.map(ask<Rules>("rules"), ({ groups }) => groups.flatMap(({ rules }) => rules))
  }
})
