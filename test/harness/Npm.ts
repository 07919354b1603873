/**
 * The directory of npm itself, which is only JavaScript, for a sandbox whose image has none. It is a dependency of the
 * tests, so all machines test the same version.
 */
import { createRequire } from "node:module"
import { dirname } from "node:path"

/** Contains `bin/npm-cli.js`. */
export const directory: string = dirname(createRequire(import.meta.url).resolve("npm/package.json"))
