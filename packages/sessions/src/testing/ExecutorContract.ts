/**
 * Contract of every `Executor`. The host and memory executors run it in `sessions/test`, a Docker sandbox runs it in
 * `test/integration`, so that one can replace another. Guarantees that only some executors give are named capabilities
 * (`CommandCapabilities`).
 *
 * Commands are named behaviours (`CommandBehaviour`), and each executor supplies the command lines. The contract uses
 * the live clock, because it kills real processes.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import * as CommandBounds from "./CommandBounds.ts"
import * as CommandCapabilities from "./CommandCapabilities.ts"
import * as CommandFiles from "./CommandFiles.ts"
import * as CommandPromises from "./CommandPromises.ts"
import * as CommandStreams from "./CommandStreams.ts"
import { Executors, type Promises, type Subject } from "./CommandSubject.ts"

const groups: Readonly<Record<string, Promises>> = {
  "command exit": CommandPromises.ends,
  "input and output": CommandPromises.speaks,
  "streamed input": CommandStreams.streams,
  "command start": CommandPromises.begins,
  "output limit": CommandBounds.output,
  "time limit": CommandBounds.time,
  "cut off": CommandBounds.cut,
  files: CommandFiles.files
}

/** The executor that most tests share. */
class Shared extends Context.Service<Shared, Executor>()("@cogni/sandbox-sessions/testing/Shared") {}

const subjectOf = Effect.gen(function* () {
  const { open, words } = yield* Executors
  const executor = yield* Shared
  return {
    executor,
    open,
    words,
    run: (behaviour, options) => executor.exec(words.argv(behaviour), options)
  } satisfies Subject
})

export const suite = <E>(
  name: string,
  layer: Layer.Layer<Executors, E>,
  capabilities: ReadonlyArray<CommandCapabilities.Capability> = []
): void => {
  const shared = Layer.effect(
    Shared,
    Effect.flatMap(Executors, ({ open }) => open())
  ).pipe(Layer.provideMerge(layer))
  const promised = [
    ...Object.entries(groups),
    ...capabilities.map((capability) => [capability, CommandCapabilities.promises[capability]] as const)
  ]

  it.layer(shared, { excludeTestServices: true, timeout: "2 minutes" })(`Executor (${name})`, (it) => {
    for (const [group, promises] of promised) {
      for (const [title, promise] of Object.entries(promises)) {
        it.effect(`${group}: ${title}`, () => Effect.flatMap(subjectOf, promise))
      }
    }
  })
}
