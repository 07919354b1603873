/**
 * Records which modules a run of Claude Code loads (warm.mjs): first those that its entry imports, in their order. Bun
 * executes this file before the entry, because BUN_OPTIONS names it.
 */
import { readFileSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname } from "node:path"

const { cache } = createRequire(import.meta.url)
const file = process.env.RECORD_FILE
const root = `${dirname(Bun.main)}/`
delete process.env.BUN_OPTIONS
const entry = readFileSync(Bun.main, "utf8")
const imported = [...entry.matchAll(/import(?:\{[^}]*\}from)?"(\/[^"]+)"/gu)].map(([, path]) => path)
process.on("exit", () => {
  const modules = new Set([...imported, ...Object.keys(cache)])
  const isLoaded = (path) => path !== Bun.main && path.startsWith(root) && path.endsWith(".js")
  writeFileSync(file, JSON.stringify([...modules].filter(isLoaded)))
})
