/**
 * Program of the host that binds directories into waiting sandboxes
 * (docs/adr/0048-directories-in-waiting-sandboxes.md).
 *
 * Node has no function for these system calls, and Perl has one for any of them. The program is a text, so that every
 * bundle of this library contains it.
 */

/** First line of its output, if this host can bind directories. */
export const ready = "ready"

/** A directory and the sandbox that gets it. */
export interface Job {
  /** First process of the container, as this host numbers it. */
  readonly processId: number
  readonly containerId: string
  /** Absolute path of the directory, without links, and the identity that it must have. */
  readonly path: string
  readonly device: string
  readonly inode: string
  /** Where the sandbox sees it. */
  readonly target: string
  /** Whether inputs are mounted at `.cogni` in it. */
  readonly hasInputs: boolean
  /** Whether the sandbox has loaded a program, which may then be the fault. The program of the host does not ask. */
  readonly hasLoaded: boolean
}

/** Encodes a job as one line. */
export const encode = (id: number, job: Job): string =>
  [
    id,
    job.processId,
    job.containerId,
    job.device,
    job.inode,
    job.hasInputs ? 1 : 0,
    hex(job.target),
    hex(job.path)
  ].join(" ") + "\n"

export interface Answer {
  readonly id: number
  /** Why the directory was not bound; `undefined`: it was. */
  readonly why: string | undefined
  /**
   * Where the fault is: in this `host`, where every directory and every sandbox would fail in the same way, in what was
   * done in the `sandbox` while it waited, or in this `job`.
   */
  readonly fault: "host" | "job" | "sandbox"
}

/** Decodes the answer to a job; `undefined` if the line is another. */
export const decode = (line: string): Answer | undefined => {
  const [, id, fault, why] = /^(\d+) (?:ok|(host|job|sandbox) (.*?)) *$/u.exec(line) ?? []
  return id === undefined
    ? undefined
    : { id: Number(id), why, fault: fault === "host" || fault === "sandbox" ? fault : "job" }
}

const hex = (text: string): string => Buffer.from(text).toString("hex")

/**
 * Reads jobs from standard input, one a line, and answers each with its number and `ok`, `host WHY`, `sandbox WHY` or
 * `job WHY`. It is `host` if the kernel refused something that it would refuse for every job, and `sandbox` if others
 * use its workspace. A job whose file system does not answer has no answer. Ends with its input.
 *
 * Each job is done by a process of its own, because it enters the mount namespace of the sandbox. It first opens the
 * directory, whose device and inode must be the expected ones. Then it opens the process of the container, and reads
 * everything about that through it, so that no other process can get its number meanwhile. It refuses a sandbox with
 * the mounts or the users of the host.
 */
export const source = String.raw`
use strict;
use warnings;

use constant {
    AT_FDCWD => -100, AT_EMPTY_PATH => 0x1000, AT_RECURSIVE => 0x8000, AT_SYMLINK_NOFOLLOW => 0x100,
    OPEN_TREE_CLONE => 1, OPEN_TREE_CLOEXEC => 02000000, MOVE_MOUNT_F_EMPTY_PATH => 4,
    MOUNT_ATTR_RDONLY => 1, MOUNT_ATTR_NOSUID => 2, MOUNT_ATTR_NODEV => 4, MS_PRIVATE => 1 << 18,
    CLONE_NEWNS => 0x20000, MNT_DETACH => 2, UMOUNT_NOFOLLOW => 8, O_PATH => 010000000, JOB_SECONDS_MAX => 5,
    EPERM => 1, EACCES => 13, EBUSY => 16, ENOSYS => 38
};

# The architecture is in the ELF header of this program: 62 is x86_64, 183 is aarch64.
open my $self, '<', '/proc/self/exe' or die "/proc/self/exe: $!\n";
read $self, my $header, 20 or die "/proc/self/exe: $!\n";
close $self;
my $numbers = {
    62 => {setns => 308, umount2 => 166, O_DIRECTORY => 0200000, O_NOFOLLOW => 0400000},
    183 => {setns => 268, umount2 => 39, O_DIRECTORY => 040000, O_NOFOLLOW => 0100000}
}->{unpack 'x18 v', $header} // die "the system calls of this architecture are unknown\n";
$numbers = {%$numbers, open_tree => 428, move_mount => 429, mount_setattr => 442};

# Where the fault is: 'host' if every directory and every sandbox of this host would fail in the same way, because this
# process lacks a right, or the kernel a system call.
my $fault = 'job';

sub call {
    my ($name, @arguments) = @_;
    my $answer = syscall $numbers->{$name}, @arguments;
    return $answer if $answer != -1;
    my $number = $! + 0;
    $fault = 'host' if $name ne 'open_tree' && grep { $number == $_ } EPERM, EACCES, ENOSYS;
    die "$name: $!\n";
}

# A copy of the mounts at a path, without a place yet. They vanish with the descriptor.
sub copy_of {
    my ($path, $flags) = @_;
    return call('open_tree', AT_FDCWD, $path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | $flags);
}

# The attributes: set, cleared, propagation, user namespace.
sub attributes { return pack 'Q4', $_[0], 0, $_[1], 0 }

# A process that stays in the old workspace, or has it open, can write no file there that is not counted.
sub make_read_only {
    my $path = shift;
    my @options = (AT_FDCWD, $path, AT_SYMLINK_NOFOLLOW);
    my $attributes = attributes(MOUNT_ATTR_RDONLY, 0);
    my $answer = syscall $numbers->{mount_setattr}, @options, $attributes, length $attributes;
    return if $answer != -1;
    $fault = 'sandbox' if $! == EBUSY;
    die "others have a file of its workspace open: $!\n";
}

sub restrict {
    my $tree = shift;
    my $attributes = attributes(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, MS_PRIVATE);
    call('mount_setattr', $tree, '', AT_EMPTY_PATH | AT_RECURSIVE, $attributes, length $attributes);
    return;
}

sub hold {
    my ($path, $flags) = @_;
    sysopen my $handle, $path, O_PATH | $numbers->{O_NOFOLLOW} | $flags or die "$path: $!\n";
    return $handle;
}

sub text_of {
    my $path = shift;
    open my $file, '<', $path or die "$path: $!\n";
    local $/;
    my $text = <$file>;
    return $text // '';
}

sub namespace { my $path = shift; return join ':', (stat $path)[0, 1] }

sub names_in {
    my $path = shift;
    opendir my $directory, $path or die "$path: $!\n";
    return grep { !/^\.\.?\z/ } readdir $directory;
}

sub enter {
    my ($process_id, $container_id) = @_;
    my $process = hold("/proc/$process_id", $numbers->{O_DIRECTORY});
    my $facts = '/proc/self/fd/' . fileno $process;
    die "process $process_id is not of this container\n" if index(text_of("$facts/cgroup"), $container_id) < 0;
    open my $mounts, '<', "$facts/ns/mnt" or die "its mount namespace: $!\n";
    my $own = '/proc/self/ns';
    die "its mounts are those of the host\n" if namespace("$own/mnt") eq join ':', (stat $mounts)[0, 1];
    $fault = 'host' if namespace("$own/user") ne namespace("$facts/ns/user");
    die "the engine maps users\n" if $fault eq 'host';
    call('setns', fileno $mounts, CLONE_NEWNS);
    return;
}

sub bind_directory {
    my ($process_id, $container_id, $device, $inode, $has_inputs, $target, $path) = @_;
    my $directory = hold($path, $numbers->{O_DIRECTORY});
    my ($its_device, $its_inode) = stat $directory;
    die "its path leads to another directory\n" if $its_device ne $device || $its_inode ne $inode;
    # With the mounts below it, as an engine mounts it. The posture check then refuses them, as in every sandbox.
    my $tree = copy_of('/proc/self/fd/' . fileno $directory, AT_RECURSIVE);
    restrict($tree);
    enter($process_id, $container_id);
    my @left = grep { !($has_inputs && $_ eq '.cogni') } names_in($target);
    $fault = 'sandbox' if @left;
    die "while it waited, others left " . @left . " files in it\n" if @left;
    my $inputs = $has_inputs ? copy_of("$target/.cogni", AT_SYMLINK_NOFOLLOW) : undef;
    make_read_only($target);
    call('umount2', $target, MNT_DETACH | UMOUNT_NOFOLLOW);
    call('move_mount', $tree, '', AT_FDCWD, $target, MOVE_MOUNT_F_EMPTY_PATH);
    return if !$has_inputs;
    eval { call('move_mount', $inputs, '', $tree, '.cogni', MOVE_MOUNT_F_EMPTY_PATH); 1 } or die "its .cogni: $@";
    return;
}

sub answer { my $text = shift; $text =~ tr/\n\r/  /; syswrite STDOUT, "$text\n"; return }

# Does all that needs the kernel and the rights, and leaves nothing.
my $can_copy = eval {
    my $tree = copy_of('/', 0);
    # A handle, which closes the descriptor at the end of this block.
    open my $handle, '<&=', $tree or die "open: $!\n";
    restrict($tree);
    1;
};
if (!$can_copy) { answer("cannot copy a mount: $@"); exit 1 }
answer('${ready}');

# A file system that does not answer keeps its own job only. Each answer is written at once, as a line.
$SIG{CHLD} = 'IGNORE';
while (my $line = <STDIN>) {
    my ($id, @words) = split ' ', $line;
    my $path = pack 'H*', pop @words;
    my $target = pack 'H*', pop @words;
    my $child = fork;
    answer("$id host fork: $!") if !defined $child;
    next if !defined $child || $child;
    alarm JOB_SECONDS_MAX;
    my $is_bound = eval { bind_directory(@words, $target, $path); 1 };
    answer($is_bound ? "$id ok" : "$id $fault " . substr $@, 0, 1024);
    exit 0;
}
`.trimStart()
