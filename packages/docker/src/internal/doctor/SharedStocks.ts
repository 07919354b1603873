/**
 * Settings of the kernel that bound what all runs take together, where no limit of one sandbox can. Pure.
 *
 * One run can take the whole of such a stock, and its neighbours are refused until it ends. A larger stock costs that
 * run more of its own memory, which is limited.
 */
import { type Finding, warn } from "../../Finding.ts"

interface Stock {
  readonly setting: string
  readonly what: string
  /** What an ordinary run may take at once. */
  readonly perRun: number
  /** What no container gets of it. */
  readonly reserved: number
}

export const stocks: ReadonlyArray<Stock> = [
  {
    setting: "fs.inotify.max_user_instances",
    what: "watchers of files (inotify) that all runs of one user share",
    perRun: 16,
    reserved: 0
  },
  // `kernel.pty.reserve`, for terminals outside of containers.
  { setting: "kernel.pty.max", what: "terminals that all containers share", perRun: 64, reserved: 1024 },
  {
    setting: "fs.pipe-user-pages-soft",
    what: "pages of pipes that all runs of one user share",
    perRun: 1024,
    reserved: 0
  }
]

/** Below `/proc/sys`. */
export const fileOf = ({ setting }: Stock): string => setting.replaceAll(".", "/")

/** Those that are low for so many runs at a time; 0 is no limit, and what cannot be read is not known. */
export const findings = (values: ReadonlyArray<number | undefined>, runs: number): ReadonlyArray<Finding> =>
  stocks.flatMap(({ perRun, reserved, setting, what }, at) => {
    const value = values[at]
    const enough = perRun * runs + reserved
    return value === undefined || value === 0 || value >= enough
      ? []
      : [
          warn(
            "shared limit",
            `${setting} is ${value}: ${what}; memory is there for ${runs} runs at a time`,
            `sysctl -w ${setting}=${enough}, and in /etc/sysctl.d to keep it`
          )
        ]
  })
