/**
 * Sandboxes over HTTP for the provider in this directory. A client creates a sandbox, runs commands in it, and destroys
 * it:
 *
 *     POST /sandboxes · GET /sandboxes · GET, DELETE /sandboxes/ID · POST /sandboxes/ID/commands
 *
 * Every request needs the token. A sandbox that is not destroyed ends at its time limit, or with the server.
 */
import { RunId, type SandboxError, SandboxRunner } from "@cogni/sandbox-core"
import { ByteSize, Data, Deferred, Effect, Exit, Fiber, FiberMap, Option, Schema, Semaphore } from "effect"
import { HttpIncomingMessage, HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { createHash, timingSafeEqual } from "node:crypto"

export interface Options {
  readonly image: string
  readonly token: string
  /** Sandboxes that exist at one time. */
  readonly sandboxesMax: number
}

const bodyBytesMax = 1024 * 1024
const lifeSecondsMax = 3600
const lifeSecondsDefault = 600

const Variables = Schema.Record(Schema.String, Schema.String)
const Millis = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: lifeSecondsMax * 1000 }))

const Creation = Schema.Struct({
  env: Schema.optionalKey(Variables),
  timeoutMillis: Schema.optionalKey(Millis)
})

const Command = Schema.Struct({
  command: Schema.String,
  env: Schema.optionalKey(Variables),
  workingDirectory: Schema.optionalKey(Schema.String),
  timeoutMillis: Schema.optionalKey(Millis)
})

class Refused extends Data.TaggedError("Refused")<{ readonly status: number; readonly message: string }> {}

interface Entry {
  readonly id: string
  readonly createdAt: string
  readonly timeoutMillis: number
  readonly sandbox: SandboxRunner.Sandbox
}

/** Serves sandboxes of one image to the holders of one token. */
export const layer = ({ image, sandboxesMax, token }: Options) =>
  HttpRouter.use(
    Effect.fnUntraced(function* (router) {
      const runner = yield* SandboxRunner.SandboxRunner
      /** One fiber for the life of each sandbox: it removes the sandbox at its end. */
      const lives = yield* FiberMap.make<string>()
      const entries = new Map<string, Entry>()
      const places = yield* Semaphore.make(sandboxesMax)
      const full = `all ${sandboxesMax} sandboxes are in use. Destroy one, or try again later`

      const create = Effect.gen(function* () {
        const { env = {}, timeoutMillis = lifeSecondsDefault * 1000 } = yield* bodyOf(Creation)
        const runId = yield* RunId.generate
        const opened = yield* Deferred.make<Entry, Refused | SandboxError.SandboxError>()
        const life = Effect.gen(function* () {
          const runtimeSecondsMax = Math.ceil(timeoutMillis / 1000)
          const sandbox = yield* runner.open({ runId, image, env, limits: { runtimeSecondsMax } })
          const entry = { id: runId, createdAt: new Date().toISOString(), timeoutMillis, sandbox }
          entries.set(runId, entry)
          yield* Deferred.succeed(opened, entry)
          return yield* sandbox.ended
        }).pipe(
          Effect.scoped,
          Effect.onExit((exit) => {
            entries.delete(runId)
            return Exit.isFailure(exit) ? Deferred.failCause(opened, exit.cause) : Effect.void
          }),
          places.withPermitsIfAvailable(1),
          Effect.tap((held) =>
            Option.isNone(held)
              ? Deferred.fail(opened, new Refused({ status: 503, message: full }))
              : Effect.void
          ),
          Effect.ignore
        )
        const fiber = yield* FiberMap.run(lives, runId, life)
        const entry = yield* Effect.onInterrupt(Deferred.await(opened), () => Fiber.interrupt(fiber))
        return json(viewOf(entry), 201)
      })

      const named = Effect.flatMap(HttpRouter.params, ({ id = "" }) => {
        const entry = entries.get(id)
        return entry === undefined
          ? refused(404, "this sandbox does not exist, or has ended")
          : Effect.succeed(entry)
      })

      const run = Effect.gen(function* () {
        const { sandbox } = yield* named
        const { command, env, timeoutMillis, workingDirectory } = yield* bodyOf(Command)
        const { durationMs, exitCode, output } = yield* sandbox.exec(command, {
          env,
          workingDirectory,
          timeoutSecondsMax: timeoutMillis === undefined ? undefined : timeoutMillis / 1000
        })
        return json({ exitCode, durationMs, stdout: output.stdout.text, stderr: output.stderr.text })
      })

      const destroy = Effect.gen(function* () {
        const { id } = yield* named
        const life = yield* FiberMap.get(lives, id)
        if (Option.isSome(life)) yield* Fiber.interrupt(life.value)
        return HttpServerResponse.empty({ status: 204 })
      })

      const guarded = guard(token)
      yield* router.add("POST", "/sandboxes", guarded(create))
      yield* router.add(
        "GET",
        "/sandboxes",
        guarded(Effect.sync(() => json([...entries.values()].map(viewOf))))
      )
      yield* router.add("GET", "/sandboxes/:id", guarded(Effect.map(named, (entry) => json(viewOf(entry)))))
      yield* router.add("POST", "/sandboxes/:id/commands", guarded(run))
      yield* router.add("DELETE", "/sandboxes/:id", guarded(destroy))
    })
  )

const json = (body: unknown, status = 200) => HttpServerResponse.jsonUnsafe(body, { status })

const refused = (status: number, message: string) => Effect.fail(new Refused({ status, message }))

const viewOf = ({ createdAt, id, timeoutMillis }: Entry) => ({ id, createdAt, timeoutMillis })

const bodyOf = <A>(schema: Schema.ConstraintDecoder<A>) =>
  HttpServerRequest.schemaBodyJson(schema).pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(bodyBytesMax)),
    Effect.mapError(({ message }) => new Refused({ status: 400, message }))
  )

const digestOf = (text: string) => createHash("sha256").update(text).digest()

/** Lets a request with the token pass, and answers errors as JSON. */
const guard = (token: string) => {
  const expected = digestOf(`Bearer ${token}`)
  return <E extends { readonly message: string }, R>(
    handler: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
  ) =>
    Effect.gen(function* () {
      const { headers } = yield* HttpServerRequest.HttpServerRequest
      if (!timingSafeEqual(digestOf(headers["authorization"] ?? ""), expected))
        return yield* refused(401, "the token is missing or wrong. Send it as Authorization: Bearer TOKEN")
      return yield* handler
    }).pipe(Effect.catch((error) => Effect.succeed(json({ message: error.message }, statusOf(error)))))
}

const statusOf = (error: unknown): number => {
  if (error instanceof Refused) return error.status
  const { isRetryable } = error as { readonly isRetryable?: boolean }
  return isRetryable === true ? 503 : 422
}
