/**
 * For programs that Bun executes before the entry of an agent (preload.mjs): what Bun does in another way than Node.
 * Shorter than 4 KiB, so that Bun does not write what it has compiled of it to the home of the agent.
 */
import { dlopen } from "bun:ffi"
import { openSync, readdirSync } from "node:fs"
import * as preload from "./preload.mjs"

const libc = dlopen("libc.so.6", {
  close: { args: ["i32"], returns: "i32" },
  dup: { args: ["i32"], returns: "i32" },
  dup2: { args: ["i32", "i32"], returns: "i32" }
}).symbols

/** Returns another descriptor of the standard input, so that this one can be opened again meanwhile. */
export const copyInput = () => libc.dup(0)

/** Makes a descriptor the standard input. Bun cannot close it, as Node does. */
export const makeInput = (number) => {
  if (libc.dup2(number, 0) !== 0) throw new Error(`descriptor ${number} does not become the standard input`)
  libc.close(number)
}

/** Makes a file the standard input. */
export const openInput = (path) => makeInput(openSync(path, "r"))

/** As in preload.mjs, and the program gets none of the descriptors that the engine has opened. */
export const becomeProgram = (run) => {
  for (const number of readdirSync("/proc/self/fd").map(Number)) if (number > 2) libc.close(number)
  preload.becomeProgram(run)
}
