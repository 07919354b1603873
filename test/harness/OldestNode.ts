/**
 * Node of the oldest line that the packages support, for tests of installed packages. It is a dependency of the folder
 * `oldest-node` and not of the root: pnpm would run the tests themselves with it.
 */
import { createRequire } from "node:module"
import { dirname, join } from "node:path"

/** Path of the program. */
export const path = (): string =>
  join(
    dirname(
      createRequire(new URL("oldest-node/", import.meta.url)).resolve(`node-22-${process.arch}/package.json`)
    ),
    "bin/node"
  )
