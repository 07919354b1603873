/**
 * The difference between the beginning and the end of a task, as a patch for `git apply`.
 *
 * Git runs inside the sandbox, as the agent, with its own repository outside the workspace. So any directory works, and
 * the configuration of the workspace's own repository has no effect. The output is limited in size, checked for its
 * format, and otherwise untrusted.
 */
import { excerpt } from "@cogni/sandbox-loop/Excerpt"
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Effect, Result } from "effect"
import * as Base64 from "effect/encoding/Base64"
import type { GraphPatch } from "../events/GraphPatch.ts"

/** Time limit of each command. */
export const commandSecondsMax = 60

/** Returns the size of a patch in a command's retained output. It is base64, which is a third longer. */
export const outputBytesOf = (patchBytesMax: number): number => Math.ceil(patchBytesMax / 3) * 4 + 64

/** Tree ID of the initial state, or the reason why it is missing. */
export type Base = Result.Result<string, string>

/** Remedy for a failed beginning: its usual cause is a workspace that is too large. */
export const remedy = "Exclude large files that are not needed (.gitignore), or name a smaller directory"

/**
 * No configuration of the user, the system or the workspace is read. Attributes of the workspace could change the
 * comparison, so they are overridden. A path can contain a line break, so lists end in NUL.
 *
 * Git does not look into a repository inside the workspace, so it is left out.
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
# A failed beginning must not use up the space that the task needs.
trap 'code=$?; [ "$code" -eq 0 ] || rm -rf "$state"' EXIT
trap 'exit 143' TERM
rm -rf "$state" && mkdir -p "$state" && hard init -q --template= --bare "$state/git" || exit 1
ours config core.bare false
mkdir -p "$state/git/info"
echo '* -text -crlf -ident -filter -working-tree-encoding !eol !diff !merge' >"$state/git/info/attributes"
echo '/.cogni/' >"$state/git/info/exclude"
# Files that its own repository tracks are included, even if they are ignored.
if [ -d .git ]; then
  hard --git-dir=.git --work-tree=. ls-files -z --cached 2>/dev/null | there |
    ours update-index -z --add --stdin 2>/dev/null || true
fi
stage && ours write-tree
`

/** With `binary`, every file counts as binary: bytes that are not UTF-8 cannot be returned as text. */
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

/** Records the initial state. Fails if the sandbox is unusable; any other error is the reason for a missing patch. */
export const begin = Effect.fnUntraced(function* (executor: Executor, directory: string) {
  const told = yield* script(executor, beginScript, [directory])
  return Result.flatMap(told, (text): Base =>
    /^[0-9a-f]{40,64}$/u.test(text)
      ? Result.succeed(text)
      : Result.fail("git returned something other than a tree ID")
  )
})

/** Makes the patch. If the sandbox has ended, the reason is the patch's problem: the answer of the task still counts. */
export const end = Effect.fnUntraced(function* (
  executor: Executor,
  directory: string,
  base: Base,
  patchBytesMax: number
): Effect.fn.Return<GraphPatch> {
  if (Result.isFailure(base)) return none(`${base.failure}. ${remedy}`)
  const ask = (kind: "text" | "binary") =>
    Effect.map(
      script(executor, endScript, [directory, base.success, String(patchBytesMax), kind]),
      Result.match({ onFailure: none, onSuccess: (told: string) => read(told, patchBytesMax) })
    ).pipe(
      Effect.catch(({ reason }) => Effect.succeed(none(problem(`the sandbox has ended (${reason._tag})`))))
    )
  const first = yield* ask("text")
  return first.problem === notText ? yield* ask("binary") : first
})

const notText = "the patch is not text"

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

/** Errors of a command. If the sandbox has ended as well, its next use fails. */
const ofTheCommand: ReadonlySet<SandboxError["reason"]["_tag"]> = new Set([
  "CommandTimedOut",
  "CommandRefused",
  "OutputLimitExceeded",
  "OomKilled",
  "PidsExhausted"
])

/** Shortens an error to one line: it can quote the sandbox. */
const problem = (said: string): string =>
  `the patch could not be made: ${excerpt(said, 400).text.replaceAll(/[\p{C}\s]+/gu, " ")}`

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const read = (told: string, patchBytesMax: number): GraphPatch => {
  const found = /^ *(\d{1,9}) +(\d{1,15})\n?([A-Za-z0-9+/=]*)$/u.exec(told)
  if (found === null) return none(problem("git returned something other than a patch"))
  const counted = { files: Number(found[1]), bytes: Number(found[2]) }
  if (counted.bytes > patchBytesMax) {
    return {
      ...counted,
      problem: `the patch is longer than ${patchBytesMax} bytes. Ask for less at one time`
    }
  }
  const decoded = Result.getOrUndefined(Base64.decode(found[3] ?? ""))
  if (decoded?.byteLength !== counted.bytes) return none(problem("it is incomplete"))
  try {
    return { ...counted, text: strict.decode(decoded) }
  } catch {
    return { ...counted, problem: notText }
  }
}
