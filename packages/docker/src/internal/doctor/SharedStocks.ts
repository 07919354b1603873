/**
 * Kernel limits that all runs of a host share, because no limit of a single sandbox applies to them. Pure.
 *
 * One run can exhaust such a resource, and other runs are refused until it ends. A higher limit makes this harder:
 * exhausting it takes more of the run's own memory, which is limited.
 */
import { type Finding, warn } from "../../Finding.ts"

interface Stock {
  readonly setting: string
  readonly what: string
  /** Amount that an ordinary run can use at a time. */
  readonly perRun: number
  /** Amount that is not available to containers. */
  readonly reserved: number
}

export const stocks: ReadonlyArray<Stock> = [
  {
    setting: "fs.inotify.max_user_instances",
    what: "inotify instances, shared by all runs of one user",
    perRun: 16,
    reserved: 0
  },
  // `kernel.pty.reserve`, for terminals outside of containers.
  { setting: "kernel.pty.max", what: "terminals, shared by all containers", perRun: 64, reserved: 1024 },
  {
    setting: "fs.pipe-user-pages-soft",
    what: "pipe buffer pages, shared by all runs of one user",
    perRun: 1024,
    reserved: 0
  }
]

/** Returns the path of a setting relative to `/proc/sys`. */
export const fileOf = ({ setting }: Stock): string => setting.replaceAll(".", "/")

/** Warns about limits too low for `runs` concurrent runs. Skips 0 (no limit) and `undefined` (not readable). */
export const findings = (values: ReadonlyArray<number | undefined>, runs: number): ReadonlyArray<Finding> =>
  stocks.flatMap(({ perRun, reserved, setting, what }, at) => {
    const value = values[at]
    const enough = perRun * runs + reserved
    return value === undefined || value === 0 || value >= enough
      ? []
      : [
          warn(
            "shared limit",
            `${setting} is ${value} (${what}), too low for the ${runs} concurrent runs that fit into memory`,
            `sysctl -w ${setting}=${enough}, and set it in /etc/sysctl.d to keep it`
          )
        ]
  })
