/**
 * Runs the script that builds images, which is part of the package of images. `./dev` runs the same script.
 *
 * The script gets only variables that it needs, and uses the same engine as runs. Its progress goes to standard error.
 */
import * as HostProgram from "@cogni/sandbox-host-files/HostProgram"
import { type Cause, Context, Effect, Layer, Queue, Stream } from "effect"
import { join } from "node:path"
import { type ExitName, exitCode } from "./ExitCode.ts"
import { type Refusal, refusal } from "./Failure.ts"
import * as InstalledImages from "./InstalledImages.ts"
import * as Output from "./Output.ts"

/** Limit on one call of the script. All images together take a few minutes; a slow network takes longer. */
const buildSecondsMax = 7200

/** Name of the program in the script's own messages. */
const caller = "cogni-sandbox"

/** Variables that npm, docker, apt and curl read, and those of the script's cache. None is a secret of a run. */
const passed =
  /^(?:PATH|HOME|USER|LANG|LC_[A-Z]+|TERM|TMPDIR|XDG_CACHE_HOME|XDG_RUNTIME_DIR|DOCKER_(?:HOST|CONFIG|CERT_PATH|TLS_VERIFY|BUILDKIT)|(?:HTTPS?|NO|ALL)_PROXY|(?:https?|no|all)_proxy|NODE_EXTRA_CA_CERTS|SSL_CERT_(?:FILE|DIR)|(?:npm_config|NPM_CONFIG)_\w+)$/u

/** The environment of the script. With `DOCKER_HOST`, it uses the same engine as runs. */
export const environmentOf = (
  environment: Readonly<Record<string, string>>
): Readonly<Record<string, string>> => ({
  PATH: HostProgram.searchPath,
  ...Object.fromEntries(Object.entries(environment).filter(([name]) => passed.test(name))),
  CALLER: caller
})

export class ImageScript extends Context.Service<
  ImageScript,
  {
    /** Runs the script, and returns its standard output. `quiet` hides the progress. */
    readonly run: (
      argv: ReadonlyArray<string>,
      options?: { readonly quiet?: boolean | undefined }
    ) => Effect.Effect<string, Refusal, Output.Output>
  }
>()("@cogni/sandbox-cli/ImageScript") {}

const names: Readonly<Record<number, ExitName>> = {
  [exitCode.usage]: "usage",
  [exitCode.unavailable]: "unavailable"
}

const failed = (answer: HostProgram.ProgramAnswer): Refusal => {
  const said = HostProgram.lastLine(answer.stderr).replace(`${caller}: `, "")
  return refusal(
    names[answer.exitCode] ?? "fault",
    `the images cannot be built: ${said === "" ? `the script ended with code ${answer.exitCode}` : said}`,
    "Standard error shows every step"
  )
}

export const layer = (environment: Readonly<Record<string, string>>): Layer.Layer<ImageScript> =>
  Layer.succeed(ImageScript, {
    run: Effect.fnUntraced(function* (argv, options = {}) {
      const directory = InstalledImages.directory()
      if (directory === undefined) {
        return yield* refusal(
          "unavailable",
          "the package @cogni/sandbox-images is not installed",
          "Install the command again: npm install --global @cogni/sandbox-cli"
        )
      }
      const output = yield* Output.Output
      const said = yield* Queue.unbounded<string, Cause.Done>()
      const run = HostProgram.run({
        name: "bash",
        argv: [join(directory, "build"), ...argv],
        env: environmentOf(environment),
        runtimeSecondsMax: buildSecondsMax,
        onStderr: (text) => void (options.quiet === true || Queue.offerUnsafe(said, text))
      }).pipe(
        Effect.mapError(({ message, problem }) =>
          refusal(
            "unavailable",
            `the images cannot be built: ${message}`,
            problem === "cannot_start" ? "Install bash" : "Look at what it does, and try again"
          )
        ),
        Effect.ensuring(Queue.end(said))
      )
      const [answer] = yield* Effect.all([run, Stream.runForEach(Stream.fromQueue(said), output.stderr)], {
        concurrency: 2
      })
      return answer.exitCode === 0 ? answer.stdout.toString("utf8") : yield* failed(answer)
    })
  })
