/**
 * Skills of an agent's run: instructions that the agent reads when it needs them, each a directory with a `SKILL.md`.
 *
 * Inputs of a run are flat files. So the command line copies each skill to where the agent looks for it, and then
 * becomes the agent. The names are plain, and never a part of the script.
 */
import type { Input } from "@cogni/sandbox-core/SpecFields"
import * as SessionDirectory from "../internal/SessionDirectory.ts"
import type { Agent } from "./Agent.ts"

type Argv = ReturnType<Agent["argv"]>

/** Name of the input file of a skill. */
const inputOf = (name: string): string => `skill-${name}.md`

/** The directory is made anew: in a thread, an agent may have written into it, and taken away its own permissions. */
const script =
  `to=$1 count=$2; shift 2; dir=\${to%/*}; ${SessionDirectory.reopened("dir")}; ` +
  `chmod -R u+rwX -- "$to" 2>/dev/null; rm -rf -- "$to" || ${SessionDirectory.unprepared}; ` +
  'while [ "$count" -gt 0 ]; do mkdir -p "$to/$1" && ' +
  'cp "/cogni/skill-$1.md" "$to/$1/SKILL.md" || exit 125; shift; count=$((count - 1)); done; exec "$@"'

const placing = ["/bin/sh", "-c", script] as const

/** Whether a command line places skills before it becomes the agent. */
export const arePlacedBy = (argv: Argv): boolean => placing.every((word, index) => argv[index] === word)

/** Returns the input files of skills. */
export const inputs = (
  names: ReadonlyArray<string>,
  texts: Readonly<Record<string, string>>
): ReadonlyArray<Input> => names.map((name) => ({ name: inputOf(name), content: texts[name] ?? "" }))

/** Returns a command line that places the skills in a directory first, and removes all others from it. */
export const before = (
  directory: string,
  names: ReadonlyArray<string>,
  argv: Argv,
  { isKept = false }: { readonly isKept?: boolean } = {}
): Argv =>
  names.length === 0 && !isKept
    ? argv
    : [...placing, "skills", directory, String(names.length), ...names, ...argv]
