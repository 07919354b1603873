/**
 * Isolation of concurrent sessions on real Docker. The tests look from inside both sessions, and check that neither
 * can see, name, signal or reach anything of the other. They also check what remains of a command and of a session
 * after its end, and what a command can do to its own sandbox.
 */
import { assert, layer } from "@effect/vitest"
import type { Reason } from "@cogni/sandbox-core/SandboxError"
import type { SessionSandbox } from "@cogni/sandbox-sessions/sandbox/DockerSandbox"
import * as ProcessTable from "../../packages/loop/src/ProcessTable.ts"
import { Duration, Effect, Exit, Fiber, Scope } from "effect"
import { readdirSync, statSync } from "node:fs"
import { join } from "node:path"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as SessionHarness from "../harness/SessionHarness.ts"

const { said } = SessionHarness

const names = ["alice", "bob"] as const

interface One {
  readonly own: string
  readonly other: string
  readonly sandbox: SessionSandbox
}

/** Opens two sessions, each with the name of the other. */
const two = Effect.fnUntraced(function* (options?: Parameters<typeof SessionHarness.manager>[0]) {
  const manager = yield* SessionHarness.manager(options)
  const [alice, bob] = yield* Effect.all(names.map(manager.getOrCreate), { concurrency: "unbounded" })
  return [
    { own: "alice", other: "bob", sandbox: alice! },
    { own: "bob", other: "alice", sandbox: bob! }
  ] as const
})

/** Runs `act` in both sessions concurrently. A test first changes both, then checks both. */
const inBoth = <A, E, R>(pair: ReadonlyArray<One>, act: (one: One) => Effect.Effect<A, E, R>) =>
  Effect.forEach(pair, act, { concurrency: "unbounded" })

/** Command line for a Perl program. The image has Perl, which can make system calls directly. */
const perl = (program: string) => ["perl", "-e", program] as const

const reasonOf = <A>(asked: Effect.Effect<A, { readonly reason: Reason; readonly message: string }>) =>
  Effect.map(Effect.flip(asked), ({ reason }) => reason._tag)

/** Shell line that prints the PID of the first process with this name, but not of the shell itself. */
const pidOf = (name: string) =>
  `for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" != '${name}' ] || { echo \${p#/proc/}; break; }; done`

const supervisor = "cogni-superviso"

const options = { excludeTestServices: true } as const

layer(RunHarness.layer(), options)("two sessions at once", (it) => {
  it.effect("have separate files: workspace, home, /tmp, shared memory", () =>
    Effect.gen(function* () {
      const pair = yield* two()
      const places = "/workspace /tmp /home/agent /dev/shm"
      yield* inBoth(pair, ({ own, sandbox }) =>
        said(sandbox, `for d in ${places}; do echo ${own} > $d/mark-${own}; echo ${own} > $d/same; done`)
      )
      yield* inBoth(pair, ({ own, sandbox }) =>
        Effect.gen(function* () {
          const found = yield* said(
            sandbox,
            "find / -xdev -name 'mark-*' 2>/dev/null; ls -d /*/mark-* /*/*/mark-*"
          )
          const marks = new Set(found.split("\n").map((path) => path.replace(/.*\//u, "")))
          assert.deepStrictEqual([...marks], [`mark-${own}`])
          assert.strictEqual(
            yield* said(sandbox, `for d in ${places}; do cat $d/same; done | sort | uniq -c | xargs`),
            `4 ${own}`
          )
          assert.deepStrictEqual(
            (yield* sandbox.files.list(".")).map(({ name }) => name),
            [`mark-${own}`, "same"]
          )
        })
      )
    })
  )

  it.effect("have separate processes, which the other can neither see nor signal", () =>
    Effect.gen(function* () {
      const pair = yield* two()
      const started = yield* inBoth(pair, ({ own, sandbox }) =>
        said(sandbox, `exec -a sleep-of-${own} sleep 300 & echo $!`.replace(/^/u, "bash -c '").concat("'"))
      )
      assert(started.every((pid) => Number(pid) > 1))
      yield* inBoth(pair, ({ other, own, sandbox }) =>
        Effect.gen(function* () {
          const all = yield* said(sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'")
          assert.include(all, `sleep-of-${own}`)
          assert.notInclude(all, `sleep-of-${other}`)
          // Only its own supervisor is visible, and no socket of the engine.
          assert.strictEqual(yield* said(sandbox, `cat /proc/[0-9]*/comm | grep -c ${supervisor}`), "1")
          assert.strictEqual(
            yield* said(
              sandbox,
              "find / -xdev \\( -name 'docker*.sock' -o -name 'containerd*' \\) 2>/dev/null; true"
            ),
            ""
          )
        })
      )
      // Kills every PID, then all processes. The processes of the other session have the same PIDs.
      const [alice, bob] = pair
      const attempts = "for p in $(seq 2 2000); do kill -9 $p 2>/dev/null; done; kill -9 -1; sleep 5"
      yield* Effect.exit(said(alice.sandbox, attempts))
      yield* Effect.exit(Effect.map(sleeping(alice.sandbox), (left) => assert.deepStrictEqual(left, [])))
      assert.strictEqual(yield* said(bob.sandbox, `kill -0 ${started[1]} && echo alive`), "alive")
      assert.isTrue(yield* bob.sandbox.isRunning)
    })
  )

  it.effect("have separate environments, and so do their commands", () =>
    Effect.gen(function* () {
      const pair = yield* two()
      yield* inBoth(pair, ({ own, sandbox }) =>
        Effect.gen(function* () {
          const running = yield* sandbox.spawn("sleep 300", { env: { PLANTED: `secret-of-${own}` } })
          assert.strictEqual(
            yield* said(sandbox, 'echo "$PLANTED"; export STAYS=no; cd /tmp; umask 077; ulimit -n 20', {
              env: { PLANTED: `short-of-${own}` }
            }),
            `short-of-${own}`
          )
          assert.strictEqual(
            yield* said(sandbox, 'echo "[$PLANTED$STAYS] $PWD $(umask)"'),
            "[] /workspace 0022"
          )
          assert.isAbove(Number(yield* said(sandbox, "ulimit -n")), 20)
          return running
        })
      )
      yield* inBoth(pair, ({ other, own, sandbox }) =>
        Effect.gen(function* () {
          const all = yield* said(sandbox, "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; true")
          assert.include(all, `secret-of-${own}`)
          assert.notInclude(all, `-of-${other}`)
        })
      )
    })
  )

  it.effect("have separate namespaces: hostname, IPC, abstract sockets", () =>
    Effect.gen(function* () {
      const pair = yield* two()
      const spaces = yield* inBoth(pair, ({ sandbox }) =>
        said(sandbox, "hostname; for n in pid net ipc mnt uts cgroup; do readlink /proc/self/ns/$n; done")
      )
      const [one, other] = spaces.map((text) => text.split("\n"))
      assert.strictEqual(one!.length, 7)
      for (const [index, name] of one!.entries()) assert.notStrictEqual(name, other![index])

      // Both create the same keys, and each finds only its own.
      const make = "shmget(4242, 64, 01600) // die; msgget(4242, 01600) // die; semget(4242, 1, 01600) // die"
      const listen = (own: string) => `socat ABSTRACT-LISTEN:cogni,fork SYSTEM:'echo ${own}'`
      const [alice, bob] = pair
      yield* alice.sandbox.exec(perl(make))
      yield* alice.sandbox.spawn(listen("alice"))
      const look = perl(
        'print join " ", map { defined $_ ? "has" : "none" } shmget(4242, 0, 0600), msgget(4242, 0600), semget(4242, 0, 0600)'
      )
      const connect = "socat -u ABSTRACT-CONNECT:cogni,retry=20,interval=0.05 - 2>/dev/null || echo refused"
      const asked = (sandbox: SessionSandbox) =>
        Effect.all([
          Effect.map(sandbox.exec(look), ({ output }) => output.stdout.text),
          said(sandbox, connect)
        ])
      assert.deepStrictEqual(yield* asked(alice.sandbox), ["has has has", "alice"])
      assert.deepStrictEqual(yield* asked(bob.sandbox), ["none none none", "refused"])
      yield* bob.sandbox.exec(perl(make))
      yield* bob.sandbox.spawn(listen("bob"))
      assert.deepStrictEqual(yield* asked(bob.sandbox), ["has has has", "bob"])
    })
  )

  it.effect("have separate loopback interfaces: a port of one is closed in the other", () =>
    Effect.gen(function* () {
      const pair = yield* two()
      const [alice, bob] = pair
      const listen = (own: string) =>
        `socat TCP4-LISTEN:9000,bind=127.0.0.1,fork,reuseaddr SYSTEM:'echo ${own}'`
      const connect = "socat -u TCP4:127.0.0.1:9000,retry=20,interval=0.05 - 2>/dev/null || echo refused"
      yield* alice.sandbox.spawn(listen("alice"))
      assert.strictEqual(yield* said(alice.sandbox, connect), "alice")
      assert.strictEqual(yield* said(bob.sandbox, connect), "refused")
      yield* bob.sandbox.spawn(listen("bob"))
      assert.deepStrictEqual(yield* inBoth(pair, ({ sandbox }) => said(sandbox, connect)), ["alice", "bob"])
      assert.deepStrictEqual(
        yield* inBoth(pair, ({ sandbox }) => said(sandbox, "ls /sys/class/net | xargs")),
        ["lo", "lo"]
      )
    })
  )

  it.effect("have separate background processes, which only they can list, read and signal", () =>
    Effect.gen(function* () {
      const pair = yield* two()
      const tables = yield* inBoth(pair, ({ own, sandbox }) =>
        Effect.gen(function* () {
          const table = yield* ProcessTable.make(sandbox)
          const { processId } = yield* table.start({ command: `echo log-of-${own}; sleep 300`, name: own })
          return { table, processId }
        })
      )
      const [alice, bob] = tables as [(typeof tables)[0], (typeof tables)[0]]
      // Both use the same ID, which refers to a process of their own table.
      assert.strictEqual(alice!.processId, bob!.processId)
      for (const [index, { processId, table }] of tables.entries()) {
        assert.deepStrictEqual(
          (yield* table.list).map(({ name }) => name),
          [names[index]]
        )
        const text = Effect.map(table.log(processId, { textBytesMax: 1000 }), (log) => log.text.trim())
        yield* SessionHarness.eventually("the process has output", Effect.map(text, Boolean))
        assert.strictEqual(yield* text, `log-of-${names[index]}`)
      }
      assert.isTrue(yield* alice!.table.signal(alice!.processId, "SIGKILL"))
      assert.strictEqual((yield* alice!.table.wait(alice!.processId, 5)).exitCode, 137)
      assert.strictEqual((yield* bob!.table.list)[0]?.state, "running")
      assert.include(yield* said(pair[1].sandbox, "cat /proc/[0-9]*/comm"), "sleep")
    })
  )
})

layer(RunHarness.layer(), options)("a reopened session", (it) => {
  it.effect("has its own workspace, and nothing else from before", () =>
    Effect.gen(function* () {
      const manager = yield* SessionHarness.manager({ keeps: true, idleSeconds: 1 })
      const visit = (id: string, line: string) =>
        Effect.scoped(
          Effect.flatMap(manager.getOrCreate(id), (sandbox) =>
            Effect.map(said(sandbox, line), (text) => ({ text, runId: sandbox.runId }))
          )
        )
      const leave = "echo $NAME > kept; echo $NAME | tee /tmp/left > ~/left; sleep 300 &"
      const before = yield* Effect.forEach(names, (id) => visit(id, leave.replaceAll("$NAME", id)), {
        concurrency: "unbounded"
      })
      yield* SessionHarness.eventually(
        "idle sessions are evicted",
        Effect.map(
          SessionHarness.containers(...before.map(({ runId }) => runId)),
          ({ length }) => length === 0
        )
      )
      assert.deepStrictEqual(yield* manager.list, [])
      const look = "cat kept; ls -A . /tmp ~; cat /proc/[0-9]*/comm | grep -c sleep"
      const after = yield* Effect.forEach(names, (id) => visit(id, look), { concurrency: "unbounded" })
      for (const [index, { runId, text }] of after.entries()) {
        assert.notStrictEqual(runId, before[index]!.runId)
        assert.strictEqual(text, `${names[index]}\n.:\nkept\n\n/home/agent:\n\n/tmp:\n0 (1)`)
      }
      const root = SessionHarness.workspacesOf(yield* RunHarness.Directory)
      assert.deepStrictEqual(
        readdirSync(root).map((entry) => statSync(join(root, entry)).mode & 0o777),
        [0o700, 0o700]
      )
    })
  )

  it.effect("leaves nothing on the engine or in its run directory when destroyed", () =>
    Effect.gen(function* () {
      const manager = yield* SessionHarness.manager()
      const sandbox = yield* manager.getOrCreate("alice")
      const waiting = yield* Effect.forkChild(reasonOf(said(sandbox, "sleep 300")))
      assert.strictEqual((yield* SessionHarness.containers(sandbox.runId)).length, 1)
      const { millis } = yield* SessionHarness.within(15, manager.destroy("alice"))
      assert.isBelow(millis, 10_000)
      assert.deepStrictEqual(yield* SessionHarness.containers(sandbox.runId), [])
      assert.deepStrictEqual(yield* LeakCheck.leftovers, [])
      assert.deepStrictEqual(LeakCheck.directories(yield* RunHarness.Directory), [])
      assert.strictEqual((yield* SessionHarness.within(5, Fiber.join(waiting))).value, "ContainerFailed")
    })
  )
})

/** Perl program that attempts to access another process, and prints `denied` or the outcome of each attempt. */
const attempts = `
my ($pid) = @ARGV;
sub told { my ($what, $done) = @_; print "$what ", $done ? "HAD" : $!{EACCES} || $!{EPERM} ? "denied" : "$!", "\\n" }
use Errno; use Fcntl; use POSIX ();
my ($ptrace, $readv) = (POSIX::uname())[4] eq 'aarch64' ? (117, 270) : (101, 310);
told("fd", opendir my $d, "/proc/$pid/fd");
for my $number (0, 1, 2) { told("fd $number", sysopen my $f, "/proc/$pid/fd/$number", O_RDWR | O_NONBLOCK) }
for my $name (qw(mem environ maps auxv exe cwd root)) {
  my $path = "/proc/$pid/$name";
  told($name, $name =~ /exe|cwd|root/ ? defined readlink $path : open my $f, "<", $path);
}
told("ptrace", syscall($ptrace, 16, $pid + 0, 0, 0) == 0);
told("process_vm_readv", syscall($readv, $pid + 0, pack("QQ", 0, 0), 1, pack("QQ", 0, 0), 1, 0) == 0);
told("pidfd_getfd", do { my $p = syscall(434, $pid + 0, 0); $p >= 0 && syscall(438, $p, 0, 0) >= 0 });
`

const attemptsAt = (sandbox: SessionSandbox, pid: string) =>
  Effect.map(sandbox.exec(["perl", "-e", attempts, pid]), ({ output }) =>
    output.stdout.text
      .trim()
      .split("\n")
      .filter((line) => !line.endsWith(" denied"))
  )

layer(RunHarness.layer(), options)("a command in its sandbox", (it) => {
  it.effect("can neither read nor write the supervisor or the keeper of a command", () =>
    Effect.gen(function* () {
      const pair = yield* two()
      yield* inBoth(pair, ({ sandbox }) =>
        Effect.gen(function* () {
          const keeper = yield* said(sandbox, "echo $PPID; sleep 300 >/dev/null 2>&1 &")
          const pids = [yield* said(sandbox, pidOf(supervisor)), keeper]
          for (const pid of pids) {
            assert.match(pid, /^\d+$/u)
            assert.deepStrictEqual(yield* attemptsAt(sandbox, pid), [])
          }
          // The attempts succeed on a process of the command itself, which proves that they work.
          const own = yield* said(sandbox, "sleep 300 >/dev/null 2>&1 & echo $!")
          const had = yield* attemptsAt(sandbox, own)
          assert.includeMembers(had, ["fd 1 HAD", "environ HAD", "mem HAD"])
          // The seccomp filter refuses these for every process.
          for (const call of ["ptrace", "process_vm_readv", "pidfd_getfd"]) {
            assert.isEmpty(had.filter((line) => line.startsWith(call)))
          }
        })
      )
    })
  )

  it.effect("cannot access the first process, which is the supervisor itself", () =>
    Effect.gen(function* () {
      const [{ sandbox }] = yield* two()
      assert.strictEqual(yield* said(sandbox, "cat /proc/1/comm"), "cogni-superviso")
      assert.deepStrictEqual(yield* attemptsAt(sandbox, "1"), [])
    })
  )

  it.effect("kills no other command when it kills its process group", () =>
    Effect.gen(function* () {
      const [{ sandbox }] = yield* two()
      const running = yield* sandbox.spawn("sleep 301")
      yield* SessionHarness.eventually(
        "the process sleeps",
        Effect.map(sleeping(sandbox), (found) => found.length === 1)
      )
      const killed = yield* sandbox.exec("sleep 302 & kill -9 0; sleep 5; echo survived")
      assert.deepStrictEqual([killed.exitCode, killed.output.stdout.text], [137, ""])
      assert.deepStrictEqual(yield* sleeping(sandbox), ["301"])
      yield* running.signal("SIGKILL")
    })
  )

  it.effect("ends with all its children if it kills its keeper, and the session continues", () =>
    Effect.gen(function* () {
      const [{ sandbox }] = yield* two()
      const running = yield* sandbox.spawn("sleep 301")
      yield* SessionHarness.eventually(
        "the process sleeps",
        Effect.map(sleeping(sandbox), (found) => found.length === 1)
      )
      const killed = yield* sandbox.exec(
        "setsid sleep 302 & sleep 303 & kill -9 $PPID; sleep 5; echo survived"
      )
      assert.deepStrictEqual(
        [killed.exitCode, killed.signal, killed.output.stdout.text],
        [137, "SIGKILL", ""]
      )
      assert.deepStrictEqual(yield* sleeping(sandbox), ["301"])
      yield* running.signal("SIGTERM")
      assert.strictEqual((yield* running.exit).signal, "SIGTERM")
    })
  )

  it.effect("is killed with all its children at its time limit, even if they ignore SIGTERM", () =>
    Effect.gen(function* () {
      const [{ sandbox }] = yield* two()
      const stubborn = "(trap '' TERM; exec sleep 301) & (trap '' TERM; exec setsid sleep 302) & sleep 303"
      assert.strictEqual(yield* reasonOf(sandbox.exec(stubborn, { timeoutSecondsMax: 1 })), "CommandTimedOut")
      assert.deepStrictEqual(yield* sleeping(sandbox), [])
      // Children of a command that ends by itself are left running on purpose.
      yield* sandbox.exec("sleep 304 &")
      assert.deepStrictEqual(yield* sleeping(sandbox), ["304"])
    })
  )

  it.effect("is killed with all its children if only its first thread has ended", () =>
    Effect.gen(function* () {
      const [{ sandbox }] = yield* two()
      const threads = perl(`
        use threads; use POSIX ();
        threads->create(sub { system "sleep", "301" while 1 });
        select undef, undef, undef, 0.2;
        syscall((POSIX::uname())[4] eq "x86_64" ? 60 : 93, 0);`)
      assert.strictEqual(yield* reasonOf(sandbox.exec(threads, { timeoutSecondsMax: 1 })), "CommandTimedOut")
      assert.deepStrictEqual(yield* sleeping(sandbox), [])
      assert.strictEqual(yield* said(sandbox, "cat /proc/[0-9]*/comm | grep -c perl"), "0 (1)")
    })
  )

  it.effect("ends completely if it is killed at any point of its start", () =>
    Effect.gen(function* () {
      const [{ sandbox }] = yield* two()
      for (let round = 0; round < 90; round++) {
        const { millis } = yield* SessionHarness.within(
          20,
          Effect.scoped(
            Effect.andThen(
              sandbox.spawn("setsid sleep 301 & exec sleep 302"),
              Effect.sleep(Duration.millis(round % 10))
            )
          )
        )
        assert.isBelow(millis, 5000)
      }
      // Its exit is reported even if it is killed concurrently.
      for (let round = 0; round < 90; round++) {
        const scope = yield* Scope.make()
        const running = yield* Scope.provide(sandbox.spawn("sleep 303"), scope)
        yield* Effect.sleep(Duration.millis(round % 6))
        if (round % 3 > 0) yield* running.signal(round % 3 === 1 ? "SIGTERM" : "SIGKILL")
        const { millis } = yield* SessionHarness.within(20, Scope.close(scope, Exit.void))
        assert.isBelow(millis, 5000)
        const { value } = yield* SessionHarness.within(5, running.exit)
        assert.include(["SIGTERM", "SIGKILL"], value.signal)
      }
      assert.deepStrictEqual(yield* sleeping(sandbox), [])
    })
  )

  it.effect("ends with all other commands if it kills every process, and the session continues", () =>
    Effect.gen(function* () {
      const [{ sandbox }] = yield* two()
      const other = yield* sandbox.spawn("sleep 303")
      const { value } = yield* SessionHarness.within(10, sandbox.exec("kill -9 -1; kill -9 1; sleep 30"))
      assert.strictEqual(value.exitCode, 137)
      assert.strictEqual((yield* SessionHarness.within(10, other.exit)).value.exitCode, 137)
      assert.deepStrictEqual(yield* sleeping(sandbox), [])
      assert.strictEqual(yield* said(sandbox, "echo alive"), "alive")
    })
  )

  it.effect("fails with OomKilled if it uses too much memory, and the session continues", () =>
    Effect.gen(function* () {
      const [{ sandbox }] = yield* two()
      const kept = yield* sandbox.spawn("sleep 301")
      yield* sandbox.exec("echo kept > /tmp/file")
      // The kernel kills a command before the supervisor, whichever is larger.
      assert.strictEqual(yield* said(sandbox, "cat /proc/self/oom_score_adj"), "500")
      for (let round = 0; round < 3; round++) {
        const error = yield* Effect.flip(
          sandbox.exec(perl('print "begun\\n"; $| = 1; $x = "x" x 400_000_000'))
        )
        assert.strictEqual(error.reason._tag, "OomKilled")
        assert.strictEqual(yield* said(sandbox, "cat /tmp/file"), "kept")
      }
      assert.deepStrictEqual(yield* sleeping(sandbox), ["301"])
      yield* kept.signal("SIGKILL")
    })
  )

  it.effect("is killed in time if it is a fork bomb, and the session continues or fails with a reason", () =>
    Effect.gen(function* () {
      const manager = yield* SessionHarness.manager()
      const sandbox = yield* manager.getOrCreate("alice")
      const bombs = [perl("fork while 1"), perl("while (1) { fork; setpgrp; $SIG{TERM} = 'IGNORE' }")]
      for (const bomb of bombs) {
        const { millis, value } = yield* SessionHarness.within(
          30,
          reasonOf(sandbox.exec(bomb, { timeoutSecondsMax: 2 }))
        )
        assert.strictEqual(value, "CommandTimedOut")
        assert.isBelow(millis, 20_000)
        assert.strictEqual(yield* said(sandbox, "cat /proc/[0-9]*/comm | grep -c perl"), "0 (1)")
      }
      // A fork bomb that is left running uses up the session's processes. Commands then fail, and do not hang.
      yield* Effect.ignore(sandbox.exec("perl -e 'fork while 1' >/dev/null 2>&1 & sleep 0.2"))
      const { value } = yield* SessionHarness.within(10, reasonOf(said(sandbox, "echo alive")))
      assert.include(["CommandRefused", "PidsExhausted"], value)
      const { millis } = yield* SessionHarness.within(30, manager.destroy("alice"))
      assert.isBelow(millis, 20_000)
      assert.strictEqual(yield* said(yield* manager.getOrCreate("alice"), "echo alive"), "alive")
    })
  )
})

/** Lists the arguments of the `sleep` processes in a sandbox. */
const sleeping = (sandbox: SessionSandbox) =>
  Effect.map(
    said(sandbox, "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null"),
    (all) =>
      all
        .split("\n")
        .flatMap((line) => /^sleep (\d+)/u.exec(line)?.[1] ?? [])
        .toSorted()
  )
