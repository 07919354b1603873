/** How a run got its sandbox, in a process that has a pool of waiting sandboxes. Pure. */
import { Schema } from "effect"
import { bindingBytesMax, bindingTextsMax } from "./internal/BindingLimits.ts"

/** Why no waiting sandbox can serve a run, whatever the pool has. */
export const coldReasons = {
  workspace: "its workspace is a directory, which this host cannot bind into a waiting sandbox",
  files: "canaries or package settings are mounted at the start",
  network: "it uses an internal network",
  proxy: "its proxy cannot listen in a directory that is already mounted",
  supervisor: "its program is the supervisor itself",
  variables: "the program that a waiting sandbox has loaded read its variables at its own start",
  memory: "its memory limit has no room for the loaded code of its agent",
  size: `its arguments and variables have more than ${bindingBytesMax} bytes, or are more than ${bindingTextsMax}`
} as const

export type ColdReason = keyof typeof coldReasons

const reasons: Readonly<Record<string, string>> = {
  ...coldReasons,
  miss: "no sandbox of its image and shape was ready",
  unusable: "the waiting sandbox that it took could not be used"
}

/** How a run got its sandbox: `hit` if it waited, otherwise why it started cold. Part of its record. */
export const PoolUse = Schema.Literals([
  "hit",
  "miss",
  "unusable",
  "workspace",
  "files",
  "network",
  "proxy",
  "supervisor",
  "variables",
  "memory",
  "size"
])

export type PoolUse = typeof PoolUse.Type

/** Returns why a run started cold. */
export const reasonOf = (use: string): string => reasons[use] ?? use
