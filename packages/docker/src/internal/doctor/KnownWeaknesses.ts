/**
 * Known weaknesses of old engine and runc versions. Pure.
 *
 * A distribution can fix an old version without a new version number, so a finding is a warning that names the fix. Our
 * seccomp profile covers gaps in an engine's default profile. It does not cover bugs in the engine itself.
 */
import type { Info } from "../../DockerApi.ts"
import { type Finding, warn } from "../../Finding.ts"

interface Weakness {
  readonly check: string
  readonly isIn: (info: Info) => boolean
  readonly detail: (info: Info) => string
  readonly fix: string
}

/** Parses `major.minor[.patch]`. Returns `undefined` for a commit. */
const numbersOf = (version: string): ReadonlyArray<number> | undefined => {
  const found = /^v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?/u.exec(version)
  return found === null ? undefined : found.slice(1).map((digits) => Number(digits ?? 0))
}

/** Returns whether a version is lower than `least`. An unknown version is not. */
export const isBelow = (version: string | undefined, least: readonly [number, number, number]): boolean => {
  const found = numbersOf(version ?? "")
  if (found === undefined) return false
  const at = found.findIndex((number, index) => number !== least[index])
  return at !== -1 && found[at]! < least[at]!
}

const runcOf = ({ RuncCommit }: Info): string | undefined => RuncCommit?.ID

export const weaknesses: ReadonlyArray<Weakness> = [
  {
    // github.com/moby/moby, release notes of 20.10.10: the profile answers clone3 with ENOSYS. Older engines do not
    // support `errnoRet`, so glibc 2.34 and newer cannot start a thread.
    check: "engine age",
    isIn: ({ ServerVersion }) => isBelow(ServerVersion, [20, 10, 10]),
    detail: ({ ServerVersion }) =>
      `Engine ${ServerVersion} cannot refuse clone3 with ENOSYS, so programs cannot start threads`,
    fix: "Update the engine to 20.10.10 or newer, preferably to a supported version"
  },
  {
    // github.com/moby/moby, release notes of 25.0.0: "Update the default seccomp profile to block io_uring".
    check: "engine default",
    isIn: ({ ServerVersion }) => isBelow(ServerVersion, [25, 0, 0]) && !isBelow(ServerVersion, [20, 10, 10]),
    detail: ({ ServerVersion }) =>
      `Engine ${ServerVersion} allows io_uring in its default profile; our profile refuses it in all our containers`,
    fix: "Update the engine to 25.0 or newer to protect its other containers"
  },
  {
    // CVE-2024-21626 (github.com/opencontainers/runc, GHSA-xr7r-f8xq-vfvv): a working directory below /proc/self/fd
    // leads to the host. Fixed in 1.1.12, and by distributions in versions that keep their number.
    check: "runc",
    isIn: (info) => isBelow(runcOf(info), [1, 1, 12]),
    detail: (info) =>
      `runc ${runcOf(info)} is older than 1.1.12, the fix for CVE-2024-21626 (a container opens host directories)`,
    fix: "Update runc, or check that your distribution fixed CVE-2024-21626 in this version. No filter covers it"
  }
]

export const findings = (info: Info): ReadonlyArray<Finding> =>
  weaknesses.filter(({ isIn }) => isIn(info)).map(({ check, detail, fix }) => warn(check, detail(info), fix))
