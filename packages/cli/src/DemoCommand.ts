/**
 * `demo`: runs an agent in a sealed container and shows what happened. Needs no key.
 *
 * Asks the embedded demo upstream, through the same gateway as any run. If a real upstream is configured, asks that one
 * instead, and says so.
 */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import * as RunId from "@cogni/sandbox-core/RunId"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import * as KeyInjection from "@cogni/sandbox-proxy/KeyInjection"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { Effect } from "effect"
import { join } from "node:path"
import * as CheckoutCommands from "./CheckoutCommands.ts"
import * as Composition from "./Composition.ts"
import { refusal } from "./Failure.ts"
import { ImageScript } from "./ImageScript.ts"
import * as DemoReport from "./DemoReport.ts"
import * as Output from "./Output.ts"
import * as Progress from "./Progress.ts"
import { follow } from "./RunCommand.ts"
import * as RunPlan from "./RunPlan.ts"
import * as RunReport from "./RunReport.ts"
import { Settings } from "./Settings.ts"

const prompt = "Say hello from inside the sandbox."

interface DemoInput extends Output.Asked {
  readonly model?: string | undefined
  readonly quiet: boolean
}

/**
 * Builds the images that the demo needs and this engine lacks. Announces it first: it downloads packages. Images that
 * the user has named are not built.
 */
const buildMissing = Effect.fnUntraced(function* (settings: Settings["Service"], input: DemoInput) {
  const missing = yield* Effect.gen(function* () {
    const api = yield* DockerApi.DockerApi
    const isShared = HostOwner.isSharedWith(api.address, yield* api.info)
    const needed = [
      { name: "runtime", image: settings.runtimeImage, isNamed: settings.isNamed.runtime },
      ...(isShared
        ? []
        : [{ name: "gateway", image: settings.gatewayImage, isNamed: settings.isNamed.gateway }])
    ]
    const sizes = yield* Effect.forEach(needed, ({ image }) => api.imageSize(image))
    return needed.filter(({ isNamed }, at) => !isNamed && sizes[at] === undefined).map(({ name }) => name)
  }).pipe(Effect.provide(Composition.engine(settings)))
  if (missing.length === 0) return
  yield* Output.note(
    `this engine has no image for ${missing.join(" and ")} yet: building from Debian and npm packages, once, in one to three minutes`
  )
  const script = yield* ImageScript
  yield* script.run(["--only", ...missing], input)
})

export const demo = Effect.fnUntraced(function* (input: DemoInput) {
  const settings = yield* Settings
  const flags = { demo: settings.upstream._tag === "Absent", model: input.model, timeoutSeconds: 120 }
  const runId = yield* RunId.generate
  const subject = { _tag: "Prompt", agent: minimal, prompt } as const
  const plan = yield* Effect.fromResult(RunPlan.make(subject, runId, flags, settings))
  yield* buildMissing(settings, input)
  const { ended, received } = yield* Effect.gen(function* () {
    const progress = yield* Progress.make(input, plan.note)
    const ended = yield* follow(plan.spec, subject, { live: false }, progress)
    const witness = yield* Composition.DemoWitness
    return { ended, received: yield* witness.received }
  }).pipe(Effect.provide(Composition.runner(settings, { ...plan, toolNames: [] })), Effect.scoped)

  const { result } = ended
  const verdict = RunReport.verdictOf(ended)
  if (verdict.answer === undefined) {
    return yield* refusal(
      "fault",
      verdict.problem?.message ?? "the agent gave no answer",
      `Find the cause with: ${CheckoutCommands.commandOf(CheckoutCommands, ["doctor"])}`,
      { runId }
    )
  }
  const injected = new Set(KeyInjection.injectedHeaderNames())
  const facts: DemoReport.DemoFacts = {
    result,
    answer: verdict.answer.text,
    demo: plan.wayOut._tag === "Demo",
    user: CheckoutCommands,
    received: received?.at(-1)?.headers.filter(([name]) => injected.has(name.toLowerCase())),
    recordPath: join(
      StateDirectory.paths(settings.stateDirectory).runs,
      result.runId,
      StateDirectory.runEntries.record
    )
  }
  if (input.output === "text") return yield* Output.lines(DemoReport.render(facts))
  yield* Output.json({
    ok: true,
    runId: result.runId,
    answer: facts.answer,
    posture: result.posture,
    ...(facts.received === undefined ? {} : { received: facts.received }),
    recordPath: facts.recordPath,
    ...RunReport.facts(result, facts)
  })
})
