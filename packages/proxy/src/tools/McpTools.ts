/**
 * Tools of MCP servers, which the host connects to on behalf of runs.
 *
 * The operator names each server and the effect class of each tool. A server is not trusted: its annotations decide
 * nothing, a tool that changes is closed until the host restarts, and what it sends is limited. A credential belongs to
 * one call: the server gets a process or a session of its own for it, which ends with the call.
 */
import { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import * as ToolUse from "@cogni/sandbox-connections/ToolUse"
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import * as McpClient from "@cogni/sandbox-loop/McpClient"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { Deferred, Duration, Effect, type Redacted, Result, Schema, type Scope, Semaphore } from "effect"
import * as KeyInjection from "../KeyInjection.ts"
import * as McpLink from "../internal/tools/McpLink.ts"
import * as McpPins from "../internal/tools/McpPins.ts"
import * as McpResult from "../internal/tools/McpResult.ts"
import * as McpServerRule from "../internal/tools/McpServerRule.ts"
import * as McpSession from "../internal/tools/McpSession.ts"

/** Servers, as an array of rules. */
export const McpServers = McpServerRule.McpServerRules

export type McpServers = typeof McpServers.Type

/** A server, and the values of the variables that its program gets. */
export interface McpServer {
  readonly rule: McpServers[number]
  readonly environment: Readonly<Record<string, string>>
}

/** A server whose tools cannot be offered. */
export class McpServerRefused extends Schema.TaggedError<McpServerRefused>()("McpServerRefused", {
  server: Schema.String,
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `the MCP server ${this.server} ${this.detail}. ${this.remedy}`
  }
}

/** Concurrent calls of one server. */
const callsMax = 8

/** Concurrent calls of one account of one server: fewer than all, so that other accounts always have places. */
const accountCallsMax = 6

/** Concurrent calls of one run of one server: fewer than those of its account, whose other runs have the rest. */
const runCallsMax = 4

/** Default longest result of a call, in bytes. */
const resultBytesMax = 256 * 1024

/**
 * Connects to the servers, and returns the tools that the operator offers. A server with a connection lists them with
 * the credential of the current `ConnectionUser`.
 */
export const make = (
  servers: ReadonlyArray<McpServer>
): Effect.Effect<ReadonlyArray<Tool.Tool>, McpServerRefused, ConnectionBroker | Scope.Scope> =>
  Effect.map(
    Effect.forEach(
      servers,
      (server) =>
        server.rule.optional === true ? toolsOf(server).pipe(Effect.catch(without)) : toolsOf(server),
      { concurrency: 4 }
    ),
    (found) => found.flat()
  )

const without = (refused: McpServerRefused) =>
  Effect.as(Effect.logWarning(`${refused.message}. This host starts without its tools`), [])

/** Uses a connection to a server for one call, which waits for a place. */
type Use = <A>(
  request: Pick<ToolUse.ToolRequest, "purpose" | "target" | "toolId"> & {
    readonly runId?: string
    readonly account?: string
    /** Called when the call has a place among those of its server. */
    readonly onPlace?: () => void
  },
  use: (
    session: McpSession.McpSession,
    secret: Redacted.Redacted<string> | undefined
  ) => Effect.Effect<A, ToolUse.ToolProblem | McpClient.McpClientFailed>
) => Effect.Effect<A, ToolUse.ToolProblem>

const toolsOf = Effect.fnUntraced(function* (
  server: McpServer
): Effect.fn.Return<ReadonlyArray<Tool.Tool>, McpServerRefused, ConnectionBroker | Scope.Scope> {
  const { rule } = server
  const refused = (detail: string) =>
    new McpServerRefused({
      server: rule.name,
      detail,
      remedy: "Correct it or its entry, or mark the entry optional"
    })
  const use = yield* useOf(server)
  const pins = yield* use(
    { purpose: "tool_read", toolId: `${rule.name}__list_tools`, target: `${rule.name} tools/list` },
    Effect.fnUntraced(function* (session, secret) {
      const listed = yield* session.tools
      const unnamed = listed.flatMap(({ name }) => (McpPins.nameOf(name) === undefined ? [name] : []))
      if (unnamed.length > 0) yield* Effect.logWarning(withoutName(rule.name, unnamed, secret === undefined))
      const found = McpPins.make(rule, listed)
      if (Result.isFailure(found)) {
        // Its words can have the beginning of a name.
        const names = listed.map(({ name }) => name).join("\n")
        const isHidden =
          secret !== undefined &&
          (names.length >= McpClient.limits.saidCharactersMax || isRepeated(names, secret))
        return yield* Effect.fail(isHidden ? repeating : notOffered(found.failure))
      }
      // Only what is offered is searched: it is limited, and the rest is not shown.
      if (secret !== undefined && isRepeated(found.success, secret)) return yield* Effect.fail(repeating)
      return found.success
    })
  ).pipe(Effect.mapError(({ detail }) => refused(`is refused: ${detail}`)))
  const unused = McpServerRule.unusedPatterns(
    rule,
    pins.map(({ name }) => name.slice(rule.name.length + 2))
  )
  if (unused.length > 0)
    yield* Effect.logWarning(`the MCP server ${rule.name} has no tools for ${unused.join(", ")}`)
  return pins.map((pin) => toolOf(rule, pin, use))
})

/** Account and run of a call that waits for a place. */
interface Caller {
  readonly account?: string | undefined
  readonly onPlace?: (() => void) | undefined
  readonly runId?: string | undefined
}

/** Returns a function that gives each key its own places. A key without calls is forgotten. */
const placesOf = (callsMax: number) => {
  const all = new Map<string, { readonly calls: Semaphore.Semaphore; users: number }>()
  return (key: string) =>
    <A, E>(call: Effect.Effect<A, E>): Effect.Effect<A, E> =>
      Effect.acquireUseRelease(
        Effect.sync(() => {
          const one = all.get(key) ?? { calls: Semaphore.makeUnsafe(callsMax), users: 0 }
          all.set(key, one)
          one.users += 1
          return one
        }),
        (one) => one.calls.withPermit(call),
        (one) =>
          Effect.sync(() => {
            one.users -= 1
            if (one.users === 0) all.delete(key)
          })
      )
}

/** A server with a connection gets a process or a session for each call, because its credential is of one account. */
const useOf = Effect.fnUntraced(function* (
  server: McpServer
): Effect.fn.Return<Use, never, ConnectionBroker | Scope.Scope> {
  const { rule } = server
  const { connection } = rule
  const calls = yield* Semaphore.make(callsMax)
  const ofRuns = placesOf(runCallsMax)
  const ofAccounts = placesOf(accountCallsMax)
  /** Waits for a place of its run, its account, and all, in this order: who waits holds no place of others. */
  const placed = <A, E>({ account = "", onPlace, runId = "" }: Caller, call: Effect.Effect<A, E>) =>
    Effect.andThen(
      Effect.sync(() => onPlace?.()),
      call
    ).pipe(calls.withPermit, ofAccounts(account), ofRuns(runId))
  if (connection === undefined) {
    const link = yield* McpLink.make(`the MCP server ${rule.name}`, McpSession.open(server, undefined))
    return (request, use) =>
      placed(
        request,
        Effect.mapError(
          link.use((session) => use(session, undefined)),
          told(undefined)
        )
      )
  }
  const broker = yield* ConnectionBroker
  const allowed = McpServerRule.credentialServer(rule)
  return ({ account, onPlace, runId, ...request }, use) =>
    placed(
      { account, onPlace, runId },
      ToolUse.call(broker, { ...request, connection, server: allowed }, ({ permit, secret }) =>
        // Compared again: the broker may be another implementation.
        permit.server === allowed
          ? McpSession.open(server, secret).pipe(
              Effect.flatMap((session) => use(session, secret)),
              Effect.scoped,
              Effect.mapError(told(secret))
            )
          : Effect.fail({
              code: "policy_denied",
              detail: "the credential of this tool is for another server"
            })
      )
    )
})

const toolOf = (rule: McpServerRule.McpServerRule, pin: McpPins.Pin, use: Use): Tool.Tool => {
  const { callSecondsMax: secondsMax = McpServerRule.callSecondsMaxDefault } = rule
  const { resultBytesMax: bytesMax = resultBytesMax } = rule
  const isReading = pin.effect === "read_only"
  // Only for a session that all accounts share: with a connection, an account sees tools of its own.
  let isClosed = false
  const request = {
    purpose: isReading ? "tool_read" : "tool_write",
    toolId: pin.name,
    target: `${rule.name} ${pin.own}`.slice(0, 200)
  } as const
  const tool = Tool.make({
    name: pin.name,
    description: pin.description,
    effect: pin.effect,
    input: Schema.Record(Schema.String, Schema.Unknown),
    output: Schema.Unknown,
    // The limit below comes first: it knows whether the call was sent.
    runtimeSecondsMax: 2 * secondsMax + 10,
    resultBytesMax: bytesMax,
    execute: (input, { identity, runId }) =>
      Effect.suspend(() => {
        let isSent = false
        const place = Deferred.makeUnsafe<void>()
        const call = use(
          {
            ...request,
            runId,
            account: identity.billingAccountId,
            onPlace: () => Deferred.doneUnsafe(place, Effect.void)
          },
          Effect.fnUntraced(function* (session, secret) {
            if (isClosed || !McpPins.isSame(pin, yield* session.tools)) {
              if (rule.connection !== undefined) {
                yield* Effect.logWarning(changedForAccount(rule.name, pin))
                return yield* Effect.fail(closedForAccount)
              }
              if (!isClosed) yield* Effect.logError(changed(rule.name, pin))
              isClosed = true
              return yield* Effect.fail(closed)
            }
            isSent = true
            const answer = yield* session.call(pin.own, input)
            return yield* resultOf(answer, secret, bytesMax)
          })
        )
        const sent = (problem: ToolUse.ToolProblem) =>
          isSent && !isReading ? ToolUse.afterSending(problem) : problem
        return call.pipe(
          Effect.mapError((problem) => new Tool.ToolFailed(sent(problem))),
          // A call has its whole time once it has a place, and no longer to wait for one.
          Effect.raceFirst(
            Deferred.await(place).pipe(
              within(secondsMax, () => busy(secondsMax)),
              Effect.andThen(within(secondsMax, () => late(secondsMax, isSent && !isReading))(Effect.never))
            )
          )
        )
      })
  })
  return { ...tool, inputSchema: pin.inputSchema, check: (input) => tool.check(input) ?? missing(pin, input) }
}

/** Describes a missing argument. The server checks everything else. */
const missing = ({ inputSchema }: McpPins.Pin, input: unknown): string | undefined => {
  const { required } = inputSchema
  const given = input as Readonly<Record<string, unknown>>
  const absent = Array.isArray(required)
    ? required.filter((key): key is string => typeof key === "string" && !Object.hasOwn(given, key))
    : []
  return absent.length === 0 ? undefined : `missing arguments: ${absent.join(", ").slice(0, 500)}`
}

const resultOf = Effect.fnUntraced(function* (
  answer: Parameters<typeof McpResult.make>[0],
  secret: Redacted.Redacted<string> | undefined,
  bytesMax: number
): Effect.fn.Return<unknown, ToolUse.ToolProblem> {
  const result = McpResult.make(answer)
  if (answer.isError)
    return yield* Effect.fail<ToolUse.ToolProblem>({
      code: "execution",
      detail: excerpt(McpResult.textOf(result), secret, saidCharactersMax)
    })
  if (McpResult.isUnsupported(result)) return yield* Effect.fail(unsupported)
  const text = JSON.stringify(result)
  // First: the search below takes seconds for a text of some megabytes, and nothing else runs meanwhile.
  const bytes = Buffer.byteLength(text)
  if (bytes > bytesMax) return yield* Effect.fail(tooLong(bytes, bytesMax))
  if (JsonSurvey.problemOf(new TextEncoder().encode(text)) !== undefined) return yield* Effect.fail(tooDeep)
  if (secret === undefined) return result
  const cleaned = scrubbed(result, secret)
  return KeyInjection.repeats(JSON.stringify(cleaned), secret) ? yield* Effect.fail(repeating) : cleaned
})

/** Removes the credential from each text of a JSON value. */
const scrubbed = (value: unknown, secret: Redacted.Redacted<string>): unknown =>
  typeof value === "string"
    ? KeyInjection.scrub(value, secret)
    : Array.isArray(value)
      ? value.map((inner) => scrubbed(inner, secret))
      : typeof value === "object" && value !== null
        ? Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, scrubbed(inner, secret)]))
        : value

/** Longest text of an error of a server, in characters. */
const saidCharactersMax = 2000

/** Removes the credential. Returns `undefined` if the text repeats it in an encoding. */
const clean = (text: string, secret: Redacted.Redacted<string> | undefined): string | undefined => {
  if (secret === undefined) return text
  const cleaned = KeyInjection.scrub(text, secret)
  return KeyInjection.repeats(cleaned, secret) ? undefined : cleaned
}

/**
 * Returns the first characters of what a server says. They are cut off last: the rest of a credential that is cut
 * before would not be found.
 */
const excerpt = (
  said: string,
  secret: Redacted.Redacted<string> | undefined,
  charactersMax: number
): string => {
  if (secret === undefined) return said.slice(0, charactersMax)
  if (said.length >= McpClient.limits.saidCharactersMax)
    return "its words are too long to be searched for the credential of the host, so they are not shown"
  return clean(said, secret)?.slice(0, charactersMax) ?? repeating.detail
}

const isRepeated = (value: unknown, secret: Redacted.Redacted<string>): boolean => {
  const text = JSON.stringify(value)
  return KeyInjection.scrub(text, secret) !== text || KeyInjection.repeats(text, secret)
}

/** Describes a failed connection to an agent. */
const told =
  (secret: Redacted.Redacted<string> | undefined) =>
  (problem: ToolUse.ToolProblem | McpClient.McpClientFailed): ToolUse.ToolProblem => {
    if (!("_tag" in problem)) return problem
    const { detail, reason, said } = problem
    if (reason !== "refused") return { code: "unavailable", detail: `the server of this tool ${detail}` }
    const words = said === undefined ? "" : `: ${excerpt(said, secret, saidCharactersMax / 2)}`
    return { code: "execution", detail: `the server of this tool ${detail}${words}` }
  }

const changed = (server: string, { digest, name, own }: McpPins.Pin): string =>
  `the MCP server ${server} has changed its tool ${JSON.stringify(own.slice(0, 100))} since this host started ` +
  `(it was ${digest.slice(0, 12)}). ${name} is closed. Review the tool, and restart this host to offer it again`

const changedForAccount = (server: string, { digest, name, own }: McpPins.Pin): string =>
  `with the credential of this account, the MCP server ${server} lists its tool ` +
  `${JSON.stringify(own.slice(0, 100))} with another definition than at the start of this host ` +
  `(it was ${digest.slice(0, 12)}). The call of ${name} is refused. Review the tool as this account sees it`

const closedForAccount: ToolUse.ToolProblem = {
  code: "policy_denied",
  detail:
    "the server shows this account another definition of this tool than the allowed one, so it is not called. " +
    "The operator of the host can review it"
}

const closed: ToolUse.ToolProblem = {
  code: "policy_denied",
  detail:
    "this tool has changed since it was allowed, so it is closed. The operator of the host can open it again"
}

const notOffered = (detail: string): ToolUse.ToolProblem => ({
  code: "execution",
  detail: `cannot offer its tools: ${detail}`
})

const repeating: ToolUse.ToolProblem = {
  code: "redaction_failed",
  detail: "the answer repeats the credential of the host in an encoding, so it is not shown"
}

const unsupported: ToolUse.ToolProblem = {
  code: "execution",
  detail: "unsupported: the result has only images, audio or binary resources, which are not passed on"
}

const tooLong = (bytes: number, bytesMax: number): ToolUse.ToolProblem => ({
  code: "execution",
  detail: `the result is ${bytes} bytes, over its limit of ${bytesMax}. Ask for less`
})

const tooDeep: ToolUse.ToolProblem = {
  code: "execution",
  detail: "the result is nested too deeply, or has too many values. Ask for less"
}

const within = (secondsMax: number, orElse: () => Tool.ToolFailed) =>
  Effect.timeoutOrElse({ duration: Duration.seconds(secondsMax), orElse: () => Effect.fail(orElse()) })

/** Names of a server that has a credential are not shown, because they could repeat it. */
const withoutName = (server: string, names: ReadonlyArray<string>, isShown: boolean) => {
  const shown = names.slice(0, 10).map((name) => JSON.stringify(name.slice(0, 100)))
  return (
    `the MCP server ${server} has ${names.length} tools whose names have no Latin letter first, so agents cannot ` +
    `call them${isShown ? `: ${shown.join(", ")}${names.length > shown.length ? ", …" : ""}` : ""}`
  )
}

/** Nothing was sent, so the call can be repeated. */
const busy = (secondsMax: number) =>
  new Tool.ToolFailed({
    code: "timeout",
    detail:
      `the server of this tool had no place for another call within ${secondsMax} s: other calls of it take long. ` +
      "Nothing was sent. Try again later"
  })

const late = (secondsMax: number, mayHaveActed: boolean) =>
  new Tool.ToolFailed({
    code: "timeout",
    detail:
      `the server of this tool did not answer within ${secondsMax} s. ` +
      (mayHaveActed
        ? "The call may have had its effect: check before you repeat it"
        : "Ask for less, or try again")
  })
