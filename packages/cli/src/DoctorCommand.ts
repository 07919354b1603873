/**
 * `doctor`: what is wrong with this machine, and what to do about each thing. It changes nothing.
 */
import * as DockerDoctor from "@cogni/sandbox-docker/DockerDoctor"
import { Effect } from "effect"
import * as Composition from "./Composition.ts"
import { exitCode } from "./ExitCode.ts"
import * as Output from "./Output.ts"
import { Settings } from "./Settings.ts"
import { columns } from "./TerminalText.ts"
import * as UpstreamProbe from "./UpstreamProbe.ts"

const signs = { ok: "✓", warn: "!", fail: "✗" } as const

/** @category converting */
export const render = (findings: ReadonlyArray<DockerDoctor.Finding>): ReadonlyArray<string> => {
  const aligned = columns(findings.map(({ check, detail, status }) => [signs[status], check, detail]))
  const counted = (status: DockerDoctor.Finding["status"]) =>
    findings.filter((one) => one.status === status).length
  const fails = counted("fail")
  const warns = counted("warn")
  return [
    ...findings.flatMap(({ fix }, at) =>
      fix === undefined ? [aligned[at]!] : [aligned[at]!, `   → ${fix}`]
    ),
    "",
    fails > 0
      ? `${fails} ${fails === 1 ? "thing" : "things"} to fix before a run can succeed`
      : warns > 0
        ? `ready; ${warns} ${warns === 1 ? "thing" : "things"} could be better`
        : "ready"
  ]
}

/** @category constructors */
export const doctor = Effect.fnUntraced(function* (input: { readonly output: Output.OutputFormat }) {
  const settings = yield* Settings
  const machine = DockerDoctor.examine({
    images: [
      { name: "runtime", image: settings.runtimeImage },
      { name: "proxy", image: settings.proxyImage, onlyFor: "--proxy nginx" },
      {
        name: "gateway",
        image: settings.gatewayImage,
        onlyFor: "an engine that shares no files with this host"
      }
    ],
    stateDirectory: settings.stateDirectory
  }).pipe(
    Effect.provide(Composition.engine(settings)),
    Effect.catchTag("RuntimeUnavailable", ({ message, remedy }) =>
      Effect.succeed<ReadonlyArray<DockerDoctor.Finding>>([
        { check: "engine", status: "fail", detail: message, fix: remedy }
      ])
    )
  )
  const [found, upstream] = yield* Effect.all([machine, UpstreamProbe.probe(settings)], { concurrency: 2 })
  const findings = [...found, upstream]
  const ok = findings.every(({ status }) => status !== "fail")
  yield* Output.Output.use((output) => output.exitWith(ok ? exitCode.success : exitCode.findings))
  if (input.output === "json") return yield* Output.json({ ok, findings })
  yield* Output.lines(render(findings))
})
