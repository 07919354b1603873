/**
 * `cogni-sandbox worker`: takes durable runs from Temporal, and gives them to the server of this host.
 *
 * It holds nothing of a run. When it ends, its runs go on in the server, and the next worker of this host follows them.
 */
import { Deferred, Effect, Fiber, Redacted, Result } from "effect"
import { FetchHttpClient } from "effect/http"
import * as CompiledCode from "./CompiledCode.ts"
import { refuse, type Refusal } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import * as KeyFile from "./KeyFile.ts"
import * as Output from "./Output.ts"
import { isLoopback } from "./ServeCommand.ts"
import { Settings } from "./Settings.ts"
import type * as TemporalFlags from "./TemporalFlags.ts"
import * as TemporalPackage from "./TemporalPackage.ts"
import * as TemporalSettings from "./TemporalSettings.ts"
import { oneLine } from "./TerminalText.ts"
import * as Version from "./Version.ts"

type WorkerInput = Flags.Typed<typeof TemporalFlags.worker>

const runsDefault = 8

/** A task queue of Temporal has this name in it, and it is in reports. */
const nameForm = /^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$/u

/** Refuses what would send a token in the clear, or could not be a name. */
const checked = ({ buildId, deployment, keeper, name }: WorkerInput): Result.Result<void, Refusal> => {
  if (!nameForm.test(name)) {
    return refuse(
      "usage",
      `--name ${oneLine(name)} is not a name of a host`,
      "Write letters, digits, dots and hyphens"
    )
  }
  if (buildId !== undefined && deployment === undefined)
    return refuse("usage", "--build-id is a version in a deployment", "Name the deployment with --deployment")
  if (deployment !== undefined && !nameForm.test(deployment.replaceAll(".", "/")))
    return refuse(
      "usage",
      `--deployment ${oneLine(deployment)} is not a name of a deployment`,
      "Write letters, digits and hyphens, without dots"
    )
  const url = URL.parse(keeper)
  if (url === null || !/^https?:$/u.test(url.protocol) || url.username !== "" || url.password !== "") {
    return refuse(
      "usage",
      `--keeper ${oneLine(keeper)} is not an address of a server`,
      "Write it such as http://127.0.0.1:8787"
    )
  }
  return url.protocol === "http:" && !isLoopback(url.hostname.replace(/^\[|\]$/gu, ""))
    ? refuse(
        "usage",
        `--keeper ${oneLine(keeper)} would send the tokens of grants over a network in the clear`,
        "A worker runs beside its server: name an address of this machine, or use https"
      )
    : Result.void
}

export const worker = Effect.fnUntraced(
  function* (input: WorkerInput) {
    const {
      buildId,
      cores,
      deployment,
      drainSeconds,
      keeper,
      labels,
      memoryBytes,
      metricsPort,
      name,
      runsMax,
      tokenFiles
    } = input
    yield* Effect.fromResult(checked(input))
    const server = yield* TemporalSettings.serverOf((yield* Settings).temporal, input)
    const RunWorker = yield* TemporalPackage.load(() => import("@cogni/sandbox-temporal/RunWorker"))
    const HttpHostKeeper = yield* TemporalPackage.load(() => import("@cogni/sandbox-temporal/HttpHostKeeper"))
    const keepers = yield* Effect.forEach(tokenFiles, (file) =>
      KeyFile.readText(file, "--token-file").pipe(
        Effect.flatMap((token) => HttpHostKeeper.make({ url: keeper, token: Redacted.make(token) }))
      )
    )
    const drain = yield* Deferred.make<void>()
    const output = yield* Output.Output
    const options = {
      ...server,
      host: name,
      keepers,
      capacity: {
        runsMax: runsMax ?? runsDefault,
        cores,
        memoryBytes,
        labels
      },
      ...(deployment === undefined
        ? {}
        : { version: { deployment, buildId: buildId ?? (yield* Version.version) } }),
      metricsPort,
      drain: Deferred.await(drain),
      waiting: (secondsMax: number) =>
        output.stderr(`waiting for the server at ${oneLine(keeper)} (up to ${secondsMax} s)\n`),
      ready: output
        .stderr(
          `worker ${oneLine(name)} takes runs${metricsPort === undefined ? "" : `, metrics on http://127.0.0.1:${metricsPort}/metrics`}\n`
        )
        .pipe(Effect.andThen(CompiledCode.keep))
    }
    const polling = yield* Effect.forkScoped(RunWorker.serve(options))
    yield* Fiber.join(polling).pipe(
      Effect.mapError(TemporalPackage.refusalOf),
      Effect.onInterrupt(() =>
        drainSeconds === undefined
          ? Effect.void
          : Effect.andThen(
              Deferred.succeed(drain, undefined),
              Effect.timeoutOption(Fiber.await(polling), `${drainSeconds} seconds`)
            )
      )
    )
  },
  Effect.scoped,
  Effect.provide(FetchHttpClient.layer),
  Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" })
)
