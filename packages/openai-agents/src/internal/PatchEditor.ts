/** The SDK's editor: creates, changes and deletes files of the workspace by patches. */
import type { Sandbox } from "@cogni/sandbox-promise"
import { applyDiff, type Editor } from "@openai/agents-core"
import {
  SandboxApplyPatchDecodeError,
  SandboxApplyPatchDiffError,
  SandboxApplyPatchFileNotFoundError,
  SandboxApplyPatchPathError
} from "@openai/agents-core/sandbox"

/** `resolve` makes a path of the model absolute, or throws. */
export const make = ({ files }: Sandbox, resolve: (path: string) => string): Editor => {
  const requireAbsent = async (path: string, given: string) => {
    if ((await files.stat(path)) !== undefined) {
      throw new SandboxApplyPatchPathError(`${given} already exists. Update or delete it instead.`, {
        path: given
      })
    }
  }

  const requireText = async (path: string, given: string): Promise<string> => {
    const found = await files.stat(path)
    if (found === undefined) throw missing(given)
    const bytes = await files.read(path)
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)
    } catch {
      throw new SandboxApplyPatchDecodeError(
        `${given} is not UTF-8 text. Change it with a command instead.`,
        {
          path: given
        }
      )
    }
  }

  return {
    createFile: async ({ diff, path: given }) => {
      const path = resolve(given)
      await requireAbsent(path, given)
      await files.write(path, patched(given, "", diff, "create"))
      return {}
    },
    updateFile: async ({ diff, moveTo, path: given }) => {
      const path = resolve(given)
      const target = moveTo === undefined ? path : resolve(moveTo)
      const content = patched(given, await requireText(path, given), diff)
      await files.write(target, content)
      if (target !== path) await files.remove(path)
      return {}
    },
    deleteFile: async ({ path: given }) => {
      if (!(await files.remove(resolve(given)))) throw missing(given)
      return {}
    }
  }
}

const missing = (path: string) =>
  new SandboxApplyPatchFileNotFoundError(`${path} was not found. Check its spelling.`, { path })

const patched = (path: string, text: string, diff: string, mode?: "create"): string => {
  // A move alone has no hunk.
  if (mode === undefined && diff === "") return text
  try {
    return applyDiff(text, diff, mode)
  } catch (error) {
    throw new SandboxApplyPatchDiffError(
      `The patch does not fit ${path}: ${error instanceof Error ? error.message : String(error)}`,
      { path }
    )
  }
}
