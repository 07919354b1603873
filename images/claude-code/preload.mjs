/**
 * Starts Claude Code's engine in a sandbox that waits for a run, and lets Claude Code begin when its run comes. The
 * program `claude` is Bun with Claude Code inside. BUN_OPTIONS makes it import this file before Claude Code, which has
 * read nothing by then. Its own code cannot be loaded without being run.
 */
import { becomeProgram, isReadAtStart, receiveRun } from "../cogni/preload.mjs"
import { createRequire } from "node:module"

/** Modules of Bun that Claude Code uses at its start. */
const modules = [
  "assert",
  "async_hooks",
  "buffer",
  "child_process",
  "crypto",
  "dns",
  "events",
  "fs",
  "fs/promises",
  "http",
  "http2",
  "https",
  "net",
  "os",
  "path",
  "perf_hooks",
  "querystring",
  "readline",
  "stream",
  "stream/promises",
  "string_decoder",
  "timers",
  "timers/promises",
  "tls",
  "tty",
  "url",
  "util",
  "worker_threads",
  "zlib"
]

const require = createRequire(import.meta.url)
for (const name of modules) require(`node:${name}`)
const [engine, entry] = process.argv
const loaded = { ...process.env }
const run = receiveRun()
const [program, ...options] = run.argv
// A run that has others than the engine has read starts as without a preload.
const others = Object.keys(run.env).filter((name) => isReadAtStart(name) && run.env[name] !== loaded[name])
if (program !== "claude" || others.length > 0) becomeProgram(run)
process.argv = [engine, entry, ...options]
// A process that Claude Code starts of itself would wait for a run too.
process.execArgv = process.execArgv.filter((option) => !option.startsWith("--preload="))
