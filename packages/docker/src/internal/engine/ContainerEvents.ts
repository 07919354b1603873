/**
 * Watches the engine's events for containers that ran out of memory, or that others sent a signal to or started a
 * program in.
 *
 * One event stream serves all runs of a process. It opens with the runtime, and opens again after a failure.
 */
import { prefix } from "@cogni/sandbox-core/ResourceLabels"
import { Effect, Option, Schema, Stream } from "effect"
import type { DockerApi } from "../../DockerApi.ts"

interface Told {
  oomKilled: boolean
  /** Whether any client of the engine has sent the container a signal. */
  killed: boolean
  /** Whether any client of the engine has started a program in the container, also if that has ended. */
  entered: boolean
}

const decodeEvent = Schema.decodeUnknownOption(
  Schema.fromJsonString(Schema.Struct({ Action: Schema.String, Actor: Schema.Struct({ ID: Schema.String }) }))
)

export const make = (api: DockerApi["Service"]) =>
  Effect.gen(function* () {
    const followed = new Map<string, Told>()
    const hear = (line: string) => {
      const event = Option.getOrUndefined(decodeEvent(line))
      const told = event && followed.get(event.Actor.ID)
      if (event === undefined || told === undefined) return
      told.oomKilled ||= event.Action === "oom"
      told.killed ||= event.Action === "kill"
      told.entered ||= event.Action.startsWith("exec_create")
    }
    yield* api.events(`${prefix}.run`).pipe(
      Effect.flatMap((stream) =>
        Stream.fromAsyncIterable(stream as AsyncIterable<Uint8Array>, () => "broken" as const).pipe(
          Stream.decodeText,
          Stream.splitLines,
          Stream.runForEach((line) => Effect.sync(() => hear(line)))
        )
      ),
      Effect.exit,
      Effect.andThen(Effect.sleep("1 second")),
      Effect.forever,
      Effect.forkScoped
    )
    return {
      /** Records the events of a container until the scope closes. Call it before the start. */
      follow: (id: string) =>
        Effect.acquireRelease(
          Effect.sync(() => {
            const told: Told = { oomKilled: false, killed: false, entered: false }
            followed.set(id, told)
            return told
          }),
          () => Effect.sync(() => followed.delete(id))
        )
    }
  })
