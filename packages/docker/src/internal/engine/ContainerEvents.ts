/**
 * What the engine tells of containers while they run: that one was out of memory, that one was killed from outside.
 *
 * One stream for all runs of a process, opened when the runtime is, and again when it breaks.
 */
import { prefix } from "@cogni/sandbox-core/ResourceLabels"
import { Effect, type Scope, Stream } from "effect"
import type { DockerApi } from "../../DockerApi.ts"

export interface Told {
  oomKilled: boolean
  /** A signal was sent through the engine, by whomever. */
  killed: boolean
}

export interface ContainerEvents {
  /** Follow a container from before its start until the scope closes. */
  readonly follow: (id: string) => Effect.Effect<Readonly<Told>, never, Scope.Scope>
}

export const make = (api: DockerApi["Service"]): Effect.Effect<ContainerEvents, never, Scope.Scope> =>
  Effect.gen(function* () {
    const followed = new Map<string, Told>()
    const hear = (line: string) => {
      const event = api.parseEvent(line)
      const told = event === undefined ? undefined : followed.get(event.Actor.ID)
      if (told === undefined) return
      if (event!.Action === "oom") told.oomKilled = true
      if (event!.Action === "kill") told.killed = true
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
      follow: (id) =>
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
