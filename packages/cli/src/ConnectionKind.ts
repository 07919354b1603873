/** The kind of a connection that flags describe, with its secret from the files that they name. */
import type { Means } from "@cogni/sandbox-connections/ConnectionFields"
import * as CredentialSources from "@cogni/sandbox-connections/CredentialSources"
import { Effect, Redacted } from "effect"
import type * as ConnectionFlags from "./ConnectionFlags.ts"
import { type Refusal, refusal } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import type { GitSettings } from "./GitSettings.ts"
import * as KeyFile from "./KeyFile.ts"

type Input = Flags.Typed<typeof ConnectionFlags.add>

interface Kind {
  readonly means: Means
  /** The only server that gets the credentials. */
  readonly server: string
  readonly secret: Redacted.Redacted<string> | undefined
}

const choices = {
  gitHubApp: "--github-app",
  gitLabTokenFile: "--gitlab-token-file",
  tokenFile: "--token-file",
  oauthTokenUrl: "--oauth-token-url",
  broker: "--broker"
} as const satisfies Partial<Record<keyof Input, string>>

/** Flags that belong to another flag. */
const parts = {
  clientId: ["--oauth-client-id", "oauthTokenUrl"],
  refreshTokenFile: ["--refresh-token-file", "oauthTokenUrl"],
  clientSecretFile: ["--client-secret-file", "oauthTokenUrl"],
  brokerTokenFile: ["--broker-token-file", "broker"]
} as const satisfies Partial<Record<keyof Input, readonly [flag: string, of: keyof typeof choices]>>

export const of = Effect.fnUntraced(function* (
  input: Input,
  git: Pick<GitSettings, "gitHubServer" | "gitLabServer">
): Effect.fn.Return<Kind, Refusal> {
  const given = Object.keys(choices).filter((name) => input[name as keyof typeof choices] !== undefined)
  if (given.length !== 1) {
    return yield* refusal(
      "usage",
      given.length === 0
        ? "nothing says where the credentials come from"
        : "more than one flag says where the credentials come from",
      `Give one of ${Object.values(choices).join(", ")}`
    )
  }
  for (const [name, [flag, of]] of Object.entries(parts)) {
    if (input[name as keyof typeof parts] !== undefined && input[of] === undefined) {
      return yield* refusal("usage", `${flag} needs ${choices[of]}`, `Give both, or leave ${flag} out`)
    }
  }
  const { gitHubApp, gitLabTokenFile, tokenFile } = input
  if (gitHubApp !== undefined) {
    const means = { kind: "github_app", installationId: gitHubApp } as const
    return { means, server: input.server ?? git.gitHubServer, secret: undefined }
  }
  if (gitLabTokenFile !== undefined) {
    const secret = yield* secretIn(gitLabTokenFile, choices.gitLabTokenFile)
    return { means: { kind: "gitlab" }, server: input.server ?? git.gitLabServer, secret }
  }
  if (tokenFile !== undefined) {
    const secret = yield* secretIn(tokenFile, choices.tokenFile)
    return { means: { kind: "token" }, server: input.server ?? git.gitHubServer, secret }
  }
  return yield* input.broker === undefined ? oauth(input) : brokerAt(input.broker, input)
})

const oauth = Effect.fnUntraced(function* (input: Input): Effect.fn.Return<Kind, Refusal> {
  const tokenUrl = yield* needed(input.oauthTokenUrl, choices.oauthTokenUrl)
  const clientId = yield* needed(input.clientId, "--oauth-client-id")
  const file = yield* needed(input.refreshTokenFile, "--refresh-token-file")
  const refreshToken = yield* secretIn(file, "--refresh-token-file")
  const clientSecret =
    input.clientSecretFile === undefined
      ? undefined
      : yield* secretIn(input.clientSecretFile, "--client-secret-file")
  return {
    means: { kind: "oauth", tokenUrl, clientId },
    server: yield* needed(input.server, "--server"),
    secret: yield* CredentialSources.oauthSecret({
      refreshToken,
      ...(clientSecret === undefined ? {} : { clientSecret })
    })
  }
})

const brokerAt = Effect.fnUntraced(function* (url: string, input: Input): Effect.fn.Return<Kind, Refusal> {
  const file = yield* needed(input.brokerTokenFile, "--broker-token-file")
  return {
    means: { kind: "broker", url },
    server: yield* needed(input.server, "--server"),
    secret: yield* secretIn(file, "--broker-token-file")
  }
})

const needed = (value: string | undefined, flag: string): Effect.Effect<string, Refusal> =>
  value === undefined
    ? Effect.fail(refusal("usage", `${flag} is missing`, "See cogni-sandbox connections add --help"))
    : Effect.succeed(value)

const secretIn = (path: string, flag: string): Effect.Effect<Redacted.Redacted<string>, Refusal> =>
  Effect.map(KeyFile.readText(path, flag), (text) => Redacted.make(text))
