/** Loads modules that need the SDK of Temporal, which may not be installed. */
import { Effect } from "effect"
import { TemporalFailed } from "../TemporalServer.ts"

const sdkPackages = ["activity", "client", "common", "worker", "workflow"]

/** Imports a module that needs the SDK. */
export const loaded = <A>(module: () => Promise<A>): Effect.Effect<A, TemporalFailed> =>
  Effect.tryPromise({ try: module, catch: (error) => error as { readonly code?: unknown } }).pipe(
    Effect.catch((error) =>
      error.code === "ERR_MODULE_NOT_FOUND"
        ? Effect.fail(
            new TemporalFailed({
              reason: "NotInstalled",
              detail: "the SDK of Temporal is not installed",
              remedy: `Install it: npm install ${sdkPackages.map((name) => `@temporalio/${name}`).join(" ")}`
            })
          )
        : Effect.die(error)
    )
  )
