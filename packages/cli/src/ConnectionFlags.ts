/** The flags of `connections` and of its subcommands. */
import { type Purpose, purposes } from "@cogni/sandbox-connections/ConnectionFields"
import { Flag } from "effect/cli"
import * as Flags from "./Flags.ts"
import * as LimitFlag from "./LimitFlag.ts"
import * as NumberFlag from "./NumberFlag.ts"

const account = Flags.optional(
  "account",
  "ID",
  "Billing account of the connection (default COGNI_BILLING_ACCOUNT, or local)"
)

/** Flags of `connections add`. One of the first five says where its credentials come from. */
export const add = {
  gitHubApp: Flags.orUndefined(
    NumberFlag.whole(
      "github-app",
      "INSTALLATION",
      "the ID of an installation, a whole number such as 12345678",
      "ID of an installation of this host's GitHub App"
    )
  ),
  gitLabTokenFile: Flags.optional("gitlab-token-file", "FILE", "File with an access token of GitLab"),
  tokenFile: Flags.optional("token-file", "FILE", "File with a token of any server"),
  oauthTokenUrl: Flags.optional("oauth-token-url", "URL", "Address at which a refresh token is exchanged"),
  broker: Flags.optional("broker", "URL", "Address of a service that issues credentials"),
  clientId: Flags.optional("oauth-client-id", "ID", "With --oauth-token-url: ID of the OAuth client"),
  refreshTokenFile: Flags.optional(
    "refresh-token-file",
    "FILE",
    "With --oauth-token-url: file with the refresh token"
  ),
  clientSecretFile: Flags.optional(
    "client-secret-file",
    "FILE",
    "With --oauth-token-url: file with the secret of the client (default none)"
  ),
  brokerTokenFile: Flags.optional(
    "broker-token-file",
    "FILE",
    "With --broker: file with the token that this host shows to the service"
  ),
  server: Flags.optional(
    "server",
    "URL",
    "The only server that gets the credentials (default that of GitHub, or of GitLab; required with --oauth-token-url and --broker)"
  ),
  username: Flags.optional("username", "NAME", "User name for git (default that of the kind)"),
  purposes: Flag.Literals("use", purposes).pipe(
    Flag.withDescription("Use that the connection allows; may be repeated (default all)"),
    Flag.atLeast(0)
  ) as Flag.Flag<ReadonlyArray<Purpose>>,
  repositories: Flags.several(
    "repository",
    "PATTERN",
    "Repository that the connection allows, such as https://github.com/acme/*; may be repeated (default all)"
  ),
  tools: Flags.several("tool", "PATTERN", "Tool that the connection allows; may be repeated (default all)"),
  lifetimeSecondsMax: Flags.duration("lifetime", "Longest lifetime of one credential, up to 1h (default 1h)"),
  expiresSeconds: Flags.duration(
    "expires-in",
    "Time until the connection expires, such as 720h (default never)"
  ),
  account,
  output: Flags.output
}

/** Flags of `connections list` and `connections remove`. */
export const ofAccount = { account, output: Flags.output }

/** Flags of `connections uses`. */
export const uses = {
  account,
  run: Flags.optional("run", "RUN", "Only uses by this run, by its whole ID"),
  limit: LimitFlag.limit("entries, 1 to 1000, newest first", 1000, 100),
  output: Flags.output
}

/** Flags of `connections test`. */
export const test = {
  account,
  repository: Flags.optional(
    "repository",
    "URL",
    "Repository to get a credential for (required by all uses but the tools')"
  ),
  purpose: Flag.Literals("use", purposes).pipe(
    Flag.withDescription("Use to get a credential for (default fetch)"),
    Flag.withDefault("fetch" as const)
  ),
  toolId: Flags.optional("tool", "NAME", "Tool to get a credential for, with --use tool_read or tool_write"),
  url: Flags.optional(
    "url",
    "URL",
    "Address of the server to read with the credential (default a harmless one, for GitHub and GitLab)"
  ),
  output: Flags.output
}
