/**
 * `connections add`, `list`, `remove`, `test`, `uses`, `revoke`, `reencrypt`: manage the access of accounts to other servers.
 *
 * Secrets come from files, are encrypted before they are stored, and are never printed.
 */
import type { Connection, ConnectionInput } from "@cogni/sandbox-connections/Connection"
import { ConnectionBroker, layer as brokerLayer } from "@cogni/sandbox-connections/ConnectionBroker"
import type { ConnectionExists, ConnectionRefused } from "@cogni/sandbox-connections/ConnectionReason"
import * as ConnectionStore from "@cogni/sandbox-connections/ConnectionStore"
import type { ConnectionUse } from "@cogni/sandbox-connections/ConnectionUse"
import * as CredentialSources from "@cogni/sandbox-connections/CredentialSources"
import * as Reencryption from "@cogni/sandbox-connections/Reencryption"
import * as SecretBoxes from "@cogni/sandbox-connections/SecretBox"
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"
import { Clock, Effect, Layer } from "effect"
import type * as ConnectionFlags from "./ConnectionFlags.ts"
import * as ConnectionKind from "./ConnectionKind.ts"
import * as Connections from "./Connections.ts"
import * as ConnectionTrial from "./ConnectionTrial.ts"
import { exitCode } from "./ExitCode.ts"
import { type Refusal, refusal } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import { plural } from "./Quantity.ts"
import { inFlags } from "./RemedyWords.ts"
import { Settings } from "./Settings.ts"
import { columns, oneLine } from "./TerminalText.ts"

export type AddInput = Flags.Typed<typeof ConnectionFlags.add> & { readonly name: string }

/** Without the keys: a connection must be removable also if they are missing. */
const stored = Layer.unwrap(Effect.map(Settings, (settings) => Connections.store(settings)))

const sealed = Layer.unwrap(
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
  const ciphertext =
    secret === undefined
      ? undefined
      : yield* (yield* SecretBoxes.SecretBox)
          .seal(connection, secret)
          .pipe(Effect.mapError(({ detail, remedy }) => misconfigured(`a secret ${detail}`, remedy)))
  yield* store
    .add(connection, ciphertext)
    .pipe(
      Effect.mapError((error) =>
        "isRetryable" in error && error.isRetryable ? unanswered(error) : refused(error)
      )
    )
  if (input.output === "json") return yield* Output.json(toJson(connection))
  const { name } = connection
  const account = oneLine(connection.billingAccountId ?? "")
  yield* Output.note(
    `${name} is added to account ${account}. To get a credential: ` +
      `cogni-sandbox connections test ${name} --account ${ShellWord.quoted(account)} --repository URL`
  )
}, Effect.provide(sealed))

const scopeOf = ({ purposes, repositories, tools }: AddInput) => ({
  ...(purposes.length === 0 ? {} : { purposes }),
  ...(repositories.length === 0 ? {} : { repositories }),
  ...(tools.length === 0 ? {} : { tools })
})

export const list = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly account?: string | undefined }
) {
  const git = yield* Effect.fromResult((yield* Settings).git)
  const account = yield* accountOf(input.account)
  const own = yield* (yield* ConnectionStore.ConnectionStore).list(account).pipe(Effect.mapError(unanswered))
  const all = [...own, ...CredentialSources.hostConnections(git.tokens)]
  if (input.output === "json") return yield* Output.json(all.map(toJson))
  if (all.length > 0) return yield* Output.lines(table(all, new Date(yield* Clock.currentTimeMillis)))
  yield* Output.note(
    `account ${oneLine(account)} has no connections (--account names another). Add one: cogni-sandbox connections add`
  )
}, Effect.provide(stored))

export const remove = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly name: string; readonly account?: string | undefined }
) {
  const billingAccountId = yield* accountOf(input.account)
  const isRemoved = yield* (yield* ConnectionStore.ConnectionStore)
    .revoke(billingAccountId, input.name)
    .pipe(Effect.mapError(unanswered))
  if (!isRemoved) {
    return yield* refusal(
      "notFound",
      `account ${oneLine(billingAccountId)} has no connection ${oneLine(input.name)}`,
      "See cogni-sandbox connections list"
    )
  }
  const { name } = input
  if (input.output === "json") return yield* Output.json({ ok: true, billingAccountId, name })
  yield* Output.note(
    `${oneLine(name)} is removed, and its secret is deleted. Uses that are under way end in seconds`
  )
}, Effect.provide(stored))

type TestInput = Flags.Typed<typeof ConnectionFlags.test> & { readonly name: string }

/** Gets a credential as the operator of the account, tries it with a harmless request, and gives it back. */
export const test = Effect.fnUntraced(function* (input: TestInput) {
  const settings = yield* Settings
  const account = yield* accountOf(input.account)
  const { name, purpose, repository, toolId, url } = input
  const git = yield* Effect.fromResult(settings.git)
  const { lease, tried } = yield* Effect.gen(function* () {
    const broker = yield* ConnectionBroker
    const found = yield* broker.lease({ connection: name, purpose, ...Flags.given({ repository, toolId }) })
    const { connectionId, server } = found.permit
    if (url !== undefined && (!URL.canParse(url) || new URL(url).origin !== server))
      return yield* refusal(
        "usage",
        `--url ${oneLine(url)} is not an address of ${server}, the server of the connection`,
        `Name one that begins with ${server}/`
      )
    const all = yield* Effect.mapError((yield* ConnectionStore.ConnectionStore).list(account), unanswered)
    const kind = all.find(({ id }) => id === connectionId)?.means.kind ?? "environment"
    const trial = ConnectionTrial.send(ConnectionTrial.urlOf({ kind, server }, git, url), found)
    return { lease: found, tried: yield* Effect.raceFirst(trial, found.ended) }
  }).pipe(
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
  yield* accepted(name, tried)
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
      expiresAt: expiresAt.toISOString(),
      wasUsed: tried.verdict !== "unknown",
      ...tried
    })
  }
  yield* Output.note(
    `${oneLine(name)} gave a credential to ${purpose} at ${permit.server}, which was given back. ${triedText(tried)}`
  )
})

const triedText = (tried: ConnectionTrial.Verdict): string => {
  switch (tried.verdict) {
    case "accepted":
      return `The server accepts it (${oneLine(tried.url)})`
    case "doubtful":
      return `The server answered ${tried.status} (${oneLine(tried.url)}): only a run shows whether its rights suffice`
    default:
      return "It was not used, because no harmless request is known: name one with --url"
  }
}

/** A credential that its server refuses, or that could not be tried, is no success. */
const accepted = (name: string, tried: ConnectionTrial.Verdict): Effect.Effect<void, Refusal> =>
  tried.verdict === "refused"
    ? refusal(
        "refused",
        `the server refuses the credential of ${oneLine(name)} (${tried.status} from ${oneLine(tried.url)})`,
        "Remove the connection, and add it with a valid credential"
      )
    : tried.verdict === "unreachable"
      ? refusal(
          "unavailable",
          `${oneLine(tried.url)} cannot be reached, so the credential of ${oneLine(name)} was not tried`,
          "Try again in a moment"
        )
      : Effect.void

export const uses = Effect.fnUntraced(function* (input: Flags.Typed<typeof ConnectionFlags.uses>) {
  const billingAccountId = yield* accountOf(input.account)
  const store = yield* ConnectionStore.ConnectionStore
  const found = yield* store
    .uses({ billingAccountId, runId: input.run, limit: input.limit })
    .pipe(Effect.mapError(unanswered))
  if (input.output === "json") return yield* Output.json(found.map(useJson))
  // The entries are shown also if a connection cannot be read.
  const own = yield* Effect.orElseSucceed(store.list(billingAccountId), () => [])
  const names = new Map(own.map(({ id, name }) => [id, name]))
  if (found.length > 0) return yield* Output.lines(usesTable(found, names))
  yield* Output.note(`account ${oneLine(billingAccountId)} used no connection (--account names another)`)
}, Effect.provide(stored))

/** Ends a lease of the account, also one of another process. Needs no key. */
export const revoke = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly lease: string; readonly account?: string | undefined }
) {
  const billingAccountId = yield* accountOf(input.account)
  const isRevoked = yield* Effect.flatMap(ConnectionBroker, (broker) =>
    broker.revokeLease(billingAccountId, input.lease)
  ).pipe(
    Effect.provide(Layer.provide(brokerLayer({ sources: [] }), SecretBoxes.layerNone)),
    Effect.mapError(unanswered)
  )
  if (!isRevoked) {
    return yield* refusal(
      "notFound",
      `account ${oneLine(billingAccountId)} has no lease ${oneLine(input.lease)}`,
      "See cogni-sandbox connections uses"
    )
  }
  if (input.output === "json") {
    return yield* Output.json({ ok: true, billingAccountId, leaseId: input.lease })
  }
  yield* Output.note(`${oneLine(input.lease)} is revoked. If it is in use, the use ends in seconds`)
}, Effect.provide(stored))

/** Encrypts all stored secrets with the first key of the key file. Exits with `findings` if any could not be. */
export const reencrypt = Effect.fnUntraced(function* (input: Output.Asked) {
  const { count, failed } = yield* Effect.mapError(Reencryption.all, unanswered)
  const problems = failed.map(({ connection, id, problem }) => ({
    id,
    billingAccountId: connection?.billingAccountId ?? null,
    connection: connection?.name ?? null,
    reason: problem._tag,
    message: inFlags(problem.message)
  }))
  const ok = failed.length === 0
  if (!ok) yield* Output.Output.use((output) => output.exitWith(exitCode.findings))
  if (input.output === "json") return yield* Output.json({ ok, count, failed: problems })
  for (const { billingAccountId, message } of problems) {
    const account = billingAccountId === null ? "" : `account ${oneLine(billingAccountId)}, `
    yield* Output.note(`${account}${oneLine(message)}`)
  }
  yield* Output.note(`${plural(count, "secret")} encrypted with the first key`)
  if (!ok) yield* Output.note("Keep the earlier keys in the file until all secrets are encrypted")
}, Effect.provide(sealed))

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

const usesTable = (
  entries: ReadonlyArray<ConnectionUse>,
  names: ReadonlyMap<string, string>
): ReadonlyArray<string> =>
  columns([
    ["TIME", "EVENT", "CONNECTION", "USE", "TARGET", "GRANT", "RUN", "REASON", "LEASE"],
    ...entries.map((use) => [
      use.at.toISOString(),
      use.event,
      names.get(use.connectionId ?? "") ?? use.connectionId ?? "",
      use.purpose,
      oneLine(use.target ?? use.repository ?? use.toolId ?? ""),
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
