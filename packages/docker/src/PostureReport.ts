/**
 * From what was read of a container's hold to a posture, and to what is amiss with it. Pure.
 *
 * Three witnesses: the entrypoint inside (raw lines of `/proc`), the engine (the configuration it really uses), and,
 * on a local engine, the host's own `/proc`.
 */
import type { Posture } from "@cogni/sandbox-core/Posture"
import type { HostConfig } from "./Hardening.ts"

/** First and last line of the report, and what follows once the agent may start. @category constants */
export const lines = {
  begin: "cogni-posture 1",
  end: "cogni-posture end",
  started: "cogni-start",
  failed: "cogni-failed "
} as const

/** More than this is no report. @category constants */
export const reportBytesMax = 256 * 1024

/** The fields of `/proc/PID/status` that say how a process is held. @category models */
export interface ProcessStatus {
  readonly userIds: ReadonlyArray<number>
  readonly groupIds: ReadonlyArray<number>
  readonly capabilities: Posture["capabilities"]
  readonly noNewPrivileges: boolean
  readonly seccompMode: number
}

/** Root, the weakest there is, where the field is missing. */
const ids = (text: string | undefined): ReadonlyArray<number> =>
  text === undefined
    ? [0]
    : text
        .split(/\s+/u)
        .filter((word) => /^\d+$/u.test(word))
        .map(Number)

/** A field that is missing reads as the weakest there is, so that it never passes. @category converting */
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

/** `/proc/self/mountinfo` writes blanks and backslashes as octal escapes. */
const unescapeMount = (text: string) =>
  text.replaceAll(/\\([0-7]{3})/gu, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))

const parseMount = (line: string): Posture["mounts"][number] | undefined => {
  const [before, after] = line.split(" - ")
  const fields = before?.split(" ") ?? []
  const [target, options] = [fields[4], fields[5]]
  if (target === undefined || options === undefined || after === undefined) return undefined
  const flags = options.split(",")
  return {
    target: unescapeMount(target),
    fileSystem: after.split(" ")[0] ?? "unknown",
    readOnly: flags.includes("ro"),
    options: flags
  }
}

/** `undefined` when the text is no report. @category converting */
export const parseReport = (text: string): Posture | undefined => {
  const all = text.split("\n")
  if (all[0] !== lines.begin || !all.includes(lines.end)) return undefined
  const of = (word: string) =>
    all.filter((line) => line.startsWith(`${word} `)).map((line) => line.slice(word.length + 1))
  return {
    ...parseStatus(of("status").join("\n")),
    namespaces: Object.fromEntries(
      of("ns").flatMap((link) => {
        const match = /^([a-z_]+):\[(\d+)\]$/u.exec(link)
        return match === null ? [] : [[match[1]!, match[2]!]]
      })
    ),
    interfaces: of("interface"),
    routes: [...of("route"), ...of("route6").filter((line) => !line.trim().endsWith(" lo"))],
    mounts: of("mount").flatMap((line) => parseMount(line) ?? []),
    confirmedBy: ["sandbox"]
  }
}

/** What the engine's own configuration of the container must say; each difference is one sentence. @category predicates */
export const engineMismatches = (
  asked: HostConfig,
  used: Readonly<Record<string, unknown>>
): ReadonlyArray<string> =>
  compared.flatMap((name) => {
    const [want, got] = [canonical(asked[name]), canonical(used[name])]
    return want === got ? [] : [`the engine uses ${name} ${got}, not ${want}`]
  })

/** Engines write what is empty as null, and keep lists and maps in an order of their own. */
const canonical = (value: unknown): string => {
  if (value === null || value === undefined || value === "") return "nothing"
  if (Array.isArray(value))
    return value.length === 0 ? "nothing" : `[${value.map(canonical).toSorted().join(", ")}]`
  if (typeof value !== "object") return JSON.stringify(value)
  const entries = Object.entries(value).map(([key, inner]) => `${key}: ${canonical(inner)}`)
  return entries.length === 0 ? "nothing" : `{${entries.toSorted().join(", ")}}`
}

const compared = [
  "CapAdd",
  "CapDrop",
  "CgroupnsMode",
  "Devices",
  "IpcMode",
  "Memory",
  "MemorySwap",
  "NetworkMode",
  "PidMode",
  "PidsLimit",
  "Privileged",
  "ReadonlyRootfs",
  "SecurityOpt",
  "Tmpfs",
  "UsernsMode"
] as const satisfies ReadonlyArray<keyof HostConfig>

/** What the host sees of the container's first process; user ids are left out, a user namespace may map them. @category predicates */
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
