/**
 * Acts as an agent between two system calls of the code under test: before each call that opens, inspects or renames a
 * path. A test file passes {@link interposed} to `vi.mock("node:fs/promises", …)`.
 */
import type * as NodeFiles from "node:fs/promises"

type Files = Pick<typeof NodeFiles, "lstat" | "open" | "readlink" | "rename">

export type Call = keyof Files

export const strike: { before: ((call: Call, path: string) => void) | undefined } = { before: undefined }

export const interposed = async (original: <T>() => Promise<T>): Promise<Files> => {
  const real = await original<Files>()
  const wrap =
    (call: Call) =>
    (path: string, ...rest: ReadonlyArray<never>): unknown => {
      strike.before?.(call, String(path))
      return (real[call] as (path: string, ...rest: ReadonlyArray<never>) => unknown)(path, ...rest)
    }
  return {
    ...real,
    lstat: wrap("lstat"),
    open: wrap("open"),
    readlink: wrap("readlink"),
    rename: wrap("rename")
  } as Files
}
