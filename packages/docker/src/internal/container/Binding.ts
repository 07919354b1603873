/**
 * Message that binds a waiting sandbox to its run, over its attach stream: the `claim` of
 * docs/reference/image-contracts.md. Pure.
 *
 * `cogni-waiter` reads it before any program of the run could. With a token, the sandbox reports its exit code over
 * the same stream (`EndMark.ts`). With a directory, the workspace of the sandbox is another one than before. An open
 * sandbox gets neither variables nor a command: its commands bring their own.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import * as ContainerEnvironment from "./ContainerEnvironment.ts"
import * as Deadline from "./Deadline.ts"

/** Writes a text as one line. */
const line = (text: string): string => text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n")

const counted = (texts: ReadonlyArray<string>): ReadonlyArray<string> => [
  String(texts.length),
  ...texts.map(line)
]

/** Asks a waiting sandbox to load a program. The report that follows repeats the nonce. */
export const encodeLoad = (preload: ReadonlyArray<string>, nonce: string): string =>
  ["load", nonce, ...counted(preload), ""].join("\n")

export const encode = (
  spec: Pick<ContainerSpec, "argv" | "env" | "limits" | "supervised">,
  { hasDirectory = false, token = "" }: { readonly hasDirectory?: boolean; readonly token?: string } = {}
): string => {
  const isOpen = spec.supervised === true
  const variables = Object.entries(isOpen ? {} : ContainerEnvironment.ofAgent(spec))
  return [
    hasDirectory ? "claim directory" : "claim",
    String(Deadline.secondsMax(spec)),
    token,
    ContainerEnvironment.hasSocket(spec) ? "1" : "0",
    ...counted(variables.map(([name, value]) => `${name}=${value}`)),
    ...counted(isOpen ? [] : spec.argv),
    ""
  ].join("\n")
}
