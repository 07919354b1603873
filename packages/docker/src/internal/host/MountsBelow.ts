/** Finds mounts below a directory of this host, which an engine would mount with it. */
import * as KernelFile from "@cogni/sandbox-host-files/KernelFile"

/** Decodes the octal escapes of `/proc/self/mountinfo`. */
const unescaped = (text: string): string =>
  text.replaceAll(/\\([0-7]{3})/gu, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))

/** Returns whether something is mounted below a path. Takes the list of mounts, by default that of this process. */
export const has = (path: string, mounts = KernelFile.read("/proc/self/mountinfo") ?? ""): boolean =>
  mounts.split("\n").some((line) => unescaped(line.split(" ")[4] ?? "").startsWith(`${path}/`))
