/**
 * The options of a connection to Temporal: checks the address and the credentials before anything is sent.
 *
 * No text here ever contains a key: the SDK would repeat an invalid one in its error.
 */
import { Effect, Redacted, Ref, Schedule, type Scope } from "effect"
import { X509Certificate } from "node:crypto"
import { createSecureContext } from "node:tls"
import { TemporalFailed, type TemporalServer } from "../TemporalServer.ts"

/** Options of both kinds of connection of the SDK. */
export interface ConnectOptions {
  readonly address: string
  readonly tls: SdkTls | false
  readonly apiKey?: string
}

/** The certificates of a connection, as the SDK has them. */
export interface SdkTls {
  serverNameOverride?: string
  serverRootCACertificate?: Buffer
  clientCertPair?: { crt: Buffer; key: Buffer }
}

/** Interval in which the API key is read again. */
const apiKeySeconds = 60

/** A name or an IP address, and a port. The SDK would accept other schemes, such as names of sockets. */
const addressForm = /^(?:\[(?<v6>[0-9a-f:.]+)\]|(?<name>[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?))(?::\d{1,5})$/iu

/** Printable characters of a header, without spaces. */
const apiKeyForm = /^[\u0021-\u007e]{1,16384}$/u

const isLoopback = (host: string): boolean =>
  host.toLowerCase() === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/u.test(host)

/** Returns whether an address is one of this machine. `undefined`: it is not an address. */
export const isLocal = (address: string): boolean | undefined => {
  const { name, v6 } = addressForm.exec(address)?.groups ?? {}
  const host = v6 ?? name
  return host === undefined ? undefined : isLoopback(host)
}

/** Checks a server, and returns how to connect to it. */
export const optionsOf = Effect.fnUntraced(function* (
  server: TemporalServer
): Effect.fn.Return<ConnectOptions, TemporalFailed> {
  const { address, apiKey, isInsecureAllowed = false, tls } = server
  const local = isLocal(address)
  if (local === undefined) return yield* addressInvalid(address)
  if (tls === undefined && apiKey === undefined) {
    if (!local && !isInsecureAllowed) return yield* addressInsecure(address)
    return { address, tls: false }
  }
  const checked = yield* checkedTls(tls ?? {})
  return apiKey === undefined
    ? { address, tls: checked }
    : { address, tls: checked, apiKey: Redacted.value(yield* checkedKey(apiKey)) }
})

/** Applies each change of the API key to an open connection, until the end of the scope. */
export const keepKey = (
  { apiKey }: TemporalServer,
  used: string | undefined,
  apply: (apiKey: string) => Effect.Effect<void>
): Effect.Effect<void, never, Scope.Scope> =>
  apiKey === undefined
    ? Effect.void
    : Effect.gen(function* () {
        const last = yield* Ref.make(used)
        const renewed = checkedKey(apiKey).pipe(
          Effect.map((found) => Redacted.value(found)),
          Effect.flatMap((found) =>
            Effect.flatMap(Ref.getAndSet(last, found), (before) =>
              found === before ? Effect.void : apply(found)
            )
          ),
          // A key that is just being replaced is read again.
          Effect.catch(({ message }) => Effect.logWarning(message))
        )
        yield* Effect.forkScoped(Effect.schedule(renewed, Schedule.spaced(`${apiKeySeconds} seconds`)))
      })

const checkedKey = (apiKey: Effect.Effect<Redacted.Redacted, TemporalFailed>) =>
  Effect.flatMap(apiKey, (key) =>
    apiKeyForm.test(Redacted.value(key))
      ? Effect.succeed(key)
      : Effect.fail(
          new TemporalFailed({
            reason: "CredentialsInvalid",
            detail: "the API key for Temporal has a character that no key has, or is empty",
            remedy: "Write only the key into its file, on one line"
          })
        )
  )

/** Lets Node parse the certificates, and check that the private key belongs to its certificate. */
const checkedTls = ({ authorities, client, serverName }: NonNullable<TemporalServer["tls"]>) =>
  Effect.try({
    try: (): SdkTls => {
      const ca = authorities && Buffer.from(authorities)
      if (ca !== undefined) parsedAuthorities(ca.toString("latin1"))
      const pair = client && {
        crt: Buffer.from(client.certificate),
        key: Buffer.from(Redacted.value(client.privateKey))
      }
      createSecureContext({ ...(ca && { ca }), ...(pair && { cert: pair.crt, key: pair.key }) })
      return {
        ...(serverName !== undefined && { serverNameOverride: serverName }),
        ...(ca && { serverRootCACertificate: ca }),
        ...(pair && { clientCertPair: pair })
      }
    },
    catch: (error) =>
      new TemporalFailed({
        reason: "CredentialsInvalid",
        detail: `the certificates for Temporal are invalid${codeOf(error)}`,
        remedy: "Name files in PEM, and the private key of the client's certificate, without a password"
      })
  })

/** A certificate in PEM. */
const certificateForm = /-----BEGIN CERTIFICATE-----[^]*?-----END CERTIFICATE-----/gu

/** Throws unless each certificate can be parsed. Node accepts a file that has none. */
const parsedAuthorities = (pem: string): ReadonlyArray<X509Certificate> => {
  const found = pem.match(certificateForm)
  if (found === null) throw new Error("there is no certificate")
  return found.map((one) => new X509Certificate(one))
}

/** The code of OpenSSL. Its message could repeat a part of a file. */
const codeOf = (error: unknown): string =>
  typeof error === "object" && error !== null && "code" in error ? ` (${String(error.code)})` : ""

const addressInvalid = (address: string) =>
  new TemporalFailed({
    reason: "AddressInvalid",
    detail: `${JSON.stringify(address.slice(0, 200))} is not an address of a Temporal server`,
    remedy: "Write HOST:PORT, such as temporal.example.com:7233, without a scheme"
  })

const addressInsecure = (address: string) =>
  new TemporalFailed({
    reason: "AddressInsecure",
    detail: `${address} is another machine, and prompts would be sent to it without encryption`,
    remedy: "Use TLS. If the network encrypts by itself, add --temporal-insecure (isInsecureAllowed)"
  })
