/**
 * Parses the posture of a container, and compares it with the requested security settings. Pure.
 *
 * There are three witnesses: the entrypoint inside (raw lines of `/proc`), the engine (the configuration that it
 * actually uses), and, with a local engine, the host's `/proc`.
 */
import type { FileIdentity, Posture } from "@cogni/sandbox-core/Posture"
import type { HostConfig } from "./Hardening.ts"
import type { KernelLimits } from "./KernelFacts.ts"

/** First and last line of the report, a line in it, and the lines that follow it after `go`. */
export const lines = {
  begin: "cogni-posture 1",
  /** The entrypoint accepts a token after `go`. Images of earlier releases do not. */
  takesToken: "go token",
  /** The waiter accepts a claim of a run whose directory was bound. Images of earlier releases do not. */
  takesDirectory: "claim directory",
  /** The second line, if a waiting sandbox has loaded its program; followed by the nonce of the host. */
  loaded: "loaded ",
  /** A line of the status of that program. */
  program: "program ",
  end: "cogni-posture end",
  started: "cogni-start",
  failed: "cogni-failed "
} as const

/** Maximum size of a report. */
export const reportBytesMax = 256 * 1024

/** The fields of `/proc/PID/status` that describe the isolation of a process. */
interface ProcessStatus {
  readonly userIds: ReadonlyArray<number>
  readonly groupIds: ReadonlyArray<number>
  readonly capabilities: Posture["capabilities"]
  readonly noNewPrivileges: boolean
  readonly seccompMode: number
}

/** Parses user or group IDs. A missing field reads as root, so that it never passes. */
const ids = (text: string | undefined): ReadonlyArray<number> =>
  text === undefined
    ? [0]
    : text
        .split(/\s+/u)
        .filter((word) => /^\d+$/u.test(word))
        .map(Number)

/** Parses `/proc/PID/status`. A missing field reads as the weakest value, so that it never passes. */
export const parseStatus = (text: string): ProcessStatus => {
  const field = new Map(
    text.split("\n").map((line) => {
      const colon = line.indexOf(":")
      return [line.slice(0, colon), line.slice(colon + 1).trim()] as const
    })
  )
  const mask = (name: string) => {
    const value = field.get(name) ?? ""
    return /^[0-9a-f]{1,32}$/u.test(value) ? value : "unknown"
  }
  return {
    userIds: ids(field.get("Uid")),
    groupIds: [...ids(field.get("Gid")), ...ids(field.get("Groups"))],
    capabilities: {
      inheritable: mask("CapInh"),
      permitted: mask("CapPrm"),
      effective: mask("CapEff"),
      bounding: mask("CapBnd"),
      ambient: mask("CapAmb")
    },
    noNewPrivileges: field.get("NoNewPrivs") === "1",
    seccompMode: Number(field.get("Seccomp") ?? 0)
  }
}

/** Decodes the octal escapes that `/proc/self/mountinfo` uses for blanks and backslashes. */
const unescapeMount = (text: string) =>
  text.replaceAll(/\\([0-7]{3})/gu, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))

const parseMount = (
  line: string,
  identities: ReadonlyMap<string, FileIdentity>
): Posture["mounts"][number] | undefined => {
  const [before, after] = line.split(" - ")
  const fields = before?.split(" ") ?? []
  const [target, options] = [fields[4], fields[5]]
  if (target === undefined || options === undefined || after === undefined) return undefined
  const flags = options.split(",")
  const identity = identities.get(target)
  return {
    target: unescapeMount(target),
    fileSystem: after.split(" ")[0] ?? "unknown",
    readOnly: flags.includes("ro"),
    options: flags,
    ...(identity === undefined ? {} : { identity })
  }
}

/** Parses rows of `DEVICE INODE TARGET` into a map by target, which is escaped as in the list of mounts. */
const parseIdentities = (rows: ReadonlyArray<string>): ReadonlyMap<string, FileIdentity> =>
  new Map(
    rows.flatMap((row) => {
      const match = /^(\d{1,20}) (\d{1,20}) (\/.*)$/u.exec(row)
      return match === null ? [] : [[match[3]!, { device: match[1]!, inode: match[2]! }] as const]
    })
  )

/** Returns both groups of the pattern for each row that matches. */
const pairs = (rows: ReadonlyArray<string>, pattern: RegExp) =>
  rows.flatMap((row) => {
    const match = pattern.exec(row)
    return match === null ? [] : [[match[1]!, match[2]!] as const]
  })

/** Parses a report. Returns `undefined` if the text is not a complete report. */
export const parseReport = (text: string): Posture | undefined => {
  const all = text.split("\n")
  if (all[0] !== lines.begin || !all.includes(lines.end)) return undefined
  const byWord = new Map<string, Array<string>>()
  for (const line of all) {
    const at = line.indexOf(" ")
    if (at === -1) continue
    const [word, rest] = [line.slice(0, at), line.slice(at + 1)]
    const rests = byWord.get(word)
    if (rests === undefined) byWord.set(word, [rest])
    else rests.push(rest)
  }
  const of = (word: string) => byWord.get(word) ?? []
  const identities = parseIdentities(of("inode"))
  const [bootId] = of("boot")
  return {
    ...parseStatus(of("status").join("\n")),
    namespaces: Object.fromEntries(pairs(of("ns"), /^([a-z_]+):\[(\d+)\]$/u)),
    systemCalls: Object.fromEntries(
      pairs(of("call"), /^([a-z_-]+) (\d{1,5})$/u).map(([name, error]) => [name, Number(error)])
    ),
    interfaces: of("interface"),
    routes: [...of("route"), ...of("route6").filter((line) => !line.trim().endsWith(" lo"))],
    mounts: of("mount").flatMap((line) => parseMount(line, identities) ?? []),
    ...(bootId === undefined ? {} : { bootId }),
    confirmedBy: ["sandbox"]
  }
}

/**
 * Returns what is wrong with a text that is no report. The programs of an image may write before it: the C library
 * does, in each program, if a variable of the image names a library that it does not have.
 */
export const reportFault = (text: string): string => {
  const [first = ""] = text.split("\n")
  if (first === lines.begin) return "the sandbox's report is incomplete"
  return (
    `the sandbox wrote something else before its report: ${abbreviated(JSON.stringify(first))}. ` +
    remedyOf(first)
  )
}

const remedyOf = (first: string): string => {
  const variable = /\bLD_[A-Z_]+\b/u.exec(first)?.[0]
  if (variable !== undefined)
    return `Remove ${variable} from the ENV of the image, or add the library that it names`
  return first === "perl: warning: Setting locale failed."
    ? "Set LANG and each LC_ variable in the ENV of the image to a locale that it has, such as C.UTF-8"
    : "Change the image, so that its programs write nothing when they start"
}

/**
 * Returns a function that parses the reports of one container. A report with the same text as the one before has the
 * same posture: a run in a waiting sandbox waits for the second.
 */
export const makeParser = (): typeof parseReport => {
  let last: readonly [text: string, posture: Posture | undefined] | undefined
  return (text) => {
    if (last?.[0] !== text) last = [text, parseReport(text)]
    return last[1]
  }
}

/** Returns whether the entrypoint that wrote a report accepts a token, with which `cogni-init` reports the exit. */
export const takesToken = (text: string): boolean => text.split("\n").includes(lines.takesToken)

/** Returns whether the waiter that wrote a report accepts a claim of a run whose directory was bound. */
export const takesDirectory = (text: string): boolean => text.split("\n").includes(lines.takesDirectory)

/**
 * Lists what is wrong with the program that a waiting sandbox has loaded. Its isolation must be that of the process
 * that reports it. The report must begin with the nonce, because the program can write one of its own, or the beginning
 * of one.
 */
export const programMismatches = (text: string, nonce: string): ReadonlyArray<string> => {
  const all = text.split("\n")
  const of = (word: string) =>
    all.filter((line) => line.startsWith(word)).map((line) => line.slice(word.length))
  const [program, own] = [of(lines.program), of("status ")]
  return [
    ...(all[0] === lines.begin && all[1] === `${lines.loaded}${nonce}`
      ? []
      : ["its program wrote to standard error before it had a run"]),
    ...(program.length > 0 && canonical(program) === canonical(own)
      ? []
      : ["its program is not isolated as the sandbox is, or was not reported"])
  ]
}

/** Lists the differences between the engine's configuration of a container and the requested one, a sentence each. */
export const engineMismatches = (
  asked: HostConfig,
  used: Readonly<Record<string, unknown>>
): ReadonlyArray<string> => {
  const normalized = normalize(used)
  return [
    // Without a wish, the engine names its default.
    ...(asked.Runtime === undefined || asked.Runtime === used["Runtime"]
      ? []
      : [`the engine uses Runtime ${canonical(used["Runtime"])}, not ${canonical(asked.Runtime)}`]),
    ...Object.entries(normalize({ ...asked })).flatMap(([name, want]) =>
      want === normalized[name]
        ? []
        : [`the engine uses ${name} ${abbreviated(normalized[name]!)}, not ${abbreviated(want)}`]
    ),
    ...notAsked.flatMap((name) =>
      isEmpty(used[name])
        ? []
        : [`the engine uses ${name} ${abbreviated(canonical(used[name]))}, which was not asked for`]
    ),
    ...protectedPaths.flatMap((name) =>
      Array.isArray(used[name]) && used[name].length === 0
        ? [`the engine uses an empty ${name}, not its default list`]
        : []
    )
  ]
}

/**
 * Lists what the engine mounts and was not asked for, a sentence each: a `VOLUME` of the image is a directory of the
 * host without a limit, and not part of `HostConfig`.
 */
export const mountMismatches = (
  { Mounts }: Pick<HostConfig, "Mounts">,
  used: ReadonlyArray<{ readonly Destination: string }>
): ReadonlyArray<string> => {
  const asked = new Set(Mounts.map(({ Target }) => Target))
  return used.flatMap(({ Destination }) =>
    asked.has(Destination)
      ? []
      : [
          `the engine mounts a volume at ${abbreviated(canonical(Destination))}, which was not asked for: ` +
            "remove the VOLUME from its image"
        ]
  )
}

/** Maximum length of a value in a sentence. The seccomp profile alone has 19,000 characters. */
const sentenceCharactersMax = 400

const abbreviated = (text: string): string =>
  text.length <= sentenceCharactersMax
    ? text
    : `${text.slice(0, sentenceCharactersMax)}… (${text.length} characters)`

/** Settings that must equal the requested ones, except for the order of lists and maps and the form of empty values. */
const compared = [
  "CapAdd",
  "CapDrop",
  "CgroupnsMode",
  "CpuPeriod",
  "CpuQuota",
  "Devices",
  "Init",
  "IpcMode",
  "Memory",
  "MemorySwap",
  "NetworkMode",
  "PidMode",
  "PidsLimit",
  "Privileged",
  "ReadonlyRootfs",
  "SecurityOpt",
  "ShmSize",
  "Tmpfs",
  "UsernsMode"
] as const satisfies ReadonlyArray<keyof HostConfig>

/** Settings that grant a container more access. They are never requested, so they must be empty. */
const notAsked = [
  "Binds",
  "Cgroup",
  "CpuRealtimeRuntime",
  "DeviceCgroupRules",
  "DeviceRequests",
  "ExtraHosts",
  "GroupAdd",
  "Links",
  "NanoCpus",
  "PortBindings",
  "PublishAllPorts",
  "Sysctls",
  "UTSMode",
  "VolumesFrom"
] as const

/** Lists that the engine fills itself: the hidden and the read-only parts of `/proc` and `/sys`. Must not be empty. */
const protectedPaths = ["MaskedPaths", "ReadonlyPaths"] as const

/** Converts the compared settings to text by name, equal for all versions of the engine. */
const normalize = (config: Readonly<Record<string, unknown>>): Readonly<Record<string, string>> => ({
  ...Object.fromEntries(compared.map((name) => [name, canonical(config[name])])),
  // The engine adds its own options to a log driver that is also its default.
  LogConfig: canonical(fieldsOf(config["LogConfig"])["Type"]),
  Mounts: canonical(listOf(config["Mounts"]).map(mountOf)),
  // With cgroup v2, the engine writes null instead of false.
  OomKillDisable: canonical(config["OomKillDisable"] === true),
  RestartPolicy: canonical(fieldsOf(config["RestartPolicy"])["Name"] || "no"),
  // The engine may add defaults for other resources (default-ulimits). The requested ones must be unchanged.
  Ulimits: canonical(
    listOf(config["Ulimits"])
      .map(fieldsOf)
      .filter(({ Name }) => askedUlimits.has(String(Name)))
      .map(({ Hard, Name, Soft }) => ({ Hard, Name, Soft }))
  )
})

const askedUlimits: ReadonlySet<string> = new Set(["core", "fsize", "nofile"])

/** Prefix under which Docker Desktop reports a directory of the user's machine in its virtual machine. */
const desktopPrefix = /^\/(?:host_mnt|run\/desktop\/mnt\/host)(?=\/)/u

/** Completes a mount with the defaults that an engine omits. Any other non-empty option is kept. */
const mountOf = (mount: unknown) => {
  const { BindOptions, ReadOnly, Source, Target, VolumeOptions, ...rest } = fieldsOf(mount)
  const { Propagation, ...bindOptions } = fieldsOf(BindOptions)
  return {
    ...filled(rest),
    ...filled(bindOptions),
    ...filled(fieldsOf(VolumeOptions)),
    Propagation: Propagation || "rprivate",
    ReadOnly: ReadOnly === true,
    Source: String(Source)
      .replace(desktopPrefix, "")
      .replace(/(?<=.)\/+$/u, ""),
    Target
  }
}

const listOf = (value: unknown): ReadonlyArray<unknown> => (Array.isArray(value) ? value : [])

const fieldsOf = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null ? { ...value } : {}

const filled = (fields: Readonly<Record<string, unknown>>) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => !isEmpty(value)))

const isEmpty = (value: unknown): boolean => value === false || value === 0 || canonical(value) === "nothing"

/** Converts a value to text that does not depend on the order of lists and maps, or on the form of empty values. */
const canonical = (value: unknown): string => {
  if (value === null || value === undefined || value === "") return "nothing"
  if (Array.isArray(value))
    return value.length === 0 ? "nothing" : `[${value.map(canonical).toSorted().join(", ")}]`
  if (typeof value !== "object") return JSON.stringify(value)
  const entries = Object.entries(value).map(([key, inner]) => `${key}: ${canonical(inner)}`)
  return entries.length === 0 ? "nothing" : `{${entries.toSorted().join(", ")}}`
}

/** Lists what the host finds wrong with a container's first process. User IDs can be mapped: only root is checked. */
export const hostMismatches = (status: ProcessStatus): ReadonlyArray<string> => [
  ...Object.entries(status.capabilities)
    .filter(([, mask]) => !/^0+$/u.test(mask))
    .map(([name, mask]) => `on the host, its ${name} capabilities are ${mask}, not none`),
  ...(status.noNewPrivileges ? [] : ["on the host, no-new-privileges is off"]),
  ...(status.seccompMode === 2
    ? []
    : [`on the host, its seccomp mode is ${status.seccompMode}, not 2 (filter)`]),
  ...(status.userIds.includes(0) ? ["on the host, it runs as root"] : [])
]

/** The kernel rounds a memory limit down to whole pages. */
const pageBytes = 4096

/** Lists the differences between the requested limits and those that the kernel states, as far as the host knows. */
export const limitMismatches = (
  asked: Pick<HostConfig, "CpuQuota" | "Memory" | "PidsLimit">,
  { cpuQuotaMicros, memoryBytes, processes }: KernelLimits
): ReadonlyArray<string> => [
  ...(memoryBytes === undefined || Math.abs(asked.Memory - memoryBytes) < pageBytes
    ? []
    : [`on the host, its memory limit is ${memoryBytes} bytes, not ${asked.Memory}`]),
  ...(processes === undefined || processes === asked.PidsLimit
    ? []
    : [`on the host, its limit of processes is ${processes}, not ${asked.PidsLimit}`]),
  ...(cpuQuotaMicros === undefined || cpuQuotaMicros === asked.CpuQuota
    ? []
    : [`on the host, its processor time is ${cpuQuotaMicros} µs in 100 ms, not ${asked.CpuQuota}`])
]
