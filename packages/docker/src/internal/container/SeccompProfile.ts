/**
 * The seccomp profile of our containers: an allowlist of system calls, the same on every engine.
 *
 * It is based on Docker's default profile (github.com/moby/profiles, `seccomp/default.json`), without these calls:
 *
 * - All calls that the default allows with a capability, because our containers have none.
 * - Calls that reach large or often-attacked parts of the kernel that an agent does not need: `io_uring_*`,
 *   `userfaultfd`, `bpf`, `perf_event_open`, the key rings, `modify_ldt`, `memfd_secret`, `vmsplice` and file handles.
 * - Calls that read or trace another process, all namespaces, all but four socket families, and 32-bit programs.
 * - Calls that change the scheduling or the limits of a container's first process, which ends it at its deadline.
 * - Calls that use a resource that the whole host shares and no control group limits: `io_setup` and the other calls of
 *   asynchronous I/O (`fs.aio-max-nr`), huge pages.
 *
 * A call that is not listed fails with EPERM, one of {@link absent} with ENOSYS. A call that is newer than every listed
 * call also fails with ENOSYS: runc adds this itself, so that a newer C library falls back to older calls.
 *
 * `SeccompProfile.test.ts` checks the complete profile, and `test/integration/SystemCalls.test.ts` makes the calls from
 * inside.
 */

/** A comparison of one argument, in the engine's format. */
interface ArgumentRule {
  readonly index: number
  readonly value: number
  readonly valueTwo?: number
  readonly op: "SCMP_CMP_EQ" | "SCMP_CMP_MASKED_EQ"
}

/** A rule for system calls. A call passes if any rule matches it. A rule matches if all its arguments match. */
interface CallRule {
  readonly names: ReadonlyArray<string>
  readonly action: "SCMP_ACT_ALLOW" | "SCMP_ACT_ERRNO" | "SCMP_ACT_TRACE"
  readonly errnoRet?: number
  readonly args?: ReadonlyArray<ArgumentRule>
}

export interface SeccompProfile {
  readonly defaultAction: "SCMP_ACT_ERRNO"
  readonly archMap: ReadonlyArray<{
    readonly architecture: string
    readonly subArchitectures: ReadonlyArray<string>
  }>
  readonly syscalls: ReadonlyArray<CallRule>
}

/** Calls that are allowed with any arguments. */
export const allowed: Readonly<Record<string, ReadonlyArray<string>>> = {
  process: words(`
    alarm arch_prctl capget capset execve execveat exit exit_group fork getcpu getegid geteuid getgid
    getgroups getitimer getpgid getpgrp getpid getppid getpriority getresgid getresuid getrlimit getrusage
    getsid gettid getuid kill pause pidfd_open pidfd_send_signal prctl restart_syscall rseq setgid
    setitimer setpgid setregid setresgid setresuid setreuid setrlimit setsid setuid
    set_robust_list get_robust_list set_tid_address sysinfo times tgkill tkill umask uname uretprobe vfork
    wait4 waitid
  `),
  signals: words(`
    rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_tgsigqueueinfo sigaltstack signalfd signalfd4
  `),
  scheduling: words(`
    ioprio_get sched_getaffinity sched_getattr sched_getparam sched_get_priority_max sched_get_priority_min
    sched_getscheduler sched_rr_get_interval sched_yield
  `),
  // A program may restrict itself further.
  restriction: words(`landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp`),
  memory: words(`
    brk cachestat madvise map_shadow_stack membarrier mincore mlock mlock2 mlockall mprotect mremap mseal msync
    munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect
  `),
  time: words(`
    clock_getres clock_gettime clock_nanosleep gettimeofday nanosleep time timer_create timer_delete
    timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
  `),
  waiting: words(`
    epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 futex
    futex_requeue futex_wait futex_waitv futex_wake poll ppoll pselect6 select
  `),
  files: words(`
    access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
    fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr
    flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getrandom
    getxattr getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch lchown lgetxattr link
    linkat listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat mkdir mkdirat newfstatat open
    openat openat2 pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink
    readlinkat readv removexattr removexattrat rename renameat renameat2 rmdir sendfile setxattr setxattrat
    splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate unlink unlinkat utime
    utimensat utimes write writev
  `),
  interprocess: words(`
    mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl
    semget semop semtimedop shmat shmctl shmdt
  `),
  sockets: words(`
    accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg
    sendmsg sendto shutdown
  `)
}

/**
 * Calls that fail with ENOSYS, as on a kernel without them, so that programs fall back: the C library to `clone`,
 * databases to ordinary reads and writes. The flags of `clone3` are behind a pointer, which a filter cannot read.
 */
export const absent: ReadonlyArray<string> = words(`
  clone3 io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit
`)

/** Socket families by their numbers in `socket(2)`. */
const family = { unix: 1, inet: 2, inet6: 10, netlink: 16 } as const
const type = { stream: 1, datagram: 2 } as const
const protocol = { default: 0, tcp: 6, udp: 17 } as const

/** Mask of the socket type, whose other bits are flags. */
const typeMask = 0xf

/** All `CLONE_NEW…` flags of `clone(2)`. */
const namespaceFlags = 0x7e02_0000

/** File types that `mknod(2)` may create: files, FIFOs and sockets, but no devices. */
const nodeTypes = { plain: 0, fifo: 0x1000, regular: 0x8000, socket: 0xc000 } as const
const nodeTypeMask = 0xf000

/**
 * Refused requests of `ioctl(2)`: typing into a terminal (TIOCSTI), the console's selection (TIOCLINUX), and loading a
 * line discipline, which loads a kernel module (TIOCSETD).
 */
export const requestsRefused: ReadonlyArray<number> = [0x5412, 0x541c, 0x5423]

/** Flags for huge pages: `MFD_HUGETLB`, `MAP_HUGETLB`, `SHM_HUGETLB`. */
const hugePages = { memfd_create: 0x4, mmap: 0x4_0000, shmget: 0x800 } as const

/** Allowed levels of `setsockopt(2)`. Not UDP-Lite, because UDP sockets accept UDP options at its level too. */
const level = { ip: 0, socket: 1, tcp: 6, udp: 17, ipv6: 41, netlink: 270 } as const

/**
 * Refused socket options by level: programs in the kernel (SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF
 * and _EBPF), the kernel's ciphers and upper-layer protocols (TCP_MD5SIG, TCP_ULP, TCP_MD5SIG_EXT, TCP_AO_*), and IPsec
 * in UDP (UDP_ENCAP).
 */
export const optionsRefused: ReadonlyArray<{
  readonly level: number
  readonly names: ReadonlyArray<number>
}> = [
  { level: level.socket, names: [26, 50, 51, 52] },
  { level: level.tcp, names: [14, 31, 32, 38, 39, 40, 41, 42] },
  { level: level.udp, names: [100] }
]

/** Bits of an option number: no kernel has an option of these levels that needs more. */
const optionBits = 7

/**
 * Calls that change the scheduling or the limits of the process in their first argument. All processes of a container
 * have the same user, so the kernel would let an agent slow down the process that ends it.
 */
const processChanges = [
  "prlimit64",
  "sched_setaffinity",
  "sched_setattr",
  "sched_setparam",
  "sched_setscheduler"
]

/** The only form of naming processes: by ID (`PRIO_PROCESS`, `IOPRIO_WHO_PROCESS`). Groups could include the first. */
const byProcess = { setpriority: 0, ioprio_set: 1 } as const

/** The first process of a PID namespace. */
const firstProcess = 1

/** Bits of a process ID: the kernel allows no higher one (`PID_MAX_LIMIT`). */
const processBits = 22

/** Bits that the kernel reads of a level, an option name or a request. */
const readBits = 32
const readMask = 2 ** readBits - 1

const equals = (index: number, value: number): ArgumentRule => ({ index, value, op: "SCMP_CMP_EQ" })

/** Matches if the argument's bits under `mask` equal `value`. In the engine's format, `value` is the mask. */
const masked = (index: number, mask: number, value: number): ArgumentRule => ({
  index,
  value: mask,
  valueTwo: value,
  op: "SCMP_CMP_MASKED_EQ"
})

const allow = (name: string, ...args: ReadonlyArray<ArgumentRule>): CallRule => ({
  names: [name],
  action: "SCMP_ACT_ALLOW",
  ...(args.length === 0 ? {} : { args })
})

/**
 * Covers all numbers of `bits` bits except the refused ones with 32-bit masks: one mask per subtree of the binary tree
 * that contains no refused number.
 *
 * The kernel reads 32 bits of a request, but the filter compares 64. A rule that refuses numbers could be bypassed with
 * a higher bit. Rules that allow with 32-bit masks cannot, and their order does not matter.
 */
export const allBut = (
  refused: ReadonlyArray<number>,
  bits: number = readBits
): ReadonlyArray<{ readonly mask: number; readonly value: number }> => {
  const covers: Array<{ readonly mask: number; readonly value: number }> = []
  const descend = (bit: number, mask: number, value: number, below: ReadonlyArray<number>): void => {
    if (below.length === 0) covers.push({ mask, value })
    else if (bit >= 0) {
      const weight = 2 ** bit
      const isSet = (number: number) => Math.floor(number / weight) % 2 === 1
      descend(
        bit - 1,
        mask + weight,
        value,
        below.filter((number) => !isSet(number))
      )
      descend(bit - 1, mask + weight, value + weight, below.filter(isSet))
    }
  }
  descend(bits - 1, 2 ** readBits - 2 ** bits, 0, refused)
  return covers
}

const sockets: ReadonlyArray<CallRule> = [
  allow("socket", equals(0, family.unix)),
  // Any other type reaches SCTP, DCCP or raw packets. Any other protocol reaches MPTCP, ICMP and more.
  ...[family.inet, family.inet6].flatMap((internet) =>
    (
      [
        [type.stream, protocol.default],
        [type.stream, protocol.tcp],
        [type.datagram, protocol.default],
        [type.datagram, protocol.udp]
      ] as const
    ).map(([kind, spoken]) =>
      allow("socket", equals(0, internet), masked(1, typeMask, kind), equals(2, spoken))
    )
  ),
  // Only NETLINK_ROUTE (0), with which every language runtime lists network interfaces.
  allow("socket", equals(0, family.netlink), equals(2, 0)),
  allow("socketpair", equals(0, family.unix)),
  ...[level.ip, level.ipv6, level.netlink].map((free) => allow("setsockopt", masked(1, readMask, free))),
  ...optionsRefused.flatMap(({ level, names }) =>
    allBut(names, optionBits).map(({ mask, value }) =>
      allow("setsockopt", masked(1, readMask, level), masked(2, mask, value))
    )
  )
]

const processes: ReadonlyArray<CallRule> = allBut([firstProcess], processBits).flatMap(({ mask, value }) => [
  { names: processChanges, action: "SCMP_ACT_ALLOW", args: [masked(0, mask, value)] } as const,
  ...Object.entries(byProcess).map(([name, which]) =>
    allow(name, masked(0, readMask, which), masked(1, mask, value))
  )
])

export const profile: SeccompProfile = {
  defaultAction: "SCMP_ACT_ERRNO",
  // No sub-architectures: a call in the 32-bit or the x32 convention matches no rule and is never executed.
  archMap: ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"].map((architecture) => ({
    architecture,
    subArchitectures: []
  })),
  syscalls: [
    { names: Object.values(allowed).flat().toSorted(), action: "SCMP_ACT_ALLOW" },
    ...sockets,
    ...processes,
    allow("clone", masked(0, namespaceFlags, 0)),
    { names: absent, action: "SCMP_ACT_ERRNO", errnoRet: 38 },
    allow("memfd_create", masked(1, hugePages.memfd_create, 0)),
    allow("mmap", masked(3, hugePages.mmap, 0)),
    allow("shmget", masked(2, hugePages.shmget, 0)),
    // Sets the default personality, and queries the current one.
    allow("personality", equals(0, 0)),
    allow("personality", equals(0, 0xffff_ffff)),
    ...Object.values(nodeTypes).flatMap((kind) => [
      allow("mknod", masked(1, nodeTypeMask, kind)),
      allow("mknodat", masked(2, nodeTypeMask, kind))
    ]),
    ...allBut(requestsRefused).map(({ mask, value }) => allow("ioctl", masked(1, mask, value)))
  ]
}

/**
 * The same profile for gVisor, which answers every call that a rule refuses with EPERM. The C library would not fall
 * back, so no program could start a thread. SCMP_ACT_TRACE lets a tracer decide, and answers with ENOSYS without one.
 * No process of a sandbox can become a tracer, because `ptrace` is refused.
 */
export const gVisorProfile: SeccompProfile = {
  ...profile,
  syscalls: profile.syscalls.map((rule) =>
    rule.names === absent ? { names: absent, action: "SCMP_ACT_TRACE" } : rule
  )
}

/** Returns a profile as an entry of `SecurityOpt`, which contains its JSON text. */
const option = (one: SeccompProfile): string => `seccomp=${JSON.stringify(one)}`

/** The entry for {@link profile}. */
export const securityOption: string = option(profile)

/** The entry for {@link gVisorProfile}. */
export const gVisorSecurityOption: string = option(gVisorProfile)

function words(text: string): ReadonlyArray<string> {
  return text.trim().split(/\s+/u)
}
