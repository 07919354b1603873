/**
 * Engines whose age is a weakness, as far as their versions tell. Pure.
 *
 * A distribution mends an old version without counting it up, so a finding is a warning, and says what to look for. Our
 * own profile of system calls covers what an engine's default left open; it does not cover faults of the engine itself.
 */
import type { Info } from "../../DockerApi.ts"
import { type Finding, warn } from "../../Finding.ts"

interface Weakness {
  readonly check: string
  readonly isIn: (info: Info) => boolean
  readonly detail: (info: Info) => string
  readonly fix: string
}

/** Numbers of a version, however much of it is there; a commit has none. */
const numbersOf = (version: string): ReadonlyArray<number> | undefined => {
  const found = /^v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?/u.exec(version)
  return found === null ? undefined : found.slice(1).map((digits) => Number(digits ?? 0))
}

/** Of what is no version, nothing is known, and so nothing is said. */
export const isBelow = (version: string | undefined, least: readonly [number, number, number]): boolean => {
  const found = numbersOf(version ?? "")
  if (found === undefined) return false
  const at = found.findIndex((number, index) => number !== least[index])
  return at !== -1 && found[at]! < least[at]!
}

const runcOf = ({ RuncCommit }: Info): string | undefined => RuncCommit?.ID

export const weaknesses: ReadonlyArray<Weakness> = [
  {
    // github.com/moby/moby, release notes of 20.10.10: the profile answers clone3 with ENOSYS. Before, an engine knew
    // no `errnoRet`, and glibc 2.34 and newer cannot start a thread there.
    check: "engine age",
    isIn: ({ ServerVersion }) => isBelow(ServerVersion, [20, 10, 10]),
    detail: ({ ServerVersion }) =>
      `Engine ${ServerVersion} cannot answer a refused clone3 so that programs fall back: no program starts a thread`,
    fix: "Update the engine: at least 20.10.10, better a version that is still supported"
  },
  {
    // github.com/moby/moby, release notes of 25.0.0: "Update the default seccomp profile to block io_uring".
    check: "engine default",
    isIn: ({ ServerVersion }) => isBelow(ServerVersion, [25, 0, 0]) && !isBelow(ServerVersion, [20, 10, 10]),
    detail: ({ ServerVersion }) =>
      `Engine ${ServerVersion} leaves io_uring open in its default filter; our profile refuses it in every container of ours`,
    fix: "Update the engine to 25.0 or newer for other containers on it"
  },
  {
    // CVE-2024-21626 (github.com/opencontainers/runc, GHSA-xr7r-f8xq-vfvv): a working directory below /proc/self/fd leads
    // to the host. Mended in 1.1.12, and by distributions in versions that keep their number.
    check: "runc",
    isIn: (info) => isBelow(runcOf(info), [1, 1, 12]),
    detail: (info) =>
      `runc ${runcOf(info)} is older than 1.1.12, which mended CVE-2024-21626 (a container opens directories of the host)`,
    fix: "Update runc, or see that your distribution has mended CVE-2024-21626 in this version. No filter covers it"
  }
]

export const findings = (info: Info): ReadonlyArray<Finding> =>
  weaknesses.filter(({ isIn }) => isIn(info)).map(({ check, detail, fix }) => warn(check, detail(info), fix))
