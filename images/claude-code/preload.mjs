/**
 * Starts Claude Code's engine in a sandbox that waits for a run, and lets Claude Code begin when its run comes. The
 * program `claude` is Bun with Claude Code inside. BUN_OPTIONS makes it import this file before Claude Code, which has
 * read nothing by then. Its own code cannot be loaded without being run.
 */
import { becomeProgram, receiveRun } from "../cogni/preload.mjs"
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

/** Variables that Bun itself reads when it starts. A run that sets one starts as without a preload. */
const isOfEngine = (name) => /^(?:BUN_|LD_|MALLOC_|NODE_|SSL_|TZ$)|_PROXY$/iu.test(name)

const require = createRequire(import.meta.url)
for (const name of modules) require(`node:${name}`)
const [engine, entry] = process.argv
const run = receiveRun()
const [program, ...options] = run.argv
if (program !== "claude" || Object.keys(run.env).some(isOfEngine)) becomeProgram(run)
process.argv = [engine, entry, ...options]
// A process that Claude Code starts of itself would wait for a run too.
process.execArgv = process.execArgv.filter((option) => !option.startsWith("--preload="))
