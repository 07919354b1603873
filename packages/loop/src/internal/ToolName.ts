/**
 * The two names of a tool: people, configurations and registries say `shell.exec`, models hear `shell__exec`, because
 * their APIs take no dot. Each is the other's, and there is one function each way.
 */
import { ToolName } from "@cogni/sandbox-core/SandboxSpec"
import { Schema } from "effect"

/** What models' APIs take at most. */
export const charactersMax = 64

export const wireOf = (name: string): string => name.replaceAll(".", "__")

export const dottedOf = (name: string): string => name.replaceAll("__", ".")

const isToolName = Schema.is(ToolName)

/** Whether it is the wire name of a tool, and comes back as itself from the way through its dotted one. */
export const isWire = (name: string): boolean =>
  isToolName(name) && name.length <= charactersMax && wireOf(dottedOf(name)) === name
