/**
 * What differs between the beginning and the end of a task, as a patch for `git apply`.
 *
 * All of git runs inside the sandbox, as the agent, with a repository of its own outside the workspace: so any
 * directory works, and what the workspace's own repository is configured to do matters to nobody. What comes out is
 * bounded, checked for its form, and otherwise untrusted.
 */
import { excerpt } from "@cogni/sandbox-loop/Excerpt"
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Effect, Result } from "effect"
import { Base64 } from "effect/encoding"
import type { GraphPatch } from "../events/GraphPatch.ts"

/** How long each of its commands may take. */
export const commandSecondsMax = 60

/** A patch travels as base64, which is a third longer, through what is kept of a command's output. */
export const outputBytesOf = (patchBytesMax: number): number => Math.ceil(patchBytesMax / 3) * 4 + 64

/** The state at the beginning, as the id of a tree, or why there is none. */
export type Base = Result.Result<string, string>

/** What goes wrong at the beginning is nearly always how much there is. */
export const remedy = "Leave out what is large and not worked on (.gitignore), or name a smaller directory"

/**
 * Nothing of the user's, the system's or the workspace's configuration is read. Attributes of the workspace could
 * change what is compared, so they are overruled; a path may hold a line break, so lists end in NUL.
 *
 * A repository inside the workspace is a directory to git that it does not look into; so it is left out.
 */
const prelude = `
set -u
umask 077
state="\${TMPDIR:-/tmp}/.cogni-task"
cd "$1" || exit 66
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0
export HOME="$state" XDG_CONFIG_HOME="$state" LC_ALL=C
hard() {
  git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.untrackedCache=false -c core.attributesFile=/dev/null \\
    -c core.excludesFile=/dev/null -c core.autocrlf=false -c core.compression=1 -c core.quotePath=true -c gc.auto=0 "$@"
}
ours() { hard --git-dir="$state/git" --work-tree=. "$@"; }
there() { xargs -0 -r sh -c 'for path; do if [ -L "$path" ] || [ -r "$path" ]; then printf "%s\\0" "$path"; fi; done' sh; }
stage() {
  rm -f "$state/git/index.lock"
  ours ls-files -z --cached | ours update-index -z --add --remove --stdin &&
    ours ls-files -z --others --exclude-standard | there |
      ours update-index -z --add --stdin
}
`

const beginScript = `${prelude}
# A beginning that failed must not fill up what the task itself needs.
trap 'code=$?; [ "$code" -eq 0 ] || rm -rf "$state"' EXIT
trap 'exit 143' TERM
rm -rf "$state" && mkdir -p "$state" && hard init -q --template= --bare "$state/git" || exit 1
ours config core.bare false
mkdir -p "$state/git/info"
echo '* -text -crlf -ident -filter -working-tree-encoding !eol !diff !merge' >"$state/git/info/attributes"
echo '/.cogni/' >"$state/git/info/exclude"
# What its own repository knows is part of it, also where it is ignored.
if [ -d .git ]; then
  hard --git-dir=.git --work-tree=. ls-files -z --cached 2>/dev/null | there |
    ours update-index -z --add --stdin 2>/dev/null || true
fi
stage && ours write-tree
`

/** With `binary`, every file is one: bytes that are no UTF-8 cannot be told as text. */
const endScript = `${prelude}
base=$2 max=$3 kind=$4
stage || exit 1
[ "$kind" = text ] || echo '* -diff' >>"$state/git/info/attributes"
ours diff --cached --binary --full-index --no-ext-diff --no-textconv --no-renames --no-color \\
  --src-prefix=a/ --dst-prefix=b/ --output="$state/patch" "$base" || exit 1
files=$(ours diff --cached --name-only --no-ext-diff --no-textconv --no-renames -z "$base" | tr -cd '\\0' | wc -c)
bytes=$(wc -c <"$state/patch")
echo "$files $bytes"
[ "$bytes" -gt "$max" ] || base64 -w 0 "$state/patch"
`

/** Fails when the sandbox can be used no more; whatever else goes wrong is why there is no patch. */
export const begin = Effect.fnUntraced(function* (executor: Executor, directory: string) {
  const told = yield* script(executor, beginScript, [directory])
  return Result.flatMap(told, (text): Base =>
    /^[0-9a-f]{40,64}$/u.test(text)
      ? Result.succeed(text)
      : Result.fail("git answered something else than a tree")
  )
})

export const end = Effect.fnUntraced(function* (
  executor: Executor,
  directory: string,
  base: Base,
  patchBytesMax: number
): Effect.fn.Return<GraphPatch, SandboxError> {
  if (Result.isFailure(base)) return none(`${base.failure}. ${remedy}`)
  const ask = (kind: "text" | "binary") =>
    Effect.map(
      script(executor, endScript, [directory, base.success, String(patchBytesMax), kind]),
      Result.match({ onFailure: none, onSuccess: (told: string) => read(told, patchBytesMax) })
    )
  const first = yield* ask("text")
  return first.problem === notText ? yield* ask("binary") : first
})

const notText = "the patch is no text"

const none = (problem: string): GraphPatch => ({ files: 0, bytes: 0, problem })

const script = (
  executor: Executor,
  text: string,
  args: ReadonlyArray<string>
): Effect.Effect<Result.Result<string, string>, SandboxError> =>
  executor.exec(["/bin/sh", "-c", text, "sh", ...args], { timeoutSecondsMax: commandSecondsMax }).pipe(
    Effect.map(({ exitCode, output }) =>
      exitCode === 0 && !output.stdout.truncated
        ? Result.succeed(output.stdout.text.trim())
        : Result.fail(problem(output.stderr.text.trim() || `exit code ${exitCode}`))
    ),
    Effect.catch((error) =>
      ofTheCommand.has(error.reason._tag)
        ? Effect.succeed(Result.fail(problem(error.reason.message)))
        : Effect.fail(error)
    )
  )

/** After one of these the sandbox lives on, or says itself that it does not. */
const ofTheCommand: ReadonlySet<SandboxError["reason"]["_tag"]> = new Set([
  "CommandTimedOut",
  "CommandRefused",
  "OutputLimitExceeded",
  "OomKilled",
  "PidsExhausted"
])

/** It may quote what is inside: one line, and not long. */
const problem = (said: string): string =>
  `the patch could not be made: ${excerpt(said, 400).text.replaceAll(/[\p{C}\s]+/gu, " ")}`

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const read = (told: string, patchBytesMax: number): GraphPatch => {
  const found = /^ *(\d{1,9}) +(\d{1,15})\n?([A-Za-z0-9+/=]*)$/u.exec(told)
  if (found === null) return none(problem("git answered something else than a patch"))
  const counted = { files: Number(found[1]), bytes: Number(found[2]) }
  if (counted.bytes > patchBytesMax) {
    return {
      ...counted,
      problem: `the patch is longer than ${patchBytesMax} bytes. Ask for less at one time`
    }
  }
  const decoded = Result.getOrUndefined(Base64.decode(found[3] ?? ""))
  if (decoded?.byteLength !== counted.bytes) return none(problem("it came in pieces"))
  try {
    return { ...counted, text: strict.decode(decoded) }
  } catch {
    return { ...counted, problem: notText }
  }
}
