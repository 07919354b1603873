/** The tags of the installed package of images. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, FileSystem, type Layer } from "effect"
import { basename } from "node:path"
import * as InstalledImages from "../src/InstalledImages.ts"
import { Settings, layer } from "../src/Settings.ts"

const list = [
  "x64 base=cogni-sandbox/base:aaaaaaaaaaaa",
  "x64 runtime=cogni-sandbox/runtime:bbbbbbbbbbbb",
  "arm64 runtime=cogni-sandbox/runtime:cccccccccccc",
  "not a tag",
  ""
].join("\n")

describe("installed images", () => {
  it("have the tags of this architecture", () => {
    assert.deepStrictEqual(InstalledImages.parse(list, "arm64"), {
      runtime: "cogni-sandbox/runtime:cccccccccccc"
    })
    assert.deepStrictEqual(InstalledImages.parse(list, "s390x"), {})
  })

  it("are found next to the command", () => {
    assert.strictEqual(basename(InstalledImages.directory() ?? ""), "images")
  })

  it.effect("have no tags in a checkout, whose images have the tag latest", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* InstalledImages.tags, {})
    }).pipe(Effect.provide(FileSystem.layerNoop({})))
  )

  it.effect("are the default of every image, and a variable has precedence", () =>
    Effect.gen(function* () {
      const settings = yield* Settings
      assert.strictEqual(settings.runtimeImage, "cogni-sandbox/runtime:bbbbbbbbbbbb")
      assert.strictEqual(settings.gatewayImage, "mine:1")
      assert.strictEqual(settings.imageOf("codex"), "cogni-sandbox/codex:latest")
      assert.deepStrictEqual(settings.isNamed, { runtime: false, gateway: true })
    }).pipe(
      Effect.provide(
        layer({ COGNI_GATEWAY_IMAGE: "mine:1" }, InstalledImages.parse(list, "x64")) as Layer.Layer<Settings>
      )
    )
  )
})
