/**
 * A port for a process that is told where to listen.
 *
 * Below those that the kernel hands out by itself: between here and that process, nobody else gets it by chance.
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
