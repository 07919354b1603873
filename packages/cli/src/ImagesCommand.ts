/** `images`: builds the images of sandboxes on this machine, lists them, and pulls signed ones. */
import * as ImagePull from "@cogni/sandbox-docker/ImagePull"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import { Effect } from "effect"
import * as Composition from "./Composition.ts"
import { refusal } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import type * as ImageFlags from "./ImageFlags.ts"
import { ImageScript } from "./ImageScript.ts"
import * as Output from "./Output.ts"
import { Settings } from "./Settings.ts"
import { columns } from "./TerminalText.ts"

type BuildInput = Flags.Typed<typeof ImageFlags.build>

/** Arguments of the script for a call of `images build`. */
export const argvOf = ({ all, base, names, noCache, only }: BuildInput): ReadonlyArray<string> => [
  ...(noCache ? ["--no-cache"] : []),
  ...(base === undefined ? [] : ["--base", base]),
  ...(only ? ["--only"] : []),
  ...(all ? ["--all"] : []),
  ...names
]

/** Parses lines of `NAME=TAG`. */
export const tagsOf = (printed: string): ReadonlyArray<readonly [name: string, tag: string]> =>
  printed
    .split("\n")
    .filter((line) => line.includes("="))
    .map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)] as const)

export const build = Effect.fnUntraced(function* (input: BuildInput) {
  const script = yield* ImageScript
  const argv = argvOf(input)
  const missing = new Set((yield* script.run(["--missing", ...argv])).split("\n"))
  yield* script.run(argv, input)
  const tags = tagsOf(yield* script.run(["--print"]))
  const built = tags.filter(([name]) => missing.has(name))
  if (input.output === "json") return yield* Output.json({ ok: true, built: Object.fromEntries(built) })
  yield* Output.lines(
    built.length === 0 ? ["nothing to build"] : built.map(([name, tag]) => `built ${name}: ${tag}`)
  )
})

export const list = Effect.fnUntraced(function* (input: Output.Asked) {
  const settings = yield* Settings
  const script = yield* ImageScript
  const images = yield* Effect.gen(function* () {
    const api = yield* DockerApi.DockerApi
    return yield* Effect.forEach(
      tagsOf(yield* script.run(["--print"])),
      ([name, tag]) => Effect.map(api.imageSize(tag), (bytes) => ({ name, image: tag, bytes })),
      { concurrency: 4 }
    )
  }).pipe(Effect.provide(Composition.engine(settings)))
  if (input.output === "json") return yield* Output.json(images)
  yield* Output.lines(
    columns(
      images.map(({ bytes, image, name }) => [
        name,
        image,
        bytes === undefined ? "not built" : formatBytes(bytes)
      ])
    )
  )
})

/** Pulls images that are named by their digest: those of the arguments, or else those of the environment. */
export const pull = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly images: ReadonlyArray<string> }
) {
  const settings = yield* Settings
  const { cosignPublicKey } = yield* Effect.fromResult(settings.images)
  if (cosignPublicKey === undefined) {
    return yield* refusal(
      "configuration",
      "no key to verify images is configured, so nothing is pulled",
      "Set COGNI_IMAGE_KEY_FILE to the signer's public key (cosign.pub)"
    )
  }
  const named = [settings.runtimeImage, settings.proxyImage, settings.gatewayImage].filter((image) =>
    image.includes("@sha256:")
  )
  const images = input.images.length > 0 ? input.images : [...new Set(named)]
  if (images.length === 0) {
    return yield* refusal(
      "usage",
      "no image is named by its digest",
      "Name one as HOST/REPOSITORY@sha256:DIGEST, here or in a variable such as COGNI_RUNTIME_IMAGE"
    )
  }
  yield* Effect.forEach(images, (image) => ImagePull.pull(image, { cosignPublicKey }), {
    discard: true
  }).pipe(Effect.provide(Composition.engine(settings)))
  if (input.output === "json") return yield* Output.json({ ok: true, pulled: images })
  yield* Output.lines(images.map((image) => `pulled ${image}`))
})
