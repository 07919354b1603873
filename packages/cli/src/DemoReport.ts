/** The page that `demo` prints, in 80 columns. Pure. */
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import type { Posture } from "@cogni/sandbox-core/Posture"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import * as CheckoutCommands from "./CheckoutCommands.ts"
import { formatMillis } from "./Quantity.ts"
import { clip, columns, oneLine, wrap } from "./TerminalText.ts"

export interface DemoFacts {
  readonly result: RunResult
  readonly answer: string
  /** Set if the demo upstream answered instead of a model. */
  readonly demo: boolean
  /** Headers as the demo upstream received them, with credentials as fingerprints; `undefined` for a real upstream. */
  readonly received: ReadonlyArray<readonly [name: string, value: string]> | undefined
  readonly recordPath: string
  /** Decides which commands the page names. */
  readonly user: { readonly isCheckout: boolean }
}

const width = 80
const indent = "  "

const section = (title: string, body: ReadonlyArray<string>): ReadonlyArray<string> => ["", title, ...body]

const field = (rows: ReadonlyArray<readonly [name: string, value: string]>): ReadonlyArray<string> => {
  const label = Math.max(...rows.map(([name]) => name.length)) + 2
  return rows.flatMap(([name, value]) =>
    wrap(oneLine(value), width - indent.length - label).map(
      (line, at) => `${indent}${(at === 0 ? name : "").padEnd(label)}${line}`
    )
  )
}

const none = (all: ReadonlyArray<string>) => (all.length === 0 ? "none" : all.join(", "))

/** Summarizes a posture. */
export const posture = (seen: Posture): ReadonlyArray<readonly [name: string, value: string]> => {
  const { bounding, effective, permitted } = seen.capabilities
  const writable = seen.mounts.filter(
    ({ readOnly, target }) => !readOnly && !/^\/(?:proc|sys|dev)(?:\/|$)/u.test(target)
  )
  return [
    ["user", `uid ${seen.userIds[0] ?? "?"}, gid ${seen.groupIds[0] ?? "?"}; never root`],
    [
      "capabilities",
      [bounding, effective, permitted].every((mask) => /^0+$/u.test(mask))
        ? "none, and none can be gained"
        : `effective ${effective}`
    ],
    ["new privileges", seen.noNewPrivileges ? "cannot be gained" : "can be gained"],
    ["system calls", seen.seccompMode === 2 ? "filtered" : `seccomp mode ${seen.seccompMode}`],
    ["network", `interfaces ${none(seen.interfaces)}; routes ${none(seen.routes)}`],
    [
      "root files",
      seen.mounts.find(({ target }) => target === "/")?.readOnly === true ? "read-only" : "writable"
    ],
    ["may write", none(writable.map(({ target }) => target))],
    ["confirmed by", seen.confirmedBy.join(", ")]
  ]
}

const timings = (result: RunResult): ReadonlyArray<string> => {
  const most = Math.max(1, ...result.timings.map(({ durationMs }) => durationMs))
  return columns(
    result.timings.map(({ durationMs, phase }) => [
      phase,
      formatMillis(durationMs).padStart(7),
      "▪".repeat(Math.max(1, Math.round((durationMs / most) * 40)))
    ]),
    indent
  )
}

export const render = (facts: DemoFacts): ReadonlyArray<string> => {
  const { demo, result } = facts
  const { llm, peak, runId } = result
  const label = demo ? "demo" : "demo, with your upstream"
  return [
    demo
      ? "Cogni Sandbox demo: an embedded demo upstream answers; no model is asked"
      : `Cogni Sandbox demo: ${llm?.upstream ?? "your upstream"} answers`,
    `${indent}${runId}: exit code ${result.exitCode} after ${formatMillis(result.durationMs)}${peak.memoryBytes === undefined ? "" : `, peak memory ${formatBytes(peak.memoryBytes)}`}`,
    ...section(
      `Answer (${label})`,
      wrap(facts.answer.trim(), width - indent.length).map((line) => `${indent}${oneLine(line)}`)
    ),
    ...section("The sandbox, as seen from inside", field(posture(result.posture))),
    ...section(
      `Egress: a socket, and ${llm?.proxy ?? "nothing"} behind it`,
      (llm?.calls ?? []).map((call) =>
        clip(
          `${indent}${call.method} ${call.path} → ${call.status} in ${formatMillis(call.durationMs)}, call ${call.callId ?? "?"}`,
          width
        )
      )
    ),
    ...section(
      `Headers added by the proxy (${label})`,
      facts.received === undefined
        ? field((llm?.injectedHeaders ?? []).map((name) => [name, "set on the host; never in the sandbox"]))
        : facts.received.flatMap(([name, value]) => [
            `${indent}${name}`,
            ...chunks(oneLine(value), width - 2 * indent.length).map((line) => `${indent}${indent}${line}`)
          ])
    ),
    ...section("Timings (phases overlap)", timings(result)),
    ...section("Stored files", [
      `${indent}record  ${facts.recordPath}`,
      ...(llm?.auditPath === undefined ? [] : [`${indent}audit   ${llm.auditPath}`])
    ]),
    ...section(
      "Try next",
      (
        [
          ["run", "--", "sh", "-c", "id; ls /; touch /x"],
          ["run", ...(demo ? ["--demo"] : []), "What can you see?"],
          ["inspect", runId],
          ["doctor"]
        ] as const
      ).map((argv) => `${indent}${CheckoutCommands.commandOf(facts.user, argv)}`)
    )
  ]
}

/** Splits a long value that has no spaces to break at. */
const chunks = (text: string, size: number): ReadonlyArray<string> =>
  text.length <= size ? [text] : [text.slice(0, size), ...chunks(text.slice(size), size)]
