/**
 * The system calls of `SeccompProfile.ts`, tested from inside.
 *
 * Each call has arguments for which the kernel itself never returns EPERM, so that error comes from the filter. The
 * same calls run a second time in a container without the profile, where each must have another result: otherwise the
 * first result would prove nothing.
 */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { layerNoop } from "@cogni/sandbox-core/LlmProxy"
import { layer as layerRunner, SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { systemCallsTried } from "@cogni/sandbox-core/Posture"
import * as RunId from "@cogni/sandbox-core/RunId"
import { securityOption } from "../../packages/docker/src/internal/container/SeccompProfile.ts"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import { Effect, Layer } from "effect"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as Loosened from "../harness/Loosened.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const { limits } = Loosened

const isX64 = process.arch === "x64"

/**
 * Calls that the filter refuses with EPERM: `[name, number on x86_64, number on aarch64, arguments]`. A call without
 * a number on this architecture is skipped.
 */
const refused: ReadonlyArray<
  readonly [name: string, x64: number | undefined, arm64: number | undefined, argv: string]
> = [
  ["io_uring_setup", 425, 425, "0, 0"],
  ["io_uring_enter", 426, 426, "-1, 0, 0, 0, 0, 0"],
  ["io_uring_register", 427, 427, "-1, 0, 0, 0"],
  ["userfaultfd", 323, 282, "0x40000001"],
  ["bpf", 321, 280, "9999, 0, 1048576"],
  ["perf_event_open", 298, 241, "0, 0, -1, -1, 65535"],
  ["keyctl", 250, 219, "9999"],
  ["add_key", 248, 217, "0, 0, 0, 0, 0"],
  ["request_key", 249, 218, "0, 0, 0, 0"],
  ["ptrace", 101, 117, "9999, 0, 0, 0"],
  ["process_vm_readv", 310, 270, "0, 0, 0, 0, 0, 1"],
  ["process_vm_writev", 311, 271, "0, 0, 0, 0, 0, 1"],
  ["kcmp", 312, 272, "0, 0, 0, 0, 0"],
  ["pidfd_getfd", 438, 438, "-1, -1, 1"],
  ["process_madvise", 440, 440, "-1, 0, 0, 0, 1"],
  ["process_mrelease", 448, 448, "-1, 1"],
  ["unshare of a user namespace", 272, 97, "0x10000001"],
  ["clone with a user namespace", 56, 220, "0x10000200, 0, 0, 0, 0"],
  ["setns", 308, 268, "-1, 0"],
  ["name_to_handle_at", 303, 264, "-1, 0, 0, 0, 65535"],
  ["open_tree", 428, 428, "-1, 0, 0x40000000"],
  ["fanotify_mark", 301, 263, "-1, 0, 0, 0, 0"],
  ["memfd_secret", 447, 447, "0x4000"],
  ["modify_ldt", 154, undefined, "99, 0, 0"],
  ["sched_setscheduler of the first process", 144, 119, "1, 0, 0"],
  ["sched_setparam of the first process", 142, 118, "1, 0"],
  ["sched_setattr of the first process", 314, 274, "1, 0, 0"],
  [
    "sched_setattr of the first process, with a high bit that the kernel ignores",
    314,
    274,
    "0x100000001, 0, 0"
  ],
  ["sched_setaffinity of the first process", 203, 122, "1, 0, 0"],
  ["prlimit64 of the first process", 302, 261, "1, 99, 0, 0"],
  ["setpriority of the first process", 141, 140, "0, 1, 0"],
  ["setpriority of a process group", 141, 140, "1, 0, 0"],
  ["setpriority of a user", 141, 140, "2, 0, 0"],
  ["ioprio_set of the first process", 251, 30, "1, 1, 0"],
  ["ioprio_set of a process group", 251, 30, "2, 0, 0"],
  ["vmsplice", 278, 75, "-1, 0, 0, 65535"],
  ["remap_file_pages", 216, 234, "1, 0, 1, 0, 0"],
  ["ustat", 136, undefined, "0, 0"],
  ["sysfs", 139, undefined, "99, 0, 0"],
  ["adjtimex", 159, 171, "0"],
  ["clock_adjtime", 305, 266, "0, 0"],
  ["get_mempolicy", 239, 236, "0, 0, 0, 0, 65535"],
  ["set_mempolicy", 238, 237, "999, 0, 0"],
  ["mbind", 237, 235, "1, 0, 999, 0, 0, 0"],
  ["personality without random addresses", 135, 92, "0x40000"],
  ["ioctl TIOCSTI", 16, 29, "0, 0x5412, 0"],
  ["ioctl TIOCSTI with a high bit that the kernel ignores", 16, 29, "0, 0x100005412, 0"],
  ["ioctl TIOCLINUX", 16, 29, "0, 0x541c, 0"],
  ["ioctl TIOCSETD", 16, 29, "0, 0x5423, 0"],
  ["socketpair AF_NETLINK", 53, 199, "16, 1, 0, 0"],
  ["socket IPPROTO_ICMP, which ping uses", 41, 198, "2, 0x102, 1"],
  ["socket IPPROTO_SCTP", 41, 198, "2, 0x101, 132"],
  ["socket SCTP by its type", 41, 198, "2, 0x105, 0"],
  ["socket IPPROTO_MPTCP", 41, 198, "2, 0x101, 262"],
  ["socket SOCK_RAW", 41, 198, "2, 0x103, 255"],
  ["socket NETLINK_KOBJECT_UEVENT", 41, 198, "16, 2, 15"],
  ["socket NETLINK_SOCK_DIAG", 41, 198, "16, 2, 4"],
  ["socket NETLINK_GENERIC", 41, 198, "16, 2, 16"],
  ["memfd_create of huge pages", 319, 279, "0, 0x4"],
  ["memfd_create of huge pages with a high bit that the kernel ignores", 319, 279, "0, 0x100000004"],
  ["mmap of huge pages", 9, 222, "0, 0, 3, 0x40022, -1, 0"],
  ["shmget of huge pages", 29, 194, "0, 0, 0x800"],
  ["setsockopt SO_ATTACH_FILTER", 54, 208, "-1, 1, 26, 0, 0"],
  ["setsockopt SO_ATTACH_BPF", 54, 208, "-1, 1, 50, 0, 0"],
  ["setsockopt SO_ATTACH_REUSEPORT_CBPF", 54, 208, "-1, 1, 51, 0, 0"],
  ["setsockopt SO_ATTACH_REUSEPORT_EBPF", 54, 208, "-1, 1, 52, 0, 0"],
  ["setsockopt TCP_MD5SIG", 54, 208, "-1, 6, 14, 0, 0"],
  ["setsockopt TCP_ULP, which kTLS uses", 54, 208, "-1, 6, 31, 0, 0"],
  [
    "setsockopt TCP_ULP with a high bit that the kernel ignores",
    54,
    208,
    "-1, 0x100000006, 0x10000001f, 0, 0"
  ],
  ["setsockopt TCP_MD5SIG_EXT", 54, 208, "-1, 6, 32, 0, 0"],
  ["setsockopt TCP_AO_ADD_KEY", 54, 208, "-1, 6, 38, 0, 0"],
  ["setsockopt TCP_AO_DEL_KEY", 54, 208, "-1, 6, 39, 0, 0"],
  ["setsockopt TCP_AO_INFO", 54, 208, "-1, 6, 40, 0, 0"],
  ["setsockopt TCP_AO_REPAIR", 54, 208, "-1, 6, 42, 0, 0"],
  ["setsockopt UDP_ENCAP", 54, 208, "-1, 17, 100, 0, 0"],
  // UDP sockets also accept UDP options at this level.
  ["setsockopt UDP_ENCAP at the level of UDP-Lite", 54, 208, "-1, 136, 100, 0, 0"],
  ["setsockopt at the level of TLS", 54, 208, "-1, 282, 1, 0, 0"]
]

/** Calls that the filter answers with ENOSYS, like a kernel without them, so that programs use a fallback. */
const absent: typeof refused = [
  ["io_setup", 206, 0, "0, 0"],
  ["io_destroy", 207, 1, "0"],
  ["io_getevents", 208, 4, "0, 0, 0, 0, 0"],
  ["io_submit", 209, 2, "0, 0, 0"],
  ["io_cancel", 210, 3, "0, 0, 0"],
  ["io_pgetevents", 333, 292, "0, 0, 0, 0, 0, 0"]
]

const families = Array.from({ length: 47 }, (_, family) => family)
const familiesAllowed: ReadonlySet<number> = new Set([1, 2, 10, 16])

const numberOf = ([, x64, arm64]: (typeof refused)[number]) => (isX64 ? x64 : arm64)
const probes = refused.filter((probe) => numberOf(probe) !== undefined)
const socket = isX64 ? 41 : 198

/**
 * Prints a line for each call: its name and its errno, or 0 on success.
 *
 * 0x100 is a flag that no socket type has. The kernel refuses it with EINVAL before it looks at the family, so the
 * result does not depend on the kernel's modules.
 */
const script = `perl <<'PERL'
sub ask {
  my ($name, @call) = @_;
  $! = 0;
  my $result = syscall(shift @call, @call);
  printf "%s: %d\\n", $name, $result == -1 ? $! : 0;
}
${[...probes, ...absent].map((probe) => `ask('${probe[0]}', ${numberOf(probe)}, ${probe[3]});`).join("\n")}
${families.map((family) => `ask('family ${family}', ${socket}, ${family}, 0x101, 0);`).join("\n")}
ask('AF_VSOCK', ${socket}, 40, 1, 0);
ask('AF_ALG', ${socket}, 38, 5, 0);
PERL`

/**
 * Opens a unix socket with the 32-bit `socketcall`, from a 64-bit program and from a 32-bit one, and calls `getpid` in
 * the x32 convention. Prints the wait status of each: 31 is SIGSYS.
 */
const otherConventions = `perl <<'PERL'
sub program {
  my ($name, $header, $base) = @_;
  my $start = $base + length $header;
  my $code = pack('H*', 'b866000000bb01000000b9') . pack('V', $start + 32)
    . pack('H*', 'cd8031db85c07902b301b801000000cd80');
  open my $file, '>', "/tmp/$name" or die;
  print $file $header, $code, pack('V3', 1, 1, 0);
  close $file;
  chmod 0755, "/tmp/$name";
  printf "%s: %d\\n", $name, system { "/tmp/$name" } $name;
}
my $ident = "\\x7fELF";
program('64', $ident . pack('C12', 2, 1, 1)
  . pack('vvVQQQVv6', 2, 62, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0)
  . pack('VVQQQQQQ', 1, 5, 0, 0x400000, 0x400000, 200, 200, 0x1000), 0x400000);
program('32', $ident . pack('C12', 1, 1, 1)
  . pack('vvVVVVVv6', 2, 3, 1, 0x8048054, 52, 0, 0, 52, 32, 1, 0, 0, 0)
  . pack('V8', 1, 0, 0x8048000, 0x8048000, 200, 200, 5, 0x1000), 0x8048000);
my $child = fork;
if (!$child) { $! = 0; my $id = syscall(0x40000000 + 39); exit($id == $$ ? 0 : $! + 0) }
waitpid $child, 0;
print "x32: $?\\n";
PERL`

/** Typical work of agents with the programs of the image. */
const programs: ReadonlyArray<readonly [name: string, command: string]> = [
  ["a thread of Node", `node -e 'new (require("worker_threads").Worker)("process.exit(0)", { eval: true })'`],
  ["a child of Node", `node -e 'process.exit(require("child_process").spawnSync("true").status)'`],
  ["network interfaces in Node", `node -e 'process.exit(os.networkInterfaces().lo ? 0 : 1)'`],
  [
    "a server and a client of Node",
    `node -e 'const s = require("http").createServer((q, r) => r.end()).listen(0, "127.0.0.1", () =>
      fetch("http://127.0.0.1:" + s.address().port).then(() => process.exit(0), () => process.exit(1)))'`
  ],
  [
    "a database",
    `node -e 'const { DatabaseSync } = require("node:sqlite"); const d = new DatabaseSync("/tmp/d.db");
      d.exec("pragma journal_mode = wal; create table t (a); insert into t values (1)")'`
  ],
  [
    "a watch on files",
    `node -e 'fs.watch("/tmp", () => process.exit(0)); fs.writeFileSync("/tmp/watched", "")'`
  ],
  [
    "git",
    `git init -q a && cd a && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a &&
      git gc -q && git clone -q . ../b`
  ],
  ["pnpm", `echo '{"name":"p"}' > package.json && pnpm install --offline --silent`],
  ["a pipe, and a background process", `bash -c 'echo a | cat | grep a; sleep 0 & wait'`],
  ["a FIFO", `mkfifo fifo && { echo a > fifo & cat fifo; }`],
  [
    "jq, perl, rg and fd",
    `echo '{}' | jq . && perl -e 'fork; wait' && rg -q agent /etc/passwd && fd -q bash /usr/bin`
  ],
  ["a pseudo-terminal of socat", `echo a | socat - EXEC:cat,pty,rawer`],
  [
    "links, modes, times and locks",
    `touch f && ln -s f g && chmod 600 f && touch -d 2001-01-01 f && flock f true`
  ]
]

const ordinary = programs
  .map(
    ([name, command]) =>
      `( cd "$(mktemp -d -p /workspace)" && { ${command}; } ) >/dev/null 2>&1; echo '${name}': $?`
  )
  .join("\n")

const parse = (output: string): ReadonlyMap<string, number> =>
  new Map(
    output
      .trim()
      .split("\n")
      .map((line) => {
        const at = line.lastIndexOf(": ")
        return [line.slice(0, at), Number(line.slice(at + 2))] as const
      })
  )

const inSandbox = Effect.fnUntraced(function* (text: string) {
  const runner = yield* SandboxRunner
  const { output } = yield* runner.run({ image: Images.runtime, argv: ["bash", "-c", text], limits })
  return parse(output.stdout.text)
})

const withoutProfile = (text: string) =>
  Effect.map(
    Loosened.run({
      script: text,
      without: { hostConfig: { SecurityOpt: ["no-new-privileges", "seccomp=unconfined"] } }
    }),
    parse
  )

const permissionDenied = 1
const notImplemented = 38
const badSystemCall = 31

layer(RunHarness.layer(), { excludeTestServices: true })("System calls", (it) => {
  it.effect("the filter refuses every call that no agent needs, and allows four socket families", () =>
    Effect.gen(function* () {
      const answers = yield* inSandbox(script)
      const expected = [
        ...probes.map(([name]) => [name, permissionDenied]),
        ...absent.map(([name]) => [name, notImplemented]),
        ...families.map((family) => [
          `family ${family}`,
          familiesAllowed.has(family) ? 22 : permissionDenied
        ]),
        ["AF_VSOCK", permissionDenied],
        ["AF_ALG", permissionDenied]
      ]
      assert.deepStrictEqual([...answers], expected)
    })
  )

  it.effect("every one of these calls has another result without the profile", () =>
    Effect.gen(function* () {
      const answers = yield* withoutProfile(script)
      assert.strictEqual(answers.size, probes.length + absent.length + families.length + 2)
      assert.deepStrictEqual(
        [...answers].filter(([, errno]) => errno === permissionDenied || errno === notImplemented),
        []
      )
    })
  )

  it.effect(
    "the probe before the start of an agent detects a missing profile and the engine's default profile",
    () =>
      Effect.gen(function* () {
        const refusedWith = (SecurityOpt: ReadonlyArray<string>) =>
          Effect.map(
            Loosened.run({
              script: "cogni-probe | sed -n 's/^call \\(.*\\) /\\1: /p'",
              without: { hostConfig: { SecurityOpt } }
            }),
            (output) => {
              const answers = parse(output)
              assert.deepStrictEqual([...answers.keys()].toSorted(), [...systemCallsTried].toSorted())
              return systemCallsTried.filter((name) => answers.get(name) === permissionDenied)
            }
          )
        assert.deepStrictEqual(yield* refusedWith(["no-new-privileges", securityOption]), [
          ...systemCallsTried
        ])
        assert.deepStrictEqual(yield* refusedWith(["no-new-privileges", "seccomp=unconfined"]), [])
        assert.notIncludeMembers(yield* refusedWith(["no-new-privileges"]), ["ptrace"])
        assert.notIncludeMembers(yield* refusedWith(["no-new-privileges"]), ["socket-uevent"])
      })
  )

  it.effect("the programs of the runtime image work under the profile", () =>
    Effect.gen(function* () {
      const answers = yield* inSandbox(ordinary)
      assert.deepStrictEqual(
        [...answers].filter(([, status]) => status !== 0),
        []
      )
      assert.strictEqual(answers.size, programs.length)
    })
  )

  it.effect("an agent does not start on an engine that omits the profile but reports it", () =>
    Effect.gen(function* () {
      const api = yield* DockerApi.DockerApi
      const lying = DockerApi.DockerApi.of({
        ...api,
        create: (options) =>
          api.create({
            ...options,
            hostConfig: { ...options.hostConfig, SecurityOpt: ["no-new-privileges"] }
          }),
        inspect: (id) =>
          Effect.map(
            api.inspect(id),
            (found) =>
              found && {
                ...found,
                HostConfig: { ...found.HostConfig, SecurityOpt: ["no-new-privileges", securityOption] }
              }
          )
      })
      const error = yield* SandboxRunner.use((runner) =>
        Effect.flip(runner.run({ image: Images.runtime, argv: ["sh", "-c", "echo started"], limits }))
      ).pipe(
        Effect.provide(
          // Without `fresh`, this would be the runner that the other tests share.
          Layer.fresh(layerRunner).pipe(
            Layer.provide(layerNoop),
            Layer.provide(DockerContainerRuntime.layerApi(Engine.runtime)),
            Layer.provide(Layer.succeed(DockerApi.DockerApi, lying))
          )
        )
      )
      assert.strictEqual(error.reason._tag, "PostureMismatch")
      assert.include(error.message, "the system call ptrace is not refused by our filter")
    })
  )

  for (const role of ["proxy", "gateway", "relay"] as const) {
    it.effect(`a container of role ${role} does not start on an engine that omits the profile`, () =>
      Effect.gen(function* () {
        const api = yield* DockerApi.DockerApi
        let starts = 0
        const careless = DockerApi.DockerApi.of({
          ...api,
          start: (id) =>
            Effect.suspend(() => {
              starts += 1
              return api.start(id)
            }),
          create: (options) =>
            api.create({
              ...options,
              hostConfig: { ...options.hostConfig, SecurityOpt: ["no-new-privileges"] }
            })
        })
        const runId = yield* RunId.generate
        const started = Effect.gen(function* () {
          const runtime = yield* ContainerRuntime
          const container = yield* runtime.acquire({
            runId,
            role,
            image: Images.runtime,
            argv: ["sleep", "1"],
            env: {},
            user: { userId: 1000, groupId: 1000 },
            mounts: [],
            network: { mode: "none" },
            limits
          })
          yield* container.start
        })
        const error = yield* Effect.flip(Effect.scoped(started)).pipe(
          Effect.provide(
            DockerContainerRuntime.layerApi(Engine.runtime).pipe(
              Layer.provide(Layer.succeed(DockerApi.DockerApi, careless))
            ),
            { local: true }
          )
        )
        assert.strictEqual(error._tag, "PostureMismatch")
        assert.include(error.message, "SecurityOpt")
        assert.strictEqual(starts, 0)
      })
    )
  }

  // Only this architecture has further call conventions that a 64-bit program can use.
  if (isX64) {
    it.effect("a call in the 32-bit or the x32 convention kills its process", () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(
          [...(yield* inSandbox(otherConventions))].map(([name, status]) => [name, status & 127]),
          ["64", "32", "x32"].map((name) => [name, badSystemCall])
        )
      })
    )

    it.effect("32-bit calls work without the profile", () =>
      Effect.gen(function* () {
        const answers = yield* withoutProfile(otherConventions)
        assert.deepStrictEqual([answers.get("64"), answers.get("32")], [0, 0])
        // Most kernels are built without x32 and return an error, so the process continues.
        assert.notStrictEqual((answers.get("x32") ?? badSystemCall) & 127, badSystemCall)
      })
    )
  }
})
