/**
 * A child process of OpenClaw that is started when its run begins (preload.mjs), not only when OpenClaw waits for it.
 * It loads the modules of its script, and begins the script. When the script asks for its arguments, the process waits
 * for them and for its variables. It ends if OpenClaw does not need it.
 */
import { watchProcess } from "../cogni/preload-node.mjs"
import { closeSync, readFileSync } from "node:fs"

/** The line with which OpenClaw starts the script. */
const lineNumber = 3

/** Waits until OpenClaw starts the script. Returns its arguments, when its variables are those of this process. */
const receive = (names) => {
  const loaded = { ...process.env }
  const line = readFileSync(lineNumber, "utf8")
  closeSync(lineNumber)
  if (line === "") process.exit()
  const { args, env } = JSON.parse(line)
  const argv = [process.execPath, ...args]
  // It has read a variable that is another one now.
  const read = names.includes("*") ? Object.keys({ ...loaded, ...env }) : names
  if (read.some((name) => loaded[name] !== env[name])) process.execve(process.execPath, argv, env)
  for (const name of Object.keys(loaded)) if (!Object.hasOwn(env, name)) delete process.env[name]
  Object.assign(process.env, env)
  return argv
}

const [, , script] = process.argv
const { children } = JSON.parse(readFileSync(new URL("loaded.json", import.meta.url), "utf8"))
const { modules } = children.find((one) => one.script === script)
const end = watchProcess()
for (const url of modules) await import(url)
const setArguments = (property) =>
  Object.defineProperty(process, "argv", { configurable: true, enumerable: true, ...property })
setArguments({
  get: () => {
    setArguments({ value: [], writable: true })
    process.argv = receive(end())
    return process.argv
  }
})
await import(`file://${script}`)
