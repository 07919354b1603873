/**
 * Settings of connections: the keys that encrypt their secrets, and the GitHub App of this host. Both come from files,
 * because the environment of a process stays readable while it lives.
 */
import { Effect, Redacted, Result } from "effect"
import { type Refusal, refusal } from "./Failure.ts"
import * as KeyFile from "./KeyFile.ts"

/** Values of the environment variables. */
interface ConnectionVariables {
  readonly keyFile: string | undefined
  readonly gitHubAppId: string | undefined
  readonly gitHubAppKeyFile: string | undefined
}

export interface ConnectionSettings {
  /**
   * Reads the lines of keys: the first encrypts, and all decrypt. They are read again for each secret, so that a key
   * can be replaced while a server runs. Without a key, no secret can be stored or read.
   */
  readonly keys: Effect.Effect<Redacted.Redacted<string>, Refusal> | undefined
  readonly gitHubApp: { readonly appId: number; readonly privateKey: Redacted.Redacted<string> } | undefined
}

export const make = Effect.fnUntraced(function* (
  found: ConnectionVariables
): Effect.fn.Return<ConnectionSettings, Refusal> {
  return { keys: yield* keysOf(found.keyFile), gitHubApp: yield* appOf(found) }
})

const keysOf = Effect.fnUntraced(function* (path: string | undefined) {
  if (path === undefined) return undefined
  const keys = Effect.map(KeyFile.readText(path, "COGNI_CONNECTIONS_KEY_FILE"), (text) => Redacted.make(text))
  yield* keys
  return keys
})

const appOf = Effect.fnUntraced(function* ({ gitHubAppId, gitHubAppKeyFile }: ConnectionVariables) {
  if (gitHubAppId === undefined && gitHubAppKeyFile === undefined) return undefined
  if (gitHubAppId === undefined || gitHubAppKeyFile === undefined) {
    return yield* refusal(
      "configuration",
      "only one of COGNI_GITHUB_APP_ID and COGNI_GITHUB_APP_KEY_FILE is set",
      "Set both, or neither"
    )
  }
  const appId = yield* Effect.fromResult(idOf(gitHubAppId))
  const privateKey = yield* KeyFile.readText(gitHubAppKeyFile, "COGNI_GITHUB_APP_KEY_FILE")
  return { appId, privateKey: Redacted.make(privateKey) }
})

const idOf = (text: string): Result.Result<number, Refusal> =>
  /^[1-9]\d{0,14}$/u.test(text)
    ? Result.succeed(Number(text))
    : Result.fail(
        refusal(
          "configuration",
          "COGNI_GITHUB_APP_ID is not the ID of a GitHub App",
          "Write its number, as the App's page shows it"
        )
      )
