/** A `ServerProcess`, as its parent sees it. */
import { Effect } from "effect"
import { type ChildProcess, fork } from "node:child_process"
import { join } from "node:path"
import type { Ready, Start, Told } from "./ServerProcess.ts"

export interface Served extends Ready {
  readonly child: ChildProcess
}

const once = <A>(child: ChildProcess): Promise<A> =>
  new Promise((resolve, reject) => {
    const ended = (code: number | null) => reject(new Error(`the server ended with ${code}`))
    child.once("exit", ended)
    child.once("message", (message) => {
      child.off("exit", ended)
      resolve(message as A)
    })
  })

/** Starts a server, and ends it when the scope closes. */
export const serve = (start: Start) =>
  Effect.acquireRelease(
    Effect.promise(async (): Promise<Served> => {
      const child = fork(join(import.meta.dirname, "ServerProcess.ts"), {
        execArgv: ["--disable-warning=ExperimentalWarning", "--expose-gc"]
      })
      child.send(start)
      return { child, ...(await once<Ready>(child)) }
    }),
    ({ child }) =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            child.once("exit", () => resolve())
            child.kill("SIGTERM")
          })
      )
  )

/** Asks for its memory and CPU time. */
export const told = ({ child }: Served): Promise<Told> => {
  child.send("how are you")
  return once<Told>(child)
}
