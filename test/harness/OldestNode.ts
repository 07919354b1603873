/**
 * Node of the oldest line that the packages support, for tests of installed packages. It is a dependency of the tests,
 * so all machines test the same version.
 */
import { createRequire } from "node:module"
import { dirname, join } from "node:path"

/** Path of the program. */
export const path = (): string =>
  join(dirname(createRequire(import.meta.url).resolve(`node-22-${process.arch}/package.json`)), "bin/node")
