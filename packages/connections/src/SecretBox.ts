/**
 * Encrypts the secrets of connections, so that a copy of the database opens nothing.
 *
 * Envelope encryption: each secret has a data key of its own (JWE, `dir` with `A256GCM`), and a {@link KeyWrapper}
 * wraps that key: with a key of a file, or in a key management service that never shows its key. Both are bound to the
 * account, the connection and its description. A secret that was copied to another connection does not open, nor one
 * whose connection was changed in the database, such as to send it to another server.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { Context, Duration, Effect, Layer, Redacted, Result, Schema } from "effect"
import * as Base64 from "effect/encoding/Base64"
import { createHash } from "node:crypto"
import type { Connection } from "./Connection.ts"
import * as SecretUse from "./internal/SecretUse.ts"

/** Bytes of a key: AES with 256 bits. */
const keyBytes = 32

/** Time limit of a key wrapper, in seconds. */
const wrapperSecondsMax = 10

/** Maximum keys of one host. */
const keysMax = 16

/** A secret could not be encrypted or decrypted. The detail contains no secret. */
export class SealFailed extends Schema.TaggedError<SealFailed>()("SealFailed", {
  detail: Schema.String,
  remedy: Schema.String,
  isRetryable: Schema.Boolean
}) {
  override get message(): string {
    return `a secret ${this.detail}. ${this.remedy}`
  }
}

/** A data key as a wrapper returns it. */
const WrappedKey = Schema.Struct({
  /** Which key wrapped it. */
  keyId: Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(500)),
  /** Text without secrets, as only the wrapper understands it. */
  wrapped: Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(8192))
})

type WrappedKey = typeof WrappedKey.Type

/** Port to the key that encrypts data keys: a file, or a key management service. */
export class KeyWrapper extends Context.Service<
  KeyWrapper,
  {
    /** Wraps a data key. `context` must be authenticated, and is not secret. */
    readonly wrap: (
      dataKey: Redacted.Redacted<Uint8Array>,
      context: string
    ) => Effect.Effect<WrappedKey, SealFailed>
    /** Unwraps a data key that was wrapped with the same context. */
    readonly unwrap: (
      key: WrappedKey,
      context: string
    ) => Effect.Effect<Redacted.Redacted<Uint8Array>, SealFailed>
  }
>()("@cogni/sandbox-connections/SecretBox/KeyWrapper") {}

export class SecretBox extends Context.Service<
  SecretBox,
  {
    readonly seal: (connection: Owner, secret: Redacted.Redacted<string>) => Effect.Effect<string, SealFailed>
    readonly open: (connection: Owner, sealed: string) => Effect.Effect<Redacted.Redacted<string>, SealFailed>
  }
>()("@cogni/sandbox-connections/SecretBox") {}

/** The connection that a secret belongs to. */
type Owner = Omit<Connection, "revokedAt">

const Envelope = Schema.fromJsonString(
  Schema.Struct({
    version: Schema.Literal(1),
    key: WrappedKey,
    // An OAuth secret has up to three tokens.
    jwe: Schema.String.check(Schema.isMaxLength(256 * 1024))
  })
)
const encodeEnvelope = Schema.encodeSync(Envelope)
const decodeEnvelope = Schema.decodeUnknownEffect(Envelope)

const makeBox = Effect.map(KeyWrapper, (wrapper) =>
  SecretBox.of({
    seal: Effect.fn("SecretBox.seal")(function* (owner, secret) {
      if (isToken(owner) && !SecretUse.isPlain(secret)) return yield* notPlain
      const context = contextOf(owner)
      const dataKey = Redacted.make(crypto.getRandomValues(new Uint8Array(keyBytes)))
      const key = yield* inTime(wrapper.wrap(dataKey, context))
      const jwe = yield* encrypted(SecretUse.bytesOf(secret), dataKey, context)
      return encodeEnvelope({ version: 1, key, jwe })
    }),
    open: Effect.fn("SecretBox.open")(function* (owner, sealed) {
      const context = contextOf(owner)
      const { jwe, key } = yield* Effect.mapError(decodeEnvelope(sealed), () => damaged)
      const dataKey = yield* inTime(wrapper.unwrap(key, context))
      return SecretUse.secretOf(yield* decrypted(jwe, dataKey, context))
    })
  })
)

/** Whether the secret itself is sent to a server, by git or in a header. */
const isToken = ({ means: { kind } }: Owner): boolean => kind !== "oauth"

const inTime = <A>(wrapping: Effect.Effect<A, SealFailed>): Effect.Effect<A, SealFailed> =>
  Effect.timeoutOrElse(wrapping, {
    duration: Duration.seconds(wrapperSecondsMax),
    orElse: () =>
      Effect.fail(
        new SealFailed({
          detail: `cannot be stored or read: its key did not come within ${wrapperSecondsMax} s`,
          remedy: "Check the key management service, then try again",
          isRetryable: true
        })
      )
  })

/** Encrypts with the key wrapper. */
export const layer: Layer.Layer<SecretBox, never, KeyWrapper> = Layer.effect(SecretBox, makeBox)

const noKey = Effect.fail(
  new SealFailed({
    detail: "cannot be stored or read, because this host has no key for connections",
    remedy: `Configure a key (${named("SecretBox.layerKeys")})`,
    isRetryable: false
  })
)

/** Refuses everything: for hosts without a key. */
export const layerNone: Layer.Layer<SecretBox> = Layer.succeed(SecretBox, {
  seal: () => noKey,
  open: () => noKey
})

/**
 * Wraps with keys of this host: one for each line, 32 bytes in Base64. The first one wraps. The others only unwrap,
 * after a key was replaced. The lines are read again for each secret, so a process need not be restarted for that.
 */
export const layerKeys = (
  lines: Effect.Effect<Redacted.Redacted<string>, SealFailed>
): Layer.Layer<KeyWrapper, SealFailed> => Layer.effect(KeyWrapper, makeKeys(lines))

const makeKeys = Effect.fnUntraced(function* (lines: Effect.Effect<Redacted.Redacted<string>, SealFailed>) {
  const read = Effect.flatMap(lines, namedKeysOf)
  let last = yield* read
  // While they are being replaced, the last ones: a new refresh token must be stored now.
  const current = read.pipe(
    Effect.tap((keys) => Effect.sync(() => void (last = keys))),
    Effect.catch(() => Effect.sync(() => last))
  )
  return KeyWrapper.of({
    wrap: Effect.fnUntraced(function* (dataKey, context) {
      const [first] = yield* current
      const wrapped = yield* encrypted(SecretUse.keyOf(dataKey), first!.key, context)
      return { keyId: first!.id, wrapped }
    }),
    unwrap: Effect.fnUntraced(function* ({ keyId, wrapped }, context) {
      const found = (yield* current).find(({ id }) => id === keyId)
      if (found === undefined) return yield* otherKey
      return Redacted.make(yield* decrypted(wrapped, found.key, context))
    })
  })
})

const namedKeysOf = Effect.fnUntraced(function* (text: Redacted.Redacted<string>) {
  const keys = yield* keysOf(text)
  if (keys.length === 0 || keys.length > keysMax) {
    return yield* keyProblem(`there are ${keys.length} keys`)
  }
  return yield* Effect.forEach(keys, (key) => Effect.map(idOf(key), (id) => ({ id, key })))
})

const keysOf = Effect.fnUntraced(function* (
  text: Redacted.Redacted<string>
): Effect.fn.Return<ReadonlyArray<Redacted.Redacted<Uint8Array>>, SealFailed> {
  const lines = SecretUse.fieldOf(text)
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
  return yield* Effect.forEach(lines, (line) => {
    const bytes = Result.getOrUndefined(Base64.decode(line))
    return bytes?.length === keyBytes
      ? Effect.succeed(Redacted.make(bytes))
      : keyProblem("a line is not 32 bytes in Base64")
  })
})

/** Binds a ciphertext to its connection, and to everything about it that does not change while it lives. */
const contextOf = (owner: Owner): string => {
  const { billingAccountId, createdAt, expiresAt, id, lifetimeSecondsMax, means, name } = owner
  const { purposes = null, repositories = null, tools = null } = owner.scope
  const description = JSON.stringify([
    name,
    owner.server,
    owner.username,
    Object.entries(means).toSorted(([a], [b]) => (a < b ? -1 : 1)),
    [purposes, repositories, tools],
    lifetimeSecondsMax,
    createdAt,
    expiresAt
  ])
  const hash = createHash("sha256").update(description).digest("base64url")
  return JSON.stringify([billingAccountId, id, hash])
}

/** Loaded for the first secret. Each start of the command imports this module, and few of them need a secret. */
const jose = Effect.promise(() => import("jose"))

/** Header parameter of the context. JWE authenticates the whole protected header. */
const contextHeader = "cogni_ctx"

const encrypted = (bytes: Uint8Array, key: Redacted.Redacted<Uint8Array>, context: string) =>
  Effect.flatMap(jose, ({ CompactEncrypt }) =>
    Effect.tryPromise({
      try: () =>
        new CompactEncrypt(bytes)
          .setProtectedHeader({ alg: "dir", enc: "A256GCM", [contextHeader]: context })
          .encrypt(SecretUse.keyOf(key)),
      // The library's message is omitted: it could describe the plaintext.
      catch: () =>
        new SealFailed({
          detail: "cannot be encrypted",
          remedy: "Check the key for connections",
          isRetryable: false
        })
    })
  )

const decrypted = (
  jwe: string,
  key: Redacted.Redacted<Uint8Array>,
  context: string
): Effect.Effect<Uint8Array, SealFailed> =>
  Effect.flatMap(jose, ({ compactDecrypt }) =>
    Effect.tryPromise({
      try: () =>
        compactDecrypt(jwe, SecretUse.keyOf(key), {
          keyManagementAlgorithms: ["dir"],
          contentEncryptionAlgorithms: ["A256GCM"]
        }),
      catch: () => damaged
    })
  ).pipe(
    Effect.flatMap(({ plaintext, protectedHeader }) =>
      protectedHeader[contextHeader] === context ? Effect.succeed(plaintext) : Effect.fail(foreign)
    )
  )

/** Names a key by a hash of it, which says nothing about 256 random bits. */
const idOf = (key: Redacted.Redacted<Uint8Array>): Effect.Effect<string> =>
  Effect.map(
    Effect.promise(() => crypto.subtle.digest("SHA-256", new Uint8Array(SecretUse.keyOf(key)))),
    (hash) => `file:${Base64.encode(new Uint8Array(hash)).slice(0, 22)}`
  )

const damaged = new SealFailed({
  detail: "cannot be decrypted: its stored form is damaged or was encrypted with another key",
  remedy: "Restore it from a backup, or remove the connection and add it again",
  isRetryable: false
})

const foreign = new SealFailed({
  detail: "belongs to another connection, or its connection was changed in the database",
  remedy: "Check who changed the database, then remove the connection and add it again",
  isRetryable: false
})

const notPlain = new SealFailed({
  detail: "is not a token: it is empty, too long, or has characters that no HTTP header carries",
  remedy: "Write only the token into the file, on one line",
  isRetryable: false
})

const otherKey = new SealFailed({
  detail: "was encrypted with a key that this host does not have",
  remedy: "Add the earlier key as a further line of the key file, or remove the connection and add it again",
  isRetryable: false
})

const keyProblem = (detail: string) =>
  new SealFailed({
    detail: `cannot be stored: ${detail}`,
    remedy: `Write 1 to ${keysMax} lines of 32 random bytes in Base64 into the key file: openssl rand -base64 32`,
    isRetryable: false
  })
