/**
 * Each setting of `Hardening.ts`, tested from inside.
 *
 * A probe is a shell line that prints `held` when its defense works. It runs twice: in a real sandbox, where it must
 * print `held`, and in the same container without that one defense, where it must not. Each run of the tests thus
 * proves that each probe can fail.
 */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import { Effect } from "effect"
import { chownSync, existsSync, mkdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { docker } from "../harness/Docker.ts"
import * as Images from "../harness/Images.ts"
import * as Loosened from "../harness/Loosened.ts"
import * as Pace from "../harness/Pace.ts"
import * as RunHarness from "../harness/RunHarness.ts"

interface Probe extends Loosened.Loosened {
  readonly defence: string
  /** Prints `held`, or the problem that it found. */
  readonly script: string
}

const { limits } = Loosened

const cgroup = (controller: string, v1: string, v2: string) =>
  `cat /sys/fs/cgroup/${controller}/${v1} 2>/dev/null || cat /sys/fs/cgroup/${v2}`

const probes: ReadonlyArray<Probe> = [
  {
    defence: "no interface except lo",
    script: `found=$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | grep -vx lo); [ -z "$found" ] && echo held || echo "$found"`,
    without: { hostConfig: { NetworkMode: "bridge" } }
  },
  {
    defence: "no route",
    script: `found=$(tail -n +2 /proc/net/route; grep -v ' lo$' /proc/net/ipv6_route); [ -z "$found" ] && echo held || echo "$found"`,
    without: { hostConfig: { NetworkMode: "bridge" } }
  },
  {
    defence: "no network connection to the host",
    script: `if (exec 3<>/dev/tcp/172.17.0.1/9) 2>&1 | grep -q 'unreachable'; then echo held; else echo 'the host answers'; fi`,
    without: { hostConfig: { NetworkMode: "bridge" } }
  },
  {
    defence: "no name service",
    script: `found=$(getent hosts "$(hostname)" | grep -v '^127\\.\\|^::1'); [ -z "$found" ] && echo held || echo "$found"`,
    without: { hostConfig: { NetworkMode: "bridge" } }
  },
  {
    defence: "no socket of the engine",
    // By name and by mount, because find trusts the type in the directory entry, not that of a mount over it.
    script: `found=$(find / -xdev -name '*.sock' 2>/dev/null; grep -E '[.]sock' /proc/self/mountinfo); [ -z "$found" ] && echo held || echo "$found"`,
    without: { hostConfig: { Binds: ["/var/run/docker.sock:/run/docker.sock"] } }
  },
  {
    defence: "no capability",
    script: `found=$(grep '^Cap' /proc/self/status | grep -v '0000000000000000$'); [ -z "$found" ] && echo held || echo "$found"`,
    without: { hostConfig: { CapDrop: [] } }
  },
  {
    defence: "no new privileges",
    script: `grep -qx 'NoNewPrivs:\t1' /proc/self/status && echo held || echo off`,
    without: { hostConfig: { SecurityOpt: [] } }
  },
  {
    defence: "system calls are filtered",
    script: `unshare --user true 2>/dev/null && echo 'made a user namespace' || { grep -qx 'Seccomp:\t2' /proc/self/status && echo held; }`,
    without: { hostConfig: { SecurityOpt: ["no-new-privileges", "seccomp=unconfined"] } }
  },
  {
    defence: "not root",
    script: `[ "$(id -u)" = 1000 ] && [ "$(id -g)" = 1000 ] && [ "$(id -G)" = 1000 ] && echo held || id`,
    without: { user: "0:0" }
  },
  {
    defence: "only the workspace and the memory file systems are writable",
    script: `found=$(find / \\( -path /proc -o -path /sys -o -path /dev -o -path /workspace -o -path /tmp -o -path /home/agent \\) -prune -o -writable ! -type l -print 2>/dev/null); [ -z "$found" ] && echo held || echo "$found"`,
    without: { hostConfig: { ReadonlyRootfs: false } }
  },
  {
    defence: "the inputs cannot be changed",
    script: `for file in /cogni/messages.json /workspace/.cogni/messages.json; do { echo x >> $file || rm -f $file || mv /workspace/.cogni /workspace/other; } 2>/dev/null && echo changed; done; [ "$(cat /cogni/messages.json)" = '[]' ] && echo held`,
    without: { hostConfig: { Tmpfs: { "/cogni": "mode=1777", "/workspace/.cogni": "mode=1777" } } }
  },
  {
    defence: "memory is limited, without swap",
    script: `[ "$(${cgroup("memory", "memory.limit_in_bytes", "memory.max")})" = ${limits.memoryBytesMax} ] && echo held`,
    without: { hostConfig: { Memory: 0, MemorySwap: 0 } }
  },
  {
    defence: "processes are limited",
    script: `[ "$(${cgroup("pids", "pids.max", "pids.max")})" = ${limits.processesMax} ] && echo held`,
    without: { hostConfig: { PidsLimit: null } }
  },
  {
    defence: "CPU is limited",
    script: `q=$(${cgroup("cpu", "cpu.cfs_quota_us", "cpu.max")}); [ "\${q%% *}" = 50000 ] && echo held || echo "$q"`,
    without: { hostConfig: { CpuQuota: 0 } }
  },
  {
    defence: "open files are limited",
    script: `[ "$(ulimit -n)" = ${limits.filesOpenMax} ] && [ "$(ulimit -Hn)" = ${limits.filesOpenMax} ] && echo held || ulimit -n`,
    without: { hostConfig: { Ulimits: [] } }
  },
  {
    defence: "no core dump, and no file larger than the workspace limit",
    script: `[ "$(ulimit -Hc)" = 0 ] && [ "$(ulimit -Hf)" = ${limits.workspaceBytesMax / 1024 + 64} ] && echo held || ulimit -a`,
    without: { hostConfig: { Ulimits: [] } }
  },
  {
    defence: "/tmp and the home directory are bounded",
    script: `[ "$(df -B1 --output=size /tmp /home/agent | tail -n +2 | tr -d ' ' | sort -u)" = ${limits.temporaryBytesMax} ] && echo held || df -B1 /tmp /home/agent`,
    without: { hostConfig: { Tmpfs: { "/tmp": "", "/home/agent": "" } } }
  },
  {
    defence: "no device of the host",
    script: `found=$(find /dev -type b 2>/dev/null; ls -d /dev/kmsg /dev/kvm /dev/mem 2>/dev/null); [ -z "$found" ] && echo held || echo "$found"`,
    without: { hostConfig: { Privileged: true } }
  },
  {
    defence: "no process of the host is visible",
    script: `[ "$(readlink /proc/self/ns/pid)" != "${readlinkSync("/proc/self/ns/pid")}" ] && echo held`,
    without: { hostConfig: { PidMode: "host" } }
  },
  {
    defence: "no shared memory with the host",
    script: `[ "$(readlink /proc/self/ns/ipc)" != "${readlinkSync("/proc/self/ns/ipc")}" ] && echo held`,
    without: { hostConfig: { IpcMode: "host" } }
  },
  {
    defence: "its own control group namespace",
    script: `[ "$(readlink /proc/self/ns/cgroup)" != "${readlinkSync("/proc/self/ns/cgroup")}" ] && echo held`,
    without: { hostConfig: { CgroupnsMode: "host" } }
  },
  {
    defence: "the first process is ours, and no other process can open its memory or its descriptors",
    script: `{ [ "$(cat /proc/1/comm)" = cogni-init ] && ! (: > /proc/1/mem) && ! ls /proc/1/fd; } >/dev/null 2>&1 && echo held || cat /proc/1/comm`,
    without: {}
  },
  {
    defence: "orphans are reaped",
    script: `(sleep 0.01 & sleep 0.01 & :); sleep 0.5; found=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null); [ -z "$found" ] && echo held || echo "$found"`,
    // A program that never waits for children.
    without: {
      firstProcess: [
        "perl",
        "-e",
        "$SIG{CHLD} = 'DEFAULT'; if (!fork) { exec 'bash', '-c', $ARGV[0] } sleep 3"
      ]
    }
  }
]

layer(RunHarness.layer(), { excludeTestServices: true })("Hardening from inside the sandbox", (it) => {
  it.effect("all defenses hold", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner
      const { output } = yield* runner.run({
        image: Images.runtime,
        argv: [
          "bash",
          "-c",
          probes.map(({ script }) => `( ${script}\n) 2>&1 | tr '\\n' ' '; echo`).join("\n")
        ],
        inputs: [{ name: "messages.json", content: "[]" }],
        limits
      })
      const said = output.stdout.text.trimEnd().split("\n")
      assert.deepStrictEqual(
        probes.map(({ defence }, index) => `${defence}: ${said[index]?.trim()}`),
        probes.map(({ defence }) => `${defence}: held`)
      )
    })
  )

  for (const probe of probes) {
    it.effect(`the probe of "${probe.defence}" fails without the defense`, () =>
      Effect.map(Loosened.run(probe), (said) => assert.notStrictEqual(said, "held"))
    )
  }

  it.effect("no program of the workspace runs before the sandbox has reported its posture", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner
      const path = yield* RunHarness.Directory
      const workspace = join(path, "poisoned")
      yield* Effect.sync(() => {
        mkdirSync(join(workspace, "bin"), { recursive: true })
        for (const name of ["readlink", "socat", "sleep", "sh", "cat"]) {
          writeFileSync(join(workspace, "bin", name), "#!/bin/bash\necho $0 >> /workspace/ran\n", {
            mode: 0o755
          })
        }
        chownSync(workspace, 1000, 1000)
      })
      const poisoned = {
        image: Images.runtime,
        env: { PATH: "/workspace/bin:/usr/local/bin:/usr/bin:/bin" },
        workspace: { type: "directory" as const, path: workspace }
      }
      const result = yield* runner.run({ ...poisoned, argv: ["true"] })
      assert.strictEqual(result.exitCode, 0)
      assert.isFalse(existsSync(join(workspace, "ran")))
      yield* runner.run({ ...poisoned, argv: ["cat"] })
      assert.strictEqual(
        readFileSync(join(workspace, "ran"), "utf8"),
        "/workspace/bin/cat\n",
        "the agent's own PATH is kept"
      )
    })
  )

  it.effect("the socket directory is protected by its mount and by its owner, and each alone suffices", () =>
    Effect.gen(function* () {
      const runtime = yield* ContainerRuntime
      const source = yield* runtime.acquireVolume({
        runId: yield* RunId.generate,
        role: "socket",
        owner: { userId: 999, groupId: 999 },
        bytesMax: 64 * 1024,
        filesMax: 8,
        runtimeSecondsMax: Pace.runSecondsMax
      })
      const write = (readOnly: boolean, user: string) =>
        Loosened.run({ script: ": > /llm-sock/evil && echo written || echo held", without: { user } }, [
          { type: "volume", source, target: "/llm-sock", readOnly }
        ])
      assert.deepStrictEqual(
        {
          both: yield* write(true, "1000:1000"),
          mountAlone: yield* write(true, "999:999"),
          ownerAlone: yield* write(false, "1000:1000"),
          neither: yield* write(false, "999:999")
        },
        { both: "held", mountAlone: "held", ownerAlone: "held", neither: "written" }
      )
    })
  )

  it.effect("a container with weaker settings than requested does not start its agent", () =>
    Effect.gen(function* () {
      const runtime = yield* ContainerRuntime
      const spec = yield* SpecDecoder.decode({ image: Images.runtime, argv: ["true"] }).pipe(Effect.orDie)
      const runId = yield* RunId.generate
      const container = yield* runtime.acquire({
        runId,
        role: "agent",
        image: spec.image,
        argv: ["sh", "-c", "echo started > /workspace/started"],
        env: {},
        user: { userId: 1000, groupId: 1000 },
        mounts: [],
        network: { mode: "none" },
        limits: spec.limits
      })
      // Raises a limit between create and start.
      yield* docker("update", "--memory", "2g", "--memory-swap", "4g", container.id)
      const error = yield* Effect.flip(container.start)
      assert.strictEqual(error._tag, "PostureMismatch")
      assert.include(error.message, "Memory")
    })
  )
})
