/** The bundle of a page that uses the hook: small, and without server code. */
import { assert, describe, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { gzipSync } from "node:zlib"
import { rolldown } from "rolldown"

/** Nearly all of it is Effect's schemas, which a page that uses them already has. */
const gzipBytesMax = 32 * 1024

describe("a page's bundle", () => {
  it("begins with the directive that server components need to load a module with a context", () => {
    const path = fileURLToPath(new URL("../src/Agents.ts", import.meta.url))
    assert.match(readFileSync(path, "utf8"), /^\/\*\*.*\*\/\n"use client"\n/u)
  })

  it("contains no agent and nothing of Node, and is small", async () => {
    const bundle = await rolldown({
      input: fileURLToPath(new URL("../src/Agents.ts", import.meta.url)),
      external: [/^react/u, /^@tanstack\//u],
      platform: "browser"
    })
    const { output } = await bundle.generate({ format: "esm", minify: true })
    const [chunk] = output
    assert.lengthOf(output, 1)
    assert.sameMembers(chunk.imports, ["@tanstack/react-query", "react"])
    const ours = Object.entries(chunk.modules)
      .filter(([path, { renderedLength }]) => path.includes("/packages/") && renderedLength > 0)
      .map(([path]) => path.slice(path.lastIndexOf("/packages/") + "/packages/".length))
    assert.sameMembers(
      ours.filter((path) => !path.startsWith("react/")),
      [
        "graph-provider/src/agents/AgentFields.ts",
        "graph-provider/src/graphs/AgentCatalog.ts",
        "graph-provider/src/graphs/GraphId.ts",
        "graph-provider/src/internal/GraphIdForm.ts"
      ]
    )
    assert.isBelow(gzipSync(chunk.code).length, gzipBytesMax)
  })
})
