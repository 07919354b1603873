/**
 * Finds a free port for a process that needs a port number.
 *
 * The port is below the kernel's ephemeral range, so that no other process gets it by chance before it is used.
 */
import { Effect } from "effect"
import { createServer } from "node:net"

const [first, last] = [10_000, 32_000]

const attempt = Effect.callback<number | undefined>((resume) => {
  const port = first + Math.floor(Math.random() * (last - first))
  const server = createServer()
  server.once("error", () => resume(Effect.succeed(undefined)))
  server.listen(port, "127.0.0.1", () => server.close(() => resume(Effect.succeed(port))))
})

export const freePort: Effect.Effect<number> = Effect.flatMap(attempt, (port) =>
  port === undefined ? Effect.suspend(() => freePort) : Effect.succeed(port)
)
