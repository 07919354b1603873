/** A remedy names a command that its reader has: ./dev in a checkout, cogni-sandbox or npx elsewhere. */
import { ContainerFailed, ImageNotFound } from "@cogni/sandbox-core/SandboxReason"
import { assert, describe, it } from "@effect/vitest"
import * as Failure from "../src/Failure.ts"
import * as CheckoutCommands from "../src/CheckoutCommands.ts"
import { Cause } from "effect"

const installed = { isCheckout: false }
const checkout = { isCheckout: true }

describe("a remedy", () => {
  it("the remedy of a missing image of ours names the command that builds it", () => {
    const { remedy } = new ImageNotFound({ image: "cogni-sandbox/codex:0123456789ab" })
    assert.strictEqual(remedy, "Build it: npx @cogni/sandbox-images --only codex")
    assert.strictEqual(
      CheckoutCommands.inWordsOf(installed, remedy),
      "Build it: cogni-sandbox images build --only codex"
    )
    assert.strictEqual(CheckoutCommands.inWordsOf(checkout, remedy), "Build it: ./dev images --only codex")
  })

  it("the remedy of any other missing image names no command of ours", () => {
    for (const image of ["acme/agent:1", "cogni-sandbox:1", "ghcr.io/cogni-sandbox/runtime:1"])
      assert.notInclude(new ImageNotFound({ image }).remedy, "sandbox-images", image)
  })

  it("starts an engine with ./dev setup only in a checkout", () => {
    const remedy = "Start it (systemctl start docker), or set DOCKER_HOST"
    assert.strictEqual(
      CheckoutCommands.inWordsOf(installed, remedy),
      "Start it (systemctl start docker), or set DOCKER_HOST"
    )
    assert.strictEqual(
      CheckoutCommands.inWordsOf(checkout, remedy),
      "Start it (./dev setup, or systemctl start docker), or set DOCKER_HOST"
    )
  })

  it("is in the words of this checkout in every failure of the command", () => {
    const failure = Failure.fromCause(
      Cause.fail(
        new ContainerFailed({
          operation: "create",
          detail: "no image",
          remedy: "Build it: npx @cogni/sandbox-images"
        })
      )
    )
    assert.strictEqual(failure.message, "create failed: no image. Build it: ./dev images")
  })
})
