/** Sample results of runs, for tests that format them. */
import { RunId } from "@cogni/sandbox-core/RunId"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"

export const runId = RunId.make("run-000000000001")

const channel = (text: string) => ({
  text,
  bytes: new TextEncoder().encode(text).byteLength,
  truncated: false
})

const zeros = "0000000000000000"

export const result = (
  over: { readonly exitCode?: number; readonly stdout?: string; readonly stderr?: string } = {}
): RunResult => ({
  runId,
  exitCode: over.exitCode ?? 0,
  output: { stdout: channel(over.stdout ?? ""), stderr: channel(over.stderr ?? "") },
  peak: { memoryBytes: 12 * 2 ** 20 },
  posture: {
    userIds: [1000, 1000, 1000, 1000],
    groupIds: [1000, 1000, 1000, 1000],
    capabilities: { inheritable: zeros, permitted: zeros, effective: zeros, bounding: zeros, ambient: zeros },
    noNewPrivileges: true,
    seccompMode: 2,
    systemCalls: { bpf: 1, "socket-vsock": 1 },
    namespaces: { net: "4026532182" },
    interfaces: ["lo"],
    routes: [],
    mounts: [
      { target: "/", fileSystem: "overlay", readOnly: true, options: [] },
      { target: "/proc", fileSystem: "proc", readOnly: false, options: [] },
      { target: "/workspace", fileSystem: "ext4", readOnly: false, options: [] },
      { target: "/cogni", fileSystem: "ext4", readOnly: true, options: [] }
    ],
    confirmedBy: ["sandbox", "engine", "host"]
  },
  llm: {
    proxy: "nginx",
    upstream: "http://127.0.0.1:4000",
    injectedHeaders: ["authorization", "x-litellm-customer-id"],
    auditPath: "/state/runs/run-000000000001/audit/access.log",
    calls: [
      {
        at: "2026-01-01T00:00:00.000Z",
        requestId: "1",
        method: "POST",
        path: "/v1/chat/completions",
        status: 200,
        callId: "demo-1",
        requestBytes: 10,
        responseBytes: 20,
        durationMs: 8,
        completed: true
      }
    ],
    callsTotal: 1,
    unreadableRows: 0
  },
  suspicions: [],
  timings: [
    { phase: "create", durationMs: 12.345 },
    { phase: "start", durationMs: 170 }
  ],
  durationMs: 345.6
})

export const record = (over: Partial<RunRecord> = {}): RunRecord => ({
  runId,
  spec: {
    image: "cogni/runtime:1",
    argv: ["cogni-agent"],
    env: {},
    workspace: { type: "temporary" },
    inputs: [],
    limits: {
      runtimeSecondsMax: 600,
      stopGraceSecondsMax: 5,
      memoryBytesMax: 2 ** 30,
      processesMax: 256,
      cpusMax: 2,
      outputBytesMax: 2 ** 26,
      outputRetainedBytesMax: 2 ** 22,
      workspaceBytesMax: 2 ** 31,
      temporaryBytesMax: 2 ** 28,
      filesOpenMax: 4096
    },
    memory: false,
    network: { mode: "none" },
    tools: [],
    packages: [],
    canaries: "off"
  },
  owner: "boot/1/1",
  startedAt: "2026-01-01T00:00:00.000Z",
  outcome: { status: "running" },
  timings: [],
  ...over
})

export const envelope = (text: string, error: unknown = null): string =>
  JSON.stringify({ payloads: [{ text }], meta: { durationMs: 1, error } })
