/**
 * Loads the modules of Claude Code in a sandbox that waits for a run, and becomes Claude Code when its run comes. The
 * program `claude` is Bun with Claude Code inside. BUN_OPTIONS makes it execute this file before Claude Code's entry,
 * which it executes as always when this file ends. Which modules, a run of the image build has recorded (loaded.json).
 *
 * A module may keep what it reads while it is loaded. So a run in another directory, or with other variables than the
 * modules have read, replaces this process by its program.
 */
import { isReadAtStart, receiveRun } from "../cogni/preload.mjs"
import { becomeProgram, copyInput, makeInput, openInput } from "../cogni/preload-bun.mjs"
import { fstatSync, readFileSync } from "node:fs"

const loadedPath = "/usr/local/lib/claude-code/loaded.json"

/** Variables that the engine may have read at its start, and prefix of those for which the library `debug` looks. */
const isKept = (name) => isReadAtStart(name) || /^(?:DEBUG.*|MIMALLOC_.*|NO_COLOR|TE?MP|TMPDIR)$/iu.test(name)

/** Options for which modules look while they are loaded. At that time, the process has no options. */
const isLookedFor = /^--(?:bare$|(?:no-)?color)/u

/**
 * Records which variables are read and set until the function that it returns is called. Only the library `debug` lists
 * their names. A version that does so elsewhere is not loaded.
 */
const watchVariables = () => {
  const { env } = process
  const read = new Set()
  const set = {}
  let lists = 0
  const note = (name) => typeof name === "symbol" || read.add(name)
  process.env = new Proxy(env, {
    get: (variables, name) => (note(name), variables[name]),
    has: (variables, name) => (note(name), name in variables),
    getOwnPropertyDescriptor: (variables, name) => (
      note(name),
      Reflect.getOwnPropertyDescriptor(variables, name)
    ),
    ownKeys: (variables) => (lists++, Reflect.ownKeys(variables)),
    set: (variables, name, value) => ((variables[name] = set[name] = String(value)), true),
    deleteProperty: (variables, name) => {
      if (name in variables) throw new Error(`a module removes the variable ${name} while it is loaded`)
      return (note(name), true)
    }
  })
  return () => {
    process.env = env
    if (lists > 1) throw new Error("several modules list all variables while they are loaded")
    return { read, set }
  }
}

const { argv } = process
const loaded = { ...process.env }
const directory = process.cwd()
// A module may open standard input, which is the prompt's file in a run.
const line = copyInput()
openInput(loadedPath)
const end = watchVariables()
for (const path of JSON.parse(readFileSync(loadedPath, "utf8"))) await import(path)
const { read, set } = end()
makeInput(line)

const run = receiveRun(openInput)
const names = [...Object.keys(loaded), ...read, ...Object.keys(run.env).filter(isKept)]
const isLoaded =
  run.argv[0] === "claude" &&
  !run.argv.some((option) => isLookedFor.test(option)) &&
  run.cwd === directory &&
  fstatSync(0).isFile() &&
  names.every((name) => name === "BUN_OPTIONS" || loaded[name] === run.env[name])
if (!isLoaded) becomeProgram(run)
Object.assign(process.env, set)
// Modules may have kept this list.
process.argv = argv
argv.splice(2, argv.length, ...run.argv.slice(1))
// A process that Claude Code starts of itself would wait for a run too.
process.execArgv = process.execArgv.filter((option) => !option.startsWith("--preload="))
