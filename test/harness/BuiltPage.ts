/** The page, built by Vite as a release has it, once for all test files of one run of vitest. */
import { Effect } from "effect"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as PackedPackages from "./PackedPackages.ts"

const source = fileURLToPath(new URL("../../packages/page", import.meta.url))

/** Builds the page, unless it is done. */
const buildOnce =
  '[ -e "$1.built" ] || { node_modules/.bin/vite build --logLevel warn --emptyOutDir --outDir "$1" && touch "$1.built"; }'

/** Returns the directory of the built page. */
export const acquire = Effect.promise(async () => {
  const built = join(PackedPackages.shared(), "page")
  await PackedPackages.run(source, "flock", `${built}.lock`, "sh", "-c", buildOnce, "build", built)
  return built
})
