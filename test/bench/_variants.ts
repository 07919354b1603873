import Docker from "dockerode"
import { Agent } from "node:http"
import { inspect } from "node:util"
import { mkdirSync } from "node:fs"
import { PassThrough } from "node:stream"
import * as Samples from "./Samples.ts"
import * as Hardening from "@cogni/sandbox-docker/Hardening"
const docker = new Docker(); Object.assign(docker.modem, { agent: Object.assign(new Agent({ keepAlive: true }), { [inspect.custom]: () => "A" }) })
mkdirSync("/tmp/cogni-var/w/.cogni", { recursive: true }); mkdirSync("/tmp/cogni-var/i", { recursive: true })
const full = Hardening.hostConfig({ runId: "x", role: "agent", image: "", argv: [], env: {}, user: { userId: 1000, groupId: 1000 }, network: { mode: "none" },
  mounts: [{ type: "directory", source: "/tmp/cogni-var/w", target: "/workspace", readOnly: false }, { type: "directory", source: "/tmp/cogni-var/i", target: "/cogni", readOnly: true }, { type: "directory", source: "/tmp/cogni-var/i", target: "/workspace/.cogni", readOnly: true }],
  limits: { memoryBytesMax: 2 ** 30, processesMax: 256, cpusMax: 2, temporaryBytesMax: 2 ** 28, filesOpenMax: 4096, workspaceBytesMax: 2 ** 31, runtimeSecondsMax: 600 } } as any) as any
const drop = (...k: string[]) => Object.fromEntries(Object.entries(full).filter(([n]) => !k.includes(n)))
const variants: Record<string, [object, string[]]> = {
  bare: [{ NetworkMode: "none" }, ["true"]],
  "bare+init": [{ NetworkMode: "none", Init: true }, ["true"]],
  "bare+log none": [{ NetworkMode: "none", LogConfig: { Type: "none", Config: {} } }, ["true"]],
  "bare+3 binds": [{ NetworkMode: "none", Mounts: full.Mounts }, ["true"]],
  "bare+2 tmpfs": [{ NetworkMode: "none", Tmpfs: full.Tmpfs }, ["true"]],
  "bare+seccomp off": [{ NetworkMode: "none", SecurityOpt: ["seccomp=unconfined"] }, ["true"]],
  "bare+entrypoint": [{ NetworkMode: "none" }, ["/usr/local/bin/cogni-entrypoint", "true"]],
  full: [full, ["true"]],
  "full-init": [drop("Init"), ["true"]],
  "full-mounts": [drop("Mounts"), ["true"]],
  "full-tmpfs": [drop("Tmpfs"), ["true"]],
  "full-ro": [drop("ReadonlyRootfs"), ["true"]],
  "full-cgroupns": [drop("CgroupnsMode"), ["true"]],
  "full-cpu": [drop("CpuPeriod", "CpuQuota"), ["true"]],
  "full+entrypoint": [full, ["/usr/local/bin/cogni-entrypoint", "true"]]
}
const t: Record<string, number[][]> = {}
for (let r = -1; r < Number(process.argv[2] ?? 30); r++) for (const [n, [hc, e]] of Samples.rotate(Object.entries(variants), r + 1)) {
  const m = [performance.now()]
  const c = await docker.createContainer({ Image: "cogni-sandbox/runtime:latest", Entrypoint: e, Cmd: [], AttachStdout: true, AttachStderr: true, HostConfig: hc }); m.push(performance.now())
  const s = await c.attach({ stream: true, stdout: true, stderr: true, hijack: true }); s.resume(); m.push(performance.now())
  await c.start(); m.push(performance.now()); await c.wait(); m.push(performance.now()); await c.remove(); m.push(performance.now())
  if (r >= 0) (t[n] ??= []).push([m[5]! - m[0]!, ...m.slice(1).map((x, i) => x - m[i]!)])
}
for (const [n, rows] of Object.entries(t)) console.log(n.padEnd(20), [0, 1, 2, 3, 4, 5].map((i) => { const s = Samples.summarize(rows.map((r) => r[i]!)); return i === 0 ? `min ${s.min} p50 ${s.p50}` : s.p50 }).join("  "))
process.exit(0)
