/**
 * What every `Executor` must do. Run by the one on the host and the one in memory in `sessions/test`, and by a sandbox of
 * Docker's in `test/integration`, so that what acts on one can act on any. What not all of them can promise is a named
 * capability (`CommandCapabilities`).
 *
 * What the commands do is named (`CommandBehaviour`); an executor brings the words that make them do so. Runs on the
 * live clock: what is killed here is real.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import * as CommandBounds from "./CommandBounds.ts"
import * as CommandCapabilities from "./CommandCapabilities.ts"
import * as CommandFiles from "./CommandFiles.ts"
import * as CommandPromises from "./CommandPromises.ts"
import { Executors, type Promises, type Subject } from "./CommandSubject.ts"

const groups: Readonly<Record<string, Promises>> = {
  "how a command ends": CommandPromises.ends,
  "what it hears and says": CommandPromises.speaks,
  "how it begins": CommandPromises.begins,
  "how much it may say": CommandBounds.output,
  "how long it may take": CommandBounds.time,
  "when it is cut off": CommandBounds.cut,
  files: CommandFiles.files
}

/** The one that most tests share. */
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
