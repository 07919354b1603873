/** The page, built by Vite into a directory of its own. */
import { Effect } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { build } from "vite"

const configFile = fileURLToPath(new URL("../../packages/page/vite.config.ts", import.meta.url))

/** Builds the page, and removes it when the scope closes. */
export const acquire = Effect.acquireRelease(
  Effect.promise(async () => {
    const outDir = mkdtempSync(join(tmpdir(), "cogni-built-page-"))
    await build({ configFile, logLevel: "warn", build: { outDir, emptyOutDir: true } })
    return outDir
  }),
  (outDir) => Effect.sync(() => rmSync(outDir, { recursive: true, force: true }))
)
