/** `doctor`: diagnoses this machine and names a fix for each problem. Changes nothing. */
import * as DockerDoctor from "@cogni/sandbox-docker/DockerDoctor"
import * as Finding from "@cogni/sandbox-docker/Finding"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import * as RelayUpkeep from "@cogni/sandbox-git-relay/RelayUpkeep"
import { Effect, Result } from "effect"
import * as Composition from "./Composition.ts"
import * as CheckoutCommands from "./CheckoutCommands.ts"
import { exitCode } from "./ExitCode.ts"
import type { Refusal } from "./Failure.ts"
import { inFlags } from "./RemedyWords.ts"
import * as LiteLlmProbe from "./LiteLlmProbe.ts"
import * as Output from "./Output.ts"
import { plural } from "./Quantity.ts"
import { Settings } from "./Settings.ts"
import { columns } from "./TerminalText.ts"
import * as UpstreamProbe from "./UpstreamProbe.ts"

const signs = { ok: "✓", warn: "!", fail: "✗" } as const

export const render = (findings: ReadonlyArray<Finding.Finding>): ReadonlyArray<string> => {
  const aligned = columns(findings.map(({ check, detail, status }) => [signs[status], check, detail]))
  const counted = (status: Finding.Finding["status"]) =>
    findings.filter((one) => one.status === status).length
  const fails = counted("fail")
  const warns = counted("warn")
  return [
    ...findings.flatMap(({ fix }, at) =>
      fix === undefined ? [aligned[at]!] : [aligned[at]!, `   → ${fix}`]
    ),
    "",
    fails > 0
      ? `${plural(fails, "problem")} to fix before a run can succeed`
      : warns > 0
        ? `ready, with ${plural(warns, "warning")}`
        : "ready"
  ]
}

/** Checks the version of git, which only runs with `--repo` need. */
const gitFinding = (version: string | undefined): Finding.Finding => {
  const { gitVersionMin } = RelayUpkeep
  if (version === undefined) return Finding.warn("git", "not found", "Install git: runs with --repo need it")
  const [major = 0, minor = 0] = version.split(".").map(Number)
  const [leastMajor = 0, leastMinor = 0] = gitVersionMin.split(".").map(Number)
  return major > leastMajor || (major === leastMajor && minor >= leastMinor)
    ? Finding.ok("git", version)
    : Finding.warn("git", version, `Update git: runs with --repo need ${gitVersionMin} or later`)
}

/** Checks a file of settings that only some runs read. Returns no finding if none is configured. */
export const settingsFinding = (
  check: string,
  read: Result.Result<object | undefined, Refusal>
): ReadonlyArray<Finding.Finding> =>
  Result.match(read, {
    onFailure: ({ detail, remedy }) => [Finding.fail(check, detail, remedy)],
    onSuccess: (found) => (found === undefined ? [] : [Finding.ok(check, "its file is valid")])
  })

export const doctor = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly workspace?: string | undefined }
) {
  const settings = yield* Settings
  const machine = DockerDoctor.examine({
    images: [
      { name: "runtime", image: settings.runtimeImage },
      { name: "proxy", image: settings.proxyImage, onlyFor: "--proxy nginx or nginx-shared" },
      {
        name: "gateway",
        image: settings.gatewayImage,
        onlyFor: "an engine that shares no files with this host"
      }
    ],
    stateDirectory: settings.stateDirectory,
    engineRuntime: settings.engineRuntime,
    workspace: input.workspace,
    workspaces: yield* Composition.workspaces(settings),
    pools: StateDirectory.paths(settings.stateDirectory).pools
  }).pipe(
    Effect.provide(Composition.engine(settings)),
    Effect.catchTag("RuntimeUnavailable", ({ message, remedy }) =>
      Effect.succeed([Finding.fail("engine", message, remedy)])
    )
  )
  const [found, git, upstream, liteLlm] = yield* Effect.all(
    [machine, RelayUpkeep.gitVersion, UpstreamProbe.probe(settings), LiteLlmProbe.probe(settings)],
    { concurrency: 4 }
  )
  const files = [
    ...settingsFinding("account limits", settings.accountLimits),
    ...settingsFinding("package registries", settings.packages)
  ]
  const findings = [...found, gitFinding(git), upstream, ...liteLlm, ...files].map((finding) => ({
    ...finding,
    detail: inFlags(finding.detail),
    ...(finding.fix === undefined ? {} : { fix: CheckoutCommands.forUser(inFlags(finding.fix)) })
  }))
  const ok = findings.every(({ status }) => status !== "fail")
  yield* Output.Output.use((output) => output.exitWith(ok ? exitCode.success : exitCode.findings))
  if (input.output === "json") return yield* Output.json({ ok, findings })
  yield* Output.lines(render(findings))
})
