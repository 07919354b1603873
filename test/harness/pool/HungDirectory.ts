/**
 * A directory of a file system that stops answering, as one whose server is gone: a FUSE file system of one empty
 * directory. Needs root, as the tests that bind directories do.
 */
import { Effect, type Scope } from "effect"
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdirSync, readdirSync, readFileSync } from "node:fs"

export interface HungDirectory {
  /** From here on, nothing that asks the file system gets an answer. */
  readonly hang: Effect.Effect<void>
  /** Ends the file system. Everything that waits for it gets an error. */
  readonly end: Effect.Effect<void>
}

/** Serves the file system, with the answers of protocol 7.22. A directory for inputs can be made in it, and no more. */
const program = String.raw`
use strict;
use warnings;
my ($path, $mount) = @ARGV;
sysopen my $fuse, '/dev/fuse', 2 or die "/dev/fuse: $!\n";
my ($name, $kind) = ('hung', 'fuse');
my $options = 'fd=' . fileno($fuse) . ',rootmode=40777,user_id=0,group_id=0,allow_other';
syscall($mount + 0, $name, $path, $kind, 6, $options) == 0 or die "mount: $!\n";
my $hangs = 0;
$SIG{USR1} = sub { $hangs = 1; syswrite STDOUT, "hangs\n" };
sub attributes { return pack 'Q6 L10', $_[0], (0) x 8, 040777, 2, 1000, 1000, 0, 4096, 0 }
sub attribute_answer { return pack('Q L L', 0, 0, 0) . attributes($_[0]) }
# The directory that hosts make for inputs.
my ($inputs, $has_inputs) = (pack('Q4 L L', 2, 0, 0, 0, 0, 0) . attributes(2), 0);
my %answers = (
    3 => \&attribute_answer, 4 => \&attribute_answer,
    1 => sub { return $has_inputs && $_[1] eq ".cogni\0" ? $inputs : undef },
    9 => sub { $has_inputs = 1; return $inputs }, 11 => sub { $has_inputs = 0; return '' },
    17 => sub { return pack 'Q5 L4 x24', (1 << 20) x 5, 4096, 255, 4096, 0 },
    26 => sub { return pack 'L4 S2 L', 7, 22, 65536, 0, 12, 9, 65536 },
    27 => sub { return pack 'Q L L', 0, 0, 0 }, 28 => sub { return '' }, 29 => sub { return '' }
);
my %has_no_answer = map { $_ => 1 } 2, 36, 38, 42;
syswrite STDOUT, "serves\n";
while (1) {
    my $read = sysread $fuse, my $request, 1 << 18;
    next if !defined $read && $!{EINTR};
    last if !$read;
    my (undef, $operation, $unique, $node) = unpack 'L L Q Q', $request;
    next if $hangs || $has_no_answer{$operation};
    my $does = $answers{$operation};
    my $answer = $does && $does->($node, substr $request, 40, $read - 40);
    # An entry does not exist, and an operation is not known.
    my $error = defined $answer ? 0 : $does ? -2 : -38;
    $answer //= '';
    syswrite $fuse, pack('L l Q', 16 + length $answer, $error, $unique) . $answer;
}
`

const end = async (server: ChildProcess) => {
  if (server.exitCode !== null || server.signalCode !== null) return
  const ended = once(server, "exit")
  server.kill("SIGKILL")
  await ended
}

/** Mounts it at a new directory until the scope closes. */
export const acquire = Effect.fnUntraced(function* (
  path: string
): Effect.fn.Return<HungDirectory, never, Scope.Scope> {
  mkdirSync(path, { recursive: true })
  const mount = process.arch === "arm64" ? "40" : "165"
  const server = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn("perl", ["-MErrno", "-e", program, path, mount], { stdio: ["ignore", "pipe", "inherit"] })
    ),
    (child) =>
      Effect.promise(async () => {
        const isMounted = child.exitCode === null
        await end(child)
        if (isMounted) execFileSync("umount", ["--lazy", path])
      })
  )
  const said = (word: string) =>
    Effect.promise(async () => {
      const [piece] = (await Promise.race([once(server.stdout, "data"), once(server, "exit")])) as [unknown]
      if (!String(piece).includes(word))
        throw new Error(`no FUSE file system, which needs /dev/fuse: ${piece}`)
    })
  yield* said("serves")
  return {
    hang: Effect.andThen(
      Effect.sync(() => server.kill("SIGUSR1")),
      said("hangs")
    ),
    end: Effect.promise(() => end(server))
  }
})

/** Lists programs in Perl that a child of this process has started. */
export const grandchildren = Effect.sync(() => {
  const found = readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .flatMap((name) => {
      try {
        const [, program, parent] = /^\d+ \((.*)\) \S (\d+)/su.exec(
          readFileSync(`/proc/${name}/stat`, "utf8")
        )!
        return [{ id: Number(name), program, parent: Number(parent) }]
      } catch {
        return []
      }
    })
  const children = new Set(found.filter(({ parent }) => parent === process.pid).map(({ id }) => id))
  return found.filter(({ parent, program }) => program === "perl" && children.has(parent))
})
