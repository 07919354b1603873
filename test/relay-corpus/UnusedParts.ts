/** The parts of a container that a relay does not use. A call of one fails the test. */
import type { Container } from "@cogni/sandbox-core/ContainerRuntime"
import { Effect } from "effect"

export const nothing = Effect.die(new Error("a relay does not use this"))

export const unusedParts: Pick<Container, "proceed" | "send" | "stop" | "whilePaused" | "exec" | "files"> = {
  proceed: nothing,
  send: () => nothing,
  stop: () => nothing,
  whilePaused: (effect) => effect,
  exec: () => nothing,
  files: {
    read: () => nothing,
    write: () => nothing,
    list: () => nothing,
    stat: () => nothing,
    remove: () => nothing
  }
}
