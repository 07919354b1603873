/** Content of prompts as text: what is named, and what is refused. */
import * as PromptText from "../src/internal/PromptText.ts"
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"

const inside = { outside: "/srv/project", inside: "/workspace" }
const nowhere = { outside: "/srv/project", inside: undefined }

type Blocks = Parameters<typeof PromptText.of>[0]

const textOf = (blocks: Blocks, directories = inside as PromptText.Directories) =>
  Result.getOrThrow(PromptText.of(blocks, directories, 1000))

const reasonOf = (blocks: Blocks, bytesMax = 1000) => {
  const refused = PromptText.of(blocks, inside, bytesMax)
  return Result.isFailure(refused) ? refused.failure.reason : assert.fail("the prompt was accepted")
}

const link = (uri: string) => ({ type: "resource_link", name: "a.ts", uri }) as const

describe("the text of a prompt", () => {
  it("joins its blocks without changing them", () => {
    assert.strictEqual(
      textOf([
        { type: "text", text: "Look at " },
        link("file:///srv/project/src/a%20b.ts"),
        { type: "text", text: ", please.\n" }
      ]),
      "Look at [a.ts](/workspace/src/a b.ts), please.\n"
    )
  })

  it.each([
    ["file:///srv/project", "[a.ts](/workspace)"],
    ["file:///srv/project/../other/a.ts", "[a.ts](file:///srv/project/../other/a.ts) (not in the sandbox)"],
    ["file:///srv/projects/a.ts", "[a.ts](file:///srv/projects/a.ts) (not in the sandbox)"],
    ["file://host/srv/project/a.ts", "[a.ts](file://host/srv/project/a.ts) (not in the sandbox)"],
    ["file:///srv/project/%2F..%2Fa", "[a.ts](file:///srv/project/%2F..%2Fa) (not in the sandbox)"],
    ["https://example.com/a", "[a.ts](https://example.com/a) (not in the sandbox)"]
  ])("names the link %s as %s", (uri, text) => {
    assert.strictEqual(textOf([link(uri)]), text)
  })

  it("names no path if the sandbox does not have the directory", () => {
    assert.strictEqual(
      textOf([link("file:///srv/project/a.ts")], nowhere),
      "[a.ts](file:///srv/project/a.ts) (not in the sandbox)"
    )
  })

  it("contains embedded text with its path", () => {
    const resource = { uri: "file:///srv/project/a.ts", text: "let a = 1" }
    assert.strictEqual(
      textOf([{ type: "resource", resource }]),
      '\n<resource path="/workspace/a.ts">\nlet a = 1\n</resource>\n'
    )
  })
})

describe("a prompt is refused", () => {
  it.each([
    ["an image", { type: "image", data: "AA==", mimeType: "image/png" }],
    ["audio", { type: "audio", data: "AA==", mimeType: "audio/wav" }],
    ["binary data", { type: "resource", resource: { uri: "file:///a", blob: "AA==" } }]
  ] as const)("with %s", (_, block) => {
    assert.strictEqual(reasonOf([{ type: "text", text: "see" }, block]), "ContentUnsupported")
  })

  it("without text", () => {
    assert.strictEqual(reasonOf([]), "PromptEmpty")
    assert.strictEqual(reasonOf([{ type: "text", text: " \n" }]), "PromptEmpty")
  })

  it("beyond its limit, counted in bytes", () => {
    assert.strictEqual(reasonOf([{ type: "text", text: "é".repeat(501) }]), "PromptTooLarge")
    assert.isTrue(Result.isSuccess(PromptText.of([{ type: "text", text: "é".repeat(500) }], inside, 1000)))
  })
})
