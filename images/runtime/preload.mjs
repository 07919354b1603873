/**
 * For programs that load the code of an agent in a sandbox that waits for a run: how they get their run, and become its
 * program. Protocol: docs/reference/image-contracts.md.
 */
import { closeSync, openSync, readSync, writeSync } from "node:fs"

/** Exit code of a sandbox that was never told its run. */
const noRunCode = 97

/** Program that makes a file the standard input of another. */
const withFile = "/usr/local/bin/cogni-stdin"

const readyNumber = 3

/** Variables that a runtime, a linker or a library reads when a process starts, and never again. */
const readAtStart =
  /^(?:BUN_|GLIBC_|LC_|LD_|MALLOC_|NODE_|OPENSSL_|PERL|PYTHON|SSL_|UV_|(?:LANG|LANGUAGE|TZ)$)|_PROXY$/iu

/** Whether a process that has started before its run cannot learn a variable of that: it needs the same value. */
export const isReadAtStart = (name) => readAtStart.test(name)

/** Reads one line of standard input. Nothing else of this process runs meanwhile. */
const readLine = () => {
  const parts = []
  const part = Buffer.alloc(65_536)
  for (;;) {
    const count = readSync(0, part, 0, part.length)
    if (count === 0) return undefined
    parts.push(Buffer.from(part.subarray(0, count)))
    if (part[count - 1] === 0x0a) return Buffer.concat(parts).toString()
  }
}

/** Makes a file the standard input: the lowest free descriptor is the one that was closed. */
const openLowest = (path) => {
  closeSync(0)
  if (openSync(path, "r") !== 0) throw new Error(`${path} is not standard input`)
}

/**
 * Says that the code is loaded, and waits for the run. Returns it, with `argv` of its program, and makes its variables,
 * its arguments, its directory and its standard input those of this process. The process is stopped while it waits.
 * `openInput` makes a file the standard input, for engines that do not close it as Node does.
 */
export const receiveRun = (openInput = openLowest) => {
  writeSync(readyNumber, "ready\n")
  closeSync(readyNumber)
  const line = readLine()
  if (line === undefined) process.exit(noRunCode)
  const run = JSON.parse(line)
  const isWithFile = run.argv[0] === withFile && run.argv.length > 2
  const argv = isWithFile ? run.argv.slice(2) : run.argv
  openInput(isWithFile ? run.argv[1] : "/dev/null")
  for (const name of Object.keys(process.env)) if (!Object.hasOwn(run.env, name)) delete process.env[name]
  Object.assign(process.env, run.env)
  process.chdir(run.cwd)
  process.argv = [process.execPath, ...argv]
  return { argv, env: run.env, cwd: run.cwd }
}

/** Executes its arguments. Node ignores two signals, and so would every program that it becomes. */
const execute = `$SIG{PIPE} = $SIG{XFSZ} = "DEFAULT";
  require "/usr/local/bin/cogni-program"; Cogni::Program::become(@ARGV)`

/**
 * Replaces this process with the program of a run, as if nothing had been loaded. For a run that the loaded code is not
 * meant for.
 */
export const becomeProgram = ({ argv, env }) =>
  process.execve("/usr/bin/perl", ["perl", "-C0", "-e", execute, "--", ...argv], env)
