/**
 * A child process of OpenClaw that is started when its run begins (preload.mjs), not only when OpenClaw waits for it.
 * It loads the modules of its script, waits for the arguments and variables, and becomes the script. It ends if
 * OpenClaw does not need it.
 */
import { closeSync, readFileSync } from "node:fs"

/** The line with which OpenClaw starts the script. */
const lineNumber = 3

const [, , script] = process.argv
const { children } = JSON.parse(readFileSync(new URL("loaded.json", import.meta.url), "utf8"))
const { modules } = children.find((one) => one.script === script)
for (const url of modules) await import(url)
const line = readFileSync(lineNumber, "utf8")
closeSync(lineNumber)
if (line === "") process.exit()
const { args, env } = JSON.parse(line)
for (const name of Object.keys(process.env)) if (!Object.hasOwn(env, name)) delete process.env[name]
Object.assign(process.env, env)
process.argv = [process.execPath, ...args]
await import(`file://${script}`)
