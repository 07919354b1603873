/**
 * Child processes of OpenClaw that are started when its run begins (preload-child.mjs), and given out when OpenClaw
 * executes their script.
 */
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"

const program = fileURLToPath(new URL("preload-child.mjs", import.meta.url))

/** Starts a child process that loads its modules, and waits until OpenClaw starts it. */
export const startChild = (script, env) => {
  const child = spawn(process.execPath, [program, script], { env, stdio: ["pipe", "pipe", "pipe", "pipe"] })
  // If it could not be started, or has ended, OpenClaw starts its own.
  for (const one of [child, ...child.stdio]) one.on("error", () => {}).unref()
  return { script, child }
}

const isRunning = ({ exitCode, pid, signalCode }) =>
  pid !== undefined && exitCode === null && signalCode === null

/** Options of `execFile` that a child process can still follow when it has been started. */
const known = new Set(["encoding", "env", "killSignal", "maxBuffer", "timeout"])

/** Whether a call of `execFile` asks for nothing that a child process which has been started cannot do. */
const isLike = (script, [file, args, options, callback]) =>
  file === process.execPath &&
  args?.[0] === script &&
  typeof callback === "function" &&
  options?.encoding === "utf8" &&
  Object.keys(options).every((name) => known.has(name))

/** Default of Node. */
const bufferMax = 1024 * 1024

/** Does what `execFile` does, in a child process that has been started before. */
const execute = (
  child,
  [, args, { env = process.env, killSignal, maxBuffer = bufferMax, timeout }, callback]
) => {
  const said = ["", ""]
  let failure
  child.ref()
  for (const stream of child.stdio) stream.ref()
  for (const [index, name] of ["stdout", "stderr"].entries())
    child[name].setEncoding("utf8").on("data", (text) => {
      const all = said[index] + text
      said[index] = all.slice(0, maxBuffer)
      if (all.length <= maxBuffer) return
      failure ??= Object.assign(new RangeError(`${name} maxBuffer length exceeded`), {
        code: "ERR_CHILD_PROCESS_STDIO_MAXBUFFER"
      })
      child.kill(killSignal)
    })
  const timer = timeout && setTimeout(() => child.kill(killSignal), timeout)
  child.once("close", (code, signal) => {
    clearTimeout(timer)
    const text = `Command failed: ${args.join(" ")}\n${said[1]}`
    const error = code === 0 ? null : Object.assign(new Error(text), { code, signal, killed: child.killed })
    callback(failure ?? error, ...said)
  })
  child.stdio[3].end(JSON.stringify({ args, env }))
  return child
}

/** Returns `execFile` with each child process given out once, in place of a new one that would do the same. */
export const giveOutChild = (execFile, prepared) =>
  new Proxy(execFile, {
    apply: (target, self, call) => {
      const at = prepared.findIndex(({ child, script }) => isRunning(child) && isLike(script, call))
      return at === -1 ? Reflect.apply(target, self, call) : execute(prepared.splice(at, 1)[0].child, call)
    }
  })
