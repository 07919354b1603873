/** One open sandbox on the machine's engine for all tests of a file, with a check for leaks. */
import { createSandbox } from "@cogni/sandbox-promise"
import { Context, Effect, Layer } from "effect"
import * as Engine from "./Engine.ts"
import * as Images from "./Images.ts"
import * as LeakCheck from "./LeakCheck.ts"
import * as RunHarness from "./RunHarness.ts"

export class SharedSandbox extends Context.Service<
  SharedSandbox,
  Awaited<ReturnType<typeof createSandbox>>
>()("test/SharedSandbox") {
  static readonly layer = Layer.effect(
    SharedSandbox,
    Effect.gen(function* () {
      const stateDirectory = yield* RunHarness.Directory
      return yield* Effect.acquireRelease(
        Effect.promise(() => createSandbox({ stateDirectory, image: Images.runtime })),
        (sandbox) => Effect.promise(() => sandbox.close())
      )
    })
  ).pipe(
    Layer.provideMerge(
      Layer.unwrap(Effect.map(RunHarness.Directory, (stateDirectory) => LeakCheck.layer({ stateDirectory })))
    ),
    Layer.provideMerge(Layer.merge(Engine.api(), RunHarness.Directory.layer))
  )
}
