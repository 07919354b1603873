/**
 * `connections add`, `list`, `remove`, `test`, `uses`, `reencrypt`: manage the access of accounts to other servers.
 *
 * Secrets come from files, are encrypted before they are stored, and are never printed.
 */
import type { Connection, ConnectionInput } from "@cogni/sandbox-connections/Connection"
import { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import type { ConnectionExists, ConnectionRefused } from "@cogni/sandbox-connections/ConnectionError"
import * as ConnectionStore from "@cogni/sandbox-connections/ConnectionStore"
import type { ConnectionUse } from "@cogni/sandbox-connections/ConnectionUse"
import * as CredentialSources from "@cogni/sandbox-connections/CredentialSources"
import * as Reencryption from "@cogni/sandbox-connections/Reencryption"
import { SecretBox } from "@cogni/sandbox-connections/SecretBox"
import { Clock, Effect, Layer } from "effect"
import type * as ConnectionFlags from "./ConnectionFlags.ts"
import * as ConnectionKind from "./ConnectionKind.ts"
import * as Connections from "./Connections.ts"
import { exitCode } from "./ExitCode.ts"
import { type Refusal, refusal } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import { plural } from "./Quantity.ts"
import { inFlags } from "./RemedyWords.ts"
import { Settings } from "./Settings.ts"
import { columns, oneLine } from "./TerminalText.ts"

export type AddInput = Flags.Typed<typeof ConnectionFlags.add> & { readonly name: string }

const stored = Layer.unwrap(
  Effect.map(Settings, (settings) => Layer.merge(Connections.store(settings), Connections.secrets(settings)))
)

const accountOf = Effect.fnUntraced(function* (account: string | undefined) {
  return account ?? (yield* Settings).billingAccountId
})

export const add = Effect.fnUntraced(function* (input: AddInput) {
  const settings = yield* Settings
  const store = yield* ConnectionStore.ConnectionStore
  const git = yield* Effect.fromResult(settings.git)
  const { means, secret, server } = yield* ConnectionKind.of(input, git)
  const now = yield* Clock.currentTimeMillis
  const { expiresSeconds, lifetimeSecondsMax, username } = input
  const asked: ConnectionInput = {
    billingAccountId: yield* accountOf(input.account),
    name: input.name,
    server,
    means,
    scope: scopeOf(input),
    expiresAt: expiresSeconds === undefined ? null : new Date(now + expiresSeconds * 1000),
    ...Flags.given({ username, lifetimeSecondsMax })
  }
  const connection = yield* Effect.mapError(ConnectionStore.draft(asked), refused)
  const sealed =
    secret === undefined
      ? undefined
      : yield* (yield* SecretBox)
          .seal(connection, secret)
          .pipe(Effect.mapError(({ detail, remedy }) => misconfigured(`a secret ${detail}`, remedy)))
  yield* store
    .add(connection, sealed)
    .pipe(
      Effect.mapError((error) =>
        "isRetryable" in error && error.isRetryable ? unanswered(error) : refused(error)
      )
    )
  if (input.output === "json") return yield* Output.json(toJson(connection))
  yield* Output.note(`${connection.name} is added. To see whether it works: cogni-sandbox connections test`)
}, Effect.provide(stored))

const scopeOf = ({ purposes, repositories, tools }: AddInput) => ({
  ...(purposes.length === 0 ? {} : { purposes }),
  ...(repositories.length === 0 ? {} : { repositories }),
  ...(tools.length === 0 ? {} : { tools })
})

export const list = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly account?: string | undefined }
) {
  const git = yield* Effect.fromResult((yield* Settings).git)
  const own = yield* (yield* ConnectionStore.ConnectionStore)
    .list(yield* accountOf(input.account))
    .pipe(Effect.mapError(unanswered))
  const all = [...own, ...CredentialSources.hostConnections(git.tokens)]
  if (input.output === "json") return yield* Output.json(all.map(toJson))
  if (all.length > 0) return yield* Output.lines(table(all, new Date(yield* Clock.currentTimeMillis)))
  yield* Output.note("there are no connections; add one with: cogni-sandbox connections add")
}, Effect.provide(stored))

export const remove = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly name: string; readonly account?: string | undefined }
) {
  const removed = yield* (yield* ConnectionStore.ConnectionStore)
    .revoke(yield* accountOf(input.account), input.name)
    .pipe(Effect.mapError(unanswered))
  if (removed === undefined) {
    return yield* refusal(
      "notFound",
      `the account has no connection ${oneLine(input.name)}`,
      "See cogni-sandbox connections list"
    )
  }
  if (input.output === "json") return yield* Output.json(toJson(removed))
  yield* Output.note(
    `${removed.name} is removed, and its secret is deleted. Uses that are under way end in seconds`
  )
}, Effect.provide(stored))

export type TestInput = Flags.Typed<typeof ConnectionFlags.test> & { readonly name: string }

/** Gets a credential as the operator of the account, and gives it back. */
export const test = Effect.fnUntraced(function* (input: TestInput) {
  const settings = yield* Settings
  const account = yield* accountOf(input.account)
  const { name, purpose, repository, toolId } = input
  const lease = yield* Effect.flatMap(ConnectionBroker, (broker) =>
    broker.lease({ connection: name, purpose, ...Flags.given({ repository, toolId }) })
  ).pipe(
    Effect.scoped,
    Effect.provide(Connections.broker(settings, Connections.operator(settings, { account }))),
    Effect.catchTag("ConnectionError", (error) =>
      Effect.fail(
        refusal(error.isRetryable ? "unavailable" : "refused", inFlags(error.detail), inFlags(error.remedy), {
          reason: error.reason._tag
        })
      )
    )
  )
  const { expiresAt, permit } = lease
  if (input.output === "json") {
    const { billingAccountId, connectionName: connection, server } = permit
    return yield* Output.json({
      ok: true,
      billingAccountId,
      connection,
      server,
      purpose,
      repository: permit.repository ?? null,
      toolId: permit.toolId ?? null,
      expiresAt: expiresAt.toISOString()
    })
  }
  yield* Output.note(
    `${oneLine(name)} gave a credential to ${purpose} at ${permit.server}, which was given back`
  )
})

export const uses = Effect.fnUntraced(function* (input: Flags.Typed<typeof ConnectionFlags.uses>) {
  const billingAccountId = yield* accountOf(input.account)
  const found = yield* (yield* ConnectionStore.ConnectionStore)
    .uses({ billingAccountId, runId: input.run, limit: input.limit })
    .pipe(Effect.mapError(unanswered))
  if (input.output === "json") return yield* Output.json(found.map(useJson))
  if (found.length > 0) return yield* Output.lines(usesTable(found))
  yield* Output.note("no connection of the account was used")
}, Effect.provide(stored))

/** Encrypts all stored secrets with the first key of the key file. Exits with `findings` if any could not be. */
export const reencrypt = Effect.fnUntraced(function* (input: Output.Asked) {
  const { count, failed } = yield* Effect.mapError(Reencryption.all, unanswered)
  const problems = failed.map(({ connection: { billingAccountId, name }, problem }) => ({
    billingAccountId,
    connection: name,
    reason: problem._tag,
    message: inFlags(problem.message)
  }))
  const ok = failed.length === 0
  if (!ok) yield* Output.Output.use((output) => output.exitWith(exitCode.findings))
  if (input.output === "json") return yield* Output.json({ ok, count, failed: problems })
  for (const { billingAccountId, message } of problems) {
    yield* Output.note(`account ${oneLine(billingAccountId ?? "")}, ${oneLine(message)}`)
  }
  yield* Output.note(`${plural(count, "secret")} encrypted with the first key`)
  if (!ok) yield* Output.note("Keep the earlier keys in the file until all secrets are encrypted")
}, Effect.provide(stored))

const table = (connections: ReadonlyArray<Connection>, now: Date): ReadonlyArray<string> =>
  columns([
    ["CONNECTION", "STATE", "KIND", "SERVER", "USES", "REPOSITORIES", "TOOLS", "EXPIRES"],
    ...connections.map((connection) => [
      connection.name,
      stateOf(connection, now),
      connection.means.kind,
      connection.server,
      connection.scope.purposes?.join(",") ?? "all",
      connection.scope.repositories?.join(" ") ?? "all",
      connection.scope.tools?.join(" ") ?? "all",
      connection.expiresAt?.toISOString() ?? "never"
    ])
  ])

const stateOf = ({ expiresAt, revokedAt }: Connection, now: Date): string =>
  revokedAt !== null ? "removed" : expiresAt !== null && expiresAt <= now ? "expired" : "active"

const usesTable = (entries: ReadonlyArray<ConnectionUse>): ReadonlyArray<string> =>
  columns([
    ["TIME", "EVENT", "USE", "TARGET", "GRANT", "RUN", "REASON", "LEASE"],
    ...entries.map((use) => [
      use.at.toISOString(),
      use.event,
      use.purpose,
      oneLine(use.repository ?? use.toolId ?? ""),
      use.grantId,
      use.runId ?? "",
      use.reason ?? "",
      use.leaseId
    ])
  ])

const toJson = ({ createdAt, expiresAt, revokedAt, ...connection }: Connection) => ({
  ...connection,
  createdAt: createdAt.toISOString(),
  expiresAt: expiresAt?.toISOString() ?? null,
  revokedAt: revokedAt?.toISOString() ?? null
})

const useJson = ({ at, expiresAt, ...use }: ConnectionUse) => ({
  ...use,
  at: at.toISOString(),
  expiresAt: expiresAt?.toISOString() ?? null
})

const misconfigured = (detail: string, remedy: string): Refusal =>
  refusal("configuration", inFlags(detail), inFlags(remedy))

const refused = ({ _tag: reason, message }: ConnectionExists | ConnectionRefused): Refusal =>
  refusal("input", oneLine(message).replace(/\.\s*[^.]*$/u, ""), "See cogni-sandbox connections add --help", {
    reason
  })

const unanswered = ({
  _tag: reason,
  message
}: {
  readonly _tag: string
  readonly message: string
}): Refusal =>
  refusal("unavailable", message.replace(/\.\s*[^.]*$/u, ""), "Try again in a moment", { reason })
