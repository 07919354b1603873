/** Records everything that this process sends to its threads. */
import { Effect, type Scope } from "effect"
import { inspect } from "node:util"
import { MessagePort, Worker } from "node:worker_threads"

/** Returns the texts of all messages so far, of workers and of ports. */
export const acquire: Effect.Effect<() => string, never, Scope.Scope> = Effect.acquireRelease(
  Effect.sync(() => {
    const said: Array<string> = []
    const restore = [Worker.prototype, MessagePort.prototype].map((prototype) => {
      const { postMessage } = prototype
      prototype.postMessage = function (this: typeof prototype, ...given: Parameters<typeof postMessage>) {
        said.push(inspect(given[0], { depth: null, maxArrayLength: null, maxStringLength: null }))
        return postMessage.apply(this, given)
      }
      return () => {
        prototype.postMessage = postMessage
      }
    })
    return { said: () => said.join("\n"), restore: () => restore.forEach((one) => one()) }
  }),
  ({ restore }) => Effect.sync(restore)
).pipe(Effect.map(({ said }) => said))
