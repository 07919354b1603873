/** The version of this command, from its manifest. */
import { Effect, FileSystem } from "effect"
import { fileURLToPath } from "node:url"

export const version: Effect.Effect<string, never, FileSystem.FileSystem> = FileSystem.FileSystem.use((fs) =>
  fs.readFileString(fileURLToPath(new URL("../package.json", import.meta.url))).pipe(
    Effect.map((manifest) => (JSON.parse(manifest) as { readonly version: string }).version),
    Effect.orElseSucceed(() => "unknown")
  )
)
