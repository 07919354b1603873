/**
 * Converts the content of a prompt to one text. Pure.
 *
 * Links are named, and never opened: what they point to is on the client's machine. A link to a file below the session's
 * directory is named by its path inside the sandbox, if the sandbox has that directory.
 */
import type { ContentBlock } from "@agentclientprotocol/sdk"
import { Result } from "effect"
import { posix } from "node:path"
import { fileURLToPath } from "node:url"
import { AcpRefusal } from "../AcpRefusal.ts"

/** Where a session's directory is. */
export interface Directories {
  /** Directory of the session on the client's machine. */
  readonly outside: string
  /** The same directory inside the sandbox; `undefined` if the sandbox does not have it. */
  readonly inside: string | undefined
}

/** Converts the blocks, or refuses them with the first reason. */
export const of = (
  blocks: ReadonlyArray<ContentBlock>,
  directories: Directories,
  bytesMax: number
): Result.Result<string, AcpRefusal> =>
  Result.gen(function* () {
    const pieces: Array<string> = []
    for (const block of blocks) pieces.push(yield* pieceOf(block, directories))
    const text = joined(pieces)
    if (text.trim() === "") return yield* refuse("PromptEmpty", "the prompt is empty", "Describe the task")
    const bytes = new TextEncoder().encode(text).byteLength
    if (bytes > bytesMax) {
      return yield* refuse(
        "PromptTooLarge",
        `the prompt has ${bytes} bytes, and at most ${bytesMax} are accepted`,
        "Put long text into a file of the session's directory, and name it in the prompt"
      )
    }
    return text
  })

const pieceOf = (block: ContentBlock, directories: Directories): Result.Result<Piece, AcpRefusal> => {
  switch (block.type) {
    case "text":
      return Result.succeed(block.text)
    case "resource_link":
      return Result.succeed(linkText(block.name, block.uri, directories))
    case "resource": {
      const { resource } = block
      return "text" in resource
        ? Result.succeed(embedded(resource.uri, resource.text, directories))
        : refuse(
            "ContentUnsupported",
            "the prompt embeds a binary resource, and the agent reads text only",
            "Put the file into the session's directory, and name it in the prompt"
          )
    }
    default:
      return refuse(
        "ContentUnsupported",
        `the prompt has a block of the type ${block.type}, and the agent reads text only`,
        "Leave it out: the capabilities of this agent exclude images and audio"
      )
  }
}

type Piece = string

/** Text of one message, whose mentions a client sends as separate blocks. */
const joined = (pieces: ReadonlyArray<Piece>): string => pieces.join("")

const linkText = (name: string, uri: string, directories: Directories): string => {
  const path = insidePathOf(uri, directories)
  return path === undefined ? `[${name}](${uri}) (not in the sandbox)` : `[${name}](${path})`
}

const embedded = (uri: string, text: string, directories: Directories): string =>
  `\n<resource path=${JSON.stringify(insidePathOf(uri, directories) ?? uri)}>\n${text}\n</resource>\n`

/** Path inside the sandbox of a file below the session's directory. */
const insidePathOf = (uri: string, { inside, outside }: Directories): string | undefined => {
  if (inside === undefined) return undefined
  const path = pathOf(uri)
  if (path === undefined) return undefined
  const rest = posix.relative(posix.normalize(outside), path)
  return rest === ".." || rest.startsWith("../") ? undefined : posix.join(inside, rest)
}

/** Path of a `file:` URI without a host; `undefined` for every other text. */
const pathOf = (uri: string): string | undefined => {
  if (!uri.startsWith("file:///")) return undefined
  try {
    return fileURLToPath(uri)
  } catch {
    return undefined
  }
}

const refuse = (reason: AcpRefusal["reason"], detail: string, remedy: string) =>
  Result.fail(new AcpRefusal({ reason, detail, remedy }))
