/**
 * What the engine tells of containers while they run: that one was out of memory, that one was killed from outside.
 *
 * One stream for all runs of a process, opened when the runtime is, and again when it breaks.
 */
import { prefix } from "@cogni/sandbox-core/ResourceLabels"
import { Effect, Option, Schema, Stream } from "effect"
import type { DockerApi } from "../../DockerApi.ts"

interface Told {
  oomKilled: boolean
  /** A signal was sent through the engine, by whomever. */
  killed: boolean
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
      /** Follows a container from before its start until the scope closes. */
      follow: (id: string) =>
        Effect.acquireRelease(
          Effect.sync(() => {
            const told: Told = { oomKilled: false, killed: false }
            followed.set(id, told)
            return told
          }),
          () => Effect.sync(() => followed.delete(id))
        )
    }
  })
