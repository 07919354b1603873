import { assert, describe, expect, it } from "@effect/vitest"
import {
  absent,
  allBut,
  allowed,
  gVisorProfile,
  gVisorSecurityOption,
  optionsRefused,
  profile,
  requestsRefused,
  securityOption
} from "../src/internal/container/SeccompProfile.ts"
import { Schema } from "effect"

/** Returns whether a call is allowed. Compares 64-bit unsigned values, as the kernel does. */
const passes = (name: string, ...given: ReadonlyArray<number | bigint>): boolean =>
  profile.syscalls.some(
    ({ action, args = [], names }) =>
      action === "SCMP_ACT_ALLOW" &&
      names.includes(name) &&
      args.every(({ index, op, value, valueTwo }) => {
        const actual = BigInt.asUintN(64, BigInt(given[index] ?? 0))
        return op === "SCMP_CMP_EQ"
          ? actual === BigInt(value)
          : (actual & BigInt(value)) === BigInt(valueTwo ?? 0)
      })
  )

/** Calls that reach parts of the kernel that no agent needs, or that need a capability. */
const refused = `
  acct add_key adjtimex bpf chroot clock_adjtime clock_settime clone3 create_module delete_module
  fanotify_init fanotify_mark finit_module fsconfig fsmount fsopen fspick get_mempolicy get_kernel_syms
  init_module io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit io_uring_enter
  io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load
  keyctl listmount lookup_dcookie lsm_get_self_attr lsm_list_modules lsm_set_self_attr mbind memfd_secret
  migrate_pages modify_ldt mount mount_setattr move_mount move_pages name_to_handle_at nfsservctl
  open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root process_madvise
  process_mrelease process_vm_readv process_vm_writev ptrace query_module quotactl quotactl_fd reboot
  remap_file_pages request_key set_mempolicy set_mempolicy_home_node setdomainname setfsgid setfsuid setgroups
  sethostname setns settimeofday socketcall statmount stime swapoff swapon sysfs syslog umount umount2 unshare
  uselib userfaultfd ustat vhangup vm86 vm86old vmsplice _sysctl
`
  .trim()
  .split(/\s+/u)

/** IP, ICMP, TCP, UDP, DCCP, IPv6, GRE, ICMPv6, L2TP, SCTP, UDPLite, RAW, SMC, MPTCP; NETLINK_USERSOCK and others. */
const protocols = [0, 1, 2, 3, 4, 6, 12, 15, 16, 17, 33, 41, 47, 58, 115, 132, 136, 255, 256, 262]

const sizeOf = (bits: number) => 2 ** bits

describe("SeccompProfile", () => {
  it("equals the recorded profile", async () => {
    await expect(
      `${profile.syscalls
        .map(({ action, args = [], errnoRet, names }) =>
          [
            action.slice("SCMP_ACT_".length).toLowerCase(),
            ...(errnoRet === undefined ? [] : [errnoRet]),
            ...names,
            ...args.map(({ index, op, value, valueTwo }) =>
              op === "SCMP_CMP_EQ"
                ? `argument${index}==${value}`
                : `argument${index}&0x${value.toString(16)}==0x${(valueTwo ?? 0).toString(16)}`
            )
          ].join(" ")
        )
        .join("\n")
        .replaceAll(/(?=.{117})(.{1,116}) /gmu, "$1\n  ")}\n`
    ).toMatchFileSnapshot("seccomp-profile.txt")
    assert.deepStrictEqual(
      { ...profile, syscalls: [] },
      {
        defaultAction: "SCMP_ACT_ERRNO",
        archMap: [
          { architecture: "SCMP_ARCH_X86_64", subArchitectures: [] },
          { architecture: "SCMP_ARCH_AARCH64", subArchitectures: [] }
        ],
        syscalls: []
      }
    )
  })

  it("is JSON text without blanks in the engine's format", () => {
    assert.deepStrictEqual(JSON.parse(securityOption.slice("seccomp=".length)), profile)
    assert.notMatch(securityOption, /\s/u)
  })

  it.each(refused)("refuses %s, whatever its arguments", (name) => {
    assert.isFalse(
      profile.syscalls.some(({ action, names }) => action === "SCMP_ACT_ALLOW" && names.includes(name))
    )
  })

  it("names each allowed call once, and filters none of them by argument", () => {
    const names = Object.values(allowed).flat()
    assert.strictEqual(new Set(names).size, names.length)
    for (const { args, names: filtered } of profile.syscalls) {
      if (args !== undefined) assert.isEmpty(filtered.filter((name) => names.includes(name)))
    }
  })

  it("allows sockets of four families, with the types and protocols of ordinary programs", () => {
    const found: Array<string> = []
    for (let family = 0; family < 64; family += 1) {
      for (let type = 0; type < 16; type += 1) {
        for (const protocol of protocols) {
          if (family !== 1 && passes("socket", family, type, protocol)) {
            found.push(`${family} ${type === 0 || family === 16 ? "any" : type} ${protocol}`)
          }
        }
      }
    }
    assert.deepStrictEqual(
      [...new Set(found)],
      ["2 1 0", "2 1 6", "2 2 0", "2 2 17", "10 1 0", "10 1 6", "10 2 0", "10 2 17", "16 any 0"]
    )
    assert.isTrue(passes("socket", 1, 5, 0), "every type of a unix socket")
    assert.isTrue(passes("socket", 2, 1 | 0o2000000 | 0o4000, 0), "the flags beside a type")
  })

  it.prop(
    "allows no other family through bits that the kernel ignores",
    [
      Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 })),
      Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2 ** 31 }))
    ],
    ([family, above]) => {
      assert.isFalse(passes("socket", (BigInt(above) << 32n) | BigInt(family), 1, 0))
      assert.isFalse(passes("socketpair", (BigInt(above) << 32n) | BigInt(family), 1, 0))
    }
  )

  it.prop(
    "refuses exactly the listed ioctl requests, with any higher bits",
    [
      Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 ** 32 - 1 })),
      Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 ** 31 }))
    ],
    ([request, above]) => {
      for (const near of [
        request,
        ...requestsRefused,
        ...requestsRefused.map((one) => one ^ (1 << (request % 31)))
      ]) {
        const asked = BigInt.asUintN(32, BigInt(near))
        assert.strictEqual(
          passes("ioctl", 0, (BigInt(above) << 32n) | asked),
          !requestsRefused.includes(Number(asked)),
          asked.toString(16)
        )
      }
    }
  )

  it("covers every number except the refused ones exactly once", () => {
    for (const numbers of [[0], [0xffff_ffff], [0, 0xffff_ffff], [5, 6, 7, 8], requestsRefused]) {
      const size = allBut(numbers).reduce(
        (sum, { mask }) => sum + sizeOf(32 - mask.toString(2).replaceAll("0", "").length),
        0
      )
      assert.strictEqual(size, sizeOf(32) - numbers.length, numbers.join(" "))
    }
  })

  it.each([
    ["a new mount namespace", 0x0002_0000],
    ["a new cgroup namespace", 0x0200_0000],
    ["a new UTS namespace", 0x0400_0000],
    ["a new IPC namespace", 0x0800_0000],
    ["a new user namespace", 0x1000_0000],
    ["a new PID namespace", 0x2000_0000],
    ["a new network namespace", 0x4000_0000]
  ])("allows clone for a thread and a child, but not with %s", (_, flag) => {
    const [thread, child] = [0x003d_0f00, 0x0120_0011]
    for (const flags of [thread, child]) {
      assert.isTrue(passes("clone", flags))
      assert.isFalse(passes("clone", flags + flag))
    }
  })

  it("allows creating FIFOs, files and sockets, but no devices", () => {
    for (const [type, expected] of [
      [0, true],
      [0x1000, true],
      [0x2000, false],
      [0x4000, false],
      [0x6000, false],
      [0x8000, true],
      [0xa000, false],
      [0xc000, true]
    ] as const) {
      assert.strictEqual(passes("mknod", 0, type + 0o644), expected)
      assert.strictEqual(passes("mknodat", 0, 0, type + 0o644), expected)
    }
  })

  it("allows querying the personality and setting the default one", () => {
    assert.isTrue(passes("personality", 0xffff_ffff))
    assert.isTrue(passes("personality", 0))
    assert.isFalse(passes("personality", 0x0004_0000), "without random addresses")
    assert.isFalse(passes("personality", 0x0040_0000), "all memory executable")
  })

  it("answers clone3 and asynchronous I/O with ENOSYS, so that programs fall back", () => {
    assert.deepInclude(profile.syscalls, { names: absent, action: "SCMP_ACT_ERRNO", errnoRet: 38 })
  })

  it("differs for gVisor only in how these are refused, and refuses ptrace, so that no tracer can allow them", () => {
    const { syscalls, ...rest } = gVisorProfile
    const { syscalls: own, ...others } = profile
    assert.deepStrictEqual(rest, others)
    assert.deepStrictEqual(
      syscalls.filter((rule) => rule.action !== "SCMP_ACT_TRACE"),
      own.filter(({ action }) => action === "SCMP_ACT_ALLOW")
    )
    assert.deepStrictEqual(
      syscalls.filter((rule) => rule.action === "SCMP_ACT_TRACE"),
      [{ names: absent, action: "SCMP_ACT_TRACE" }]
    )
    assert.notIncludeMembers(
      syscalls.flatMap(({ names }) => names),
      ["ptrace"]
    )
    assert.strictEqual(gVisorSecurityOption, `seccomp=${JSON.stringify(gVisorProfile)}`)
  })

  it("allows every form of memory except huge pages, which no sandbox limit counts", () => {
    for (const [name, at, flag, ordinary] of [
      ["memfd_create", 1, 0x4, 0x1b],
      ["mmap", 3, 0x4_0000, 0x12_4022],
      ["shmget", 2, 0x800, 0x1780]
    ] as const) {
      const before = Array.from({ length: at }, () => 0)
      assert.isTrue(passes(name, ...before, ordinary), name)
      assert.isFalse(passes(name, ...before, ordinary | flag), name)
      assert.isFalse(passes(name, ...before, (1n << 32n) | BigInt(flag)), name)
    }
  })

  it.prop(
    "refuses exactly the listed socket options below 128, with any higher bits of level and name",
    [
      Schema.Literals([1, 6, 17]),
      Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 127 })),
      Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 ** 31 }))
    ],
    ([level, name, above]) => {
      const refused = optionsRefused.find((one) => one.level === level)!.names
      const high = BigInt(above) << 32n
      for (const asked of [name, ...refused, ...refused.map((one) => one ^ (1 << (name % 7)))]) {
        assert.strictEqual(
          passes("setsockopt", 3, high | BigInt(level), high | BigInt(asked)),
          !refused.includes(asked),
          `${level} ${asked}`
        )
      }
      assert.isFalse(passes("setsockopt", 3, level, name + 128), "no kernel has one")
    }
  )

  it.prop(
    "refuses to change the scheduling and the limits of the first process, with any higher bits",
    [
      Schema.Int.check(Schema.isBetween({ minimum: 2, maximum: 2 ** 22 - 1 })),
      Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 ** 31 }))
    ],
    ([process, above]) => {
      const high = BigInt(above) << 32n
      for (const name of [
        "prlimit64",
        "sched_setaffinity",
        "sched_setattr",
        "sched_setparam",
        "sched_setscheduler"
      ]) {
        assert.isFalse(passes(name, high | 1n), name)
        for (const other of [0, process])
          assert.isTrue(passes(name, high | BigInt(other)), `${name} ${other}`)
      }
      for (const [name, byProcess] of [
        ["setpriority", 0],
        ["ioprio_set", 1]
      ] as const) {
        assert.isFalse(passes(name, high | BigInt(byProcess), high | 1n), name)
        for (const other of [0, process]) {
          assert.isTrue(passes(name, high | BigInt(byProcess), high | BigInt(other)), `${name} ${other}`)
          for (const group of [0, 1, 2, 3]) {
            if (group !== byProcess) assert.isFalse(passes(name, high | BigInt(group), BigInt(other)), name)
          }
        }
      }
    }
  )

  it("allows socket options at six levels", () => {
    const levels = Array.from({ length: 512 }, (_, level) => level)
    assert.deepStrictEqual(
      levels.filter((level) => passes("setsockopt", 3, level, 1)),
      [0, 1, 6, 17, 41, 270]
    )
  })
})
