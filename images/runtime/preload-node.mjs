/**
 * For programs that load the modules of an agent before its run (preload.mjs): records what the modules read of their
 * process meanwhile. A module may keep such a value, so the run must have the same one.
 */
import { syncBuiltinESMExports } from "node:module"
import { isDeepStrictEqual } from "node:util"
import { becomeProgram, isReadAtStart, receiveRun } from "./preload.mjs"

/** Stands for all variables, in a list of their names. */
const everyName = "*"

/**
 * Records the names of variables that are read from now on. Returns a function that ends it, and returns the names. It
 * throws if a variable was changed: a run has others.
 *
 * Meanwhile, there is no `process.stdin`. Importing `node:process` would open it, and the run would come through it.
 */
export const watchProcess = () => {
  const stdin = Object.getOwnPropertyDescriptor(process, "stdin")
  Object.defineProperty(process, "stdin", { ...stdin, get: () => undefined })
  const names = new Set()
  const { env } = process
  const before = { ...env }
  const read = (name) => typeof name === "symbol" || names.add(name)
  process.env = new Proxy(env, {
    get: (variables, name) => (read(name), variables[name]),
    has: (variables, name) => (read(name), name in variables),
    getOwnPropertyDescriptor: (variables, name) => (
      read(name),
      Reflect.getOwnPropertyDescriptor(variables, name)
    ),
    ownKeys: (variables) => (read(everyName), Reflect.ownKeys(variables)),
    set: (variables, name, value) => ((variables[name] = value), true)
  })
  // Also for modules that import `env` by its name.
  syncBuiltinESMExports()
  return () => {
    process.env = env
    syncBuiltinESMExports()
    Object.defineProperty(process, "stdin", stdin)
    if (!isDeepStrictEqual({ ...env }, before))
      throw new Error("the modules change variables while they are loaded")
    return [...names]
  }
}

/**
 * Waits for a run after modules have read the variables `names`. If the run has others, or another directory, this
 * process becomes the program of the run, as without a preload. `about` is called just before it waits.
 */
export const receiveRunLike = (names, about = () => {}) => {
  const loaded = { ...process.env }
  const directory = process.cwd()
  about()
  const run = receiveRun()
  const all = Object.keys({ ...loaded, ...run.env })
  const read = names.includes(everyName) ? all : [...names, ...all.filter(isReadAtStart)]
  if (run.cwd !== directory || read.some((name) => loaded[name] !== run.env[name])) becomeProgram(run)
  return run
}
