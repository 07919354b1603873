/** `threads list`, `show`, `remove`, `reset` and `sweep`: the remembered threads of this database. */
import { type Thread, ThreadKey } from "@cogni/sandbox-graph-provider/threads/Thread"
import { Threads } from "@cogni/sandbox-graph-provider/threads/Threads"
import { Effect, Layer, Schema } from "effect"
import { exitCode } from "./ExitCode.ts"
import * as HostThreads from "./HostThreads.ts"
import * as Output from "./Output.ts"
import { Settings } from "./Settings.ts"
import { columns, oneLine } from "./TerminalText.ts"
import * as ThreadFailure from "./ThreadFailure.ts"

const threads = Layer.unwrap(Effect.map(Settings, HostThreads.layer))

export const list = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly account?: string | undefined }
) {
  const service = yield* Threads
  const found = yield* service
    .list({ billingAccountId: input.account })
    .pipe(Effect.mapError(ThreadFailure.refusalOf))
  if (input.output === "json") return yield* Output.json(found)
  if (found.length === 0) return yield* Output.note("there are no remembered threads")
  yield* Output.lines(render(found))
}, Effect.provide(threads))

export const show = Effect.fnUntraced(function* (input: Output.Asked & { readonly thread: string }) {
  const service = yield* Threads
  const key = yield* keyOf(input.thread)
  const found = yield* service.find(key).pipe(Effect.mapError(ThreadFailure.refusalOf))
  if (input.output === "json") return yield* Output.json(found)
  yield* Output.lines([
    ...render([found.thread]),
    ...found.turns.flatMap(({ agent, answered, asked, at, runId }) => [
      `${at}  ${oneLine(agent)}  ${runId}`,
      `  > ${oneLine(asked)}`,
      `  ${oneLine(answered)}`
    ])
  ])
}, Effect.provide(threads))

export const remove = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly thread: string; readonly history: "keep" | "remove" }
) {
  const service = yield* Threads
  const key = yield* keyOf(input.thread)
  yield* service.remove(key, { history: input.history }).pipe(Effect.mapError(ThreadFailure.refusalOf))
  const status = input.history === "keep" ? "reset" : "removed"
  if (input.output === "json") return yield* Output.json({ key, status })
  yield* Output.note(`thread ${key} is ${status}`)
}, Effect.provide(threads))

export const sweep = Effect.fnUntraced(function* (input: Output.Asked & { readonly dryRun: boolean }) {
  const service = yield* Threads
  const output = yield* Output.Output
  const swept = yield* service.sweep({ dryRun: input.dryRun }).pipe(Effect.mapError(ThreadFailure.refusalOf))
  if (swept.failed.length > 0) yield* output.exitWith(exitCode.findings)
  if (input.output === "json") return yield* Output.json(swept)
  const [removed, emptied] = input.dryRun ? ["would remove", "would reset"] : ["removed", "reset"]
  yield* Output.lines([
    ...swept.expired.map(({ key, threadId }) => `${removed} ${key}  ${oneLine(threadId)}`),
    ...swept.emptied.map(({ key, threadId }) => `${emptied} ${key}  ${oneLine(threadId)}`),
    ...swept.orphans.map((name) => `${removed} files of no thread: ${name}`),
    ...(swept.expired.length + swept.emptied.length + swept.orphans.length === 0 ? ["nothing to remove"] : [])
  ])
  for (const { key, reason } of swept.failed)
    yield* output.stderr(`cogni-sandbox: thread ${key} could not be removed: ${oneLine(reason)}\n`)
}, Effect.provide(threads))

export const render = (found: ReadonlyArray<Thread>): ReadonlyArray<string> =>
  columns([
    ["KEY", "ACCOUNT", "THREAD", "TURNS", "BYTES", "STATE", "LAST USED"],
    ...found.map(({ billingAccountId, host, isBusy, key, threadId, turns, usedAt, workspaceBytes }) => [
      key,
      oneLine(billingAccountId),
      oneLine(threadId),
      String(turns),
      String(workspaceBytes),
      isBusy ? "busy" : host === undefined ? "no files" : `on ${host}`,
      usedAt
    ])
  ])

const keyOf = (typed: string) =>
  Schema.is(ThreadKey)(typed) ? Effect.succeed(typed) : Effect.fail(ThreadFailure.notAKey(typed))
