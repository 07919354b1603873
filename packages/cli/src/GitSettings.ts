/**
 * Settings of git servers, from the environment. The variable names are those of GitHub Actions, of the servers' own
 * command lines, and of git.
 *
 * A token belongs to one server and is never sent to another.
 */
import type * as CredentialSources from "@cogni/sandbox-connections/CredentialSources"
import type { HostGitRelayOptions } from "@cogni/sandbox-git-relay/HostGitRelay"
import { defaultForges, type ForgeHost } from "@cogni/sandbox-git-relay/OriginAddress"
import * as CommitPolicy from "@cogni/sandbox-git-relay/CommitPolicy"
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import { Effect, type Redacted, Schema } from "effect"
import { type Refusal, refusal } from "./Failure.ts"
import * as KeyFile from "./KeyFile.ts"

/** Values of the environment variables. */
export interface GitVariables {
  readonly gitHubToken: Redacted.Redacted<string> | undefined
  readonly gitHubTokenFile: string | undefined
  readonly gitHubServer: string | undefined
  readonly gitHubApi: string | undefined
  readonly gitLabToken: Redacted.Redacted<string> | undefined
  readonly gitLabHost: string | undefined
  readonly caFile: string | undefined
  readonly proxyUrl: string | undefined
  readonly noProxy: string | undefined
  readonly policyFile: string | undefined
  readonly forges: string | undefined
}

export interface GitSettings {
  readonly tokens: Parameters<typeof CredentialSources.hostConnections>[0]
  readonly gitHubServer: string
  /** URL of its API; `undefined` for the default of the server. */
  readonly gitHubApi: string | undefined
  readonly gitLabServer: string
  /** Git servers whose repositories callers of `serve` may name. */
  readonly forges: ReadonlyArray<ForgeHost>
  readonly network: NonNullable<HostGitRelayOptions["network"]>
  readonly policies: CommitPolicy.Policies
}

const policyBytesMax = 1024 * 1024

/** Largest file of certificate authorities. Those of a whole distribution take 250 KB. */
const authoritiesBytesMax = 16 * 1024 * 1024

export const make = Effect.fnUntraced(function* (
  found: GitVariables
): Effect.fn.Return<GitSettings, Refusal> {
  const gitHubToken = yield* KeyFile.secretOf("GITHUB_TOKEN", found.gitHubToken, found.gitHubTokenFile)
  const gitHubServer = yield* serverOf("GITHUB_SERVER_URL", found.gitHubServer ?? "https://github.com")
  const host = found.gitLabHost ?? "gitlab.com"
  const gitLabServer = yield* serverOf("GITLAB_HOST", host.includes("://") ? host : `https://${host}`)
  return {
    tokens: [
      ...(gitHubToken === undefined
        ? []
        : [
            { variable: "GITHUB_TOKEN", server: gitHubServer, username: "x-access-token", token: gitHubToken }
          ]),
      ...(found.gitLabToken === undefined
        ? []
        : [{ variable: "GITLAB_TOKEN", server: gitLabServer, username: "oauth2", token: found.gitLabToken }])
    ],
    gitHubServer,
    gitHubApi: found.gitHubApi,
    gitLabServer,
    forges: distinct([
      ...(yield* forgesOf(found.forges)),
      ...defaultForges,
      ...hostsOf(gitHubServer, gitLabServer)
    ]),
    policies: found.policyFile === undefined ? CommitPolicy.defaults : yield* policiesOf(found.policyFile),
    network: { caFile: yield* authoritiesOf(found.caFile), proxyUrl: found.proxyUrl, noProxy: found.noProxy }
  }
})

/** Reads a file that a variable names. */
const named = Effect.fnUntraced(function* (variable: string, path: string, bytesMax: number) {
  const refuse = (detail: string, remedy: string) =>
    refusal("configuration", `${variable} ${path} ${detail}`, remedy)
  const found = yield* HostFile.read(path, { bytesMax }).pipe(
    Effect.mapError(({ detail, remedy }) => refuse(`cannot be read (it ${detail})`, remedy))
  )
  return { ...found, refuse }
})

/** Reads the commit policies from a file. */
const policiesOf = Effect.fnUntraced(function* (path: string) {
  const { bytes, refuse } = yield* named("COGNI_RELAY_POLICY_FILE", path, policyBytesMax)
  return yield* decodePolicies(new TextDecoder().decode(bytes)).pipe(
    Effect.mapError(({ message }) =>
      refuse(`is not a valid policy: ${message}`, "See docs/guides/git-relay.md")
    )
  )
})

/** Returns the resolved path, which contains no link, because git opens the file itself. */
const authoritiesOf = (path: string | undefined) =>
  path === undefined
    ? Effect.succeed(undefined)
    : Effect.map(named("GIT_SSL_CAINFO", path, authoritiesBytesMax), (found) => found.path)

const decodePolicies = Schema.decodeUnknownEffect(Schema.fromJsonString(CommitPolicy.Policies), {
  errors: "all",
  onExcessProperty: "error"
})

/** Keeps the first entry of each host. */
const distinct = (forges: ReadonlyArray<ForgeHost>): ReadonlyArray<ForgeHost> =>
  forges.filter(({ host }, index) => forges.findIndex((other) => other.host === host) === index)

/** Hosts of the servers with an https URL. */
const hostsOf = (...servers: ReadonlyArray<string>): ReadonlyArray<ForgeHost> =>
  servers.filter((server) => server.startsWith("https:")).map((server) => ({ host: new URL(server).host }))

/** Parses a list of `HOST` or `HOST:PORT`, each followed by `=private` if its addresses may be private. */
const forgesOf = Effect.fnUntraced(function* (text: string | undefined) {
  const forges: Array<ForgeHost> = []
  for (const entry of (text ?? "").split(",").map((part) => part.trim())) {
    if (entry === "") continue
    const [, host = "", suffix = ""] =
      /^([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?)(=private)?$/u.exec(entry) ?? []
    if (host === "" || !URL.canParse(`https://${host}`)) {
      return yield* refusal(
        "configuration",
        "COGNI_FORGES has an entry that is not a server",
        "Write HOST or HOST:PORT, separated by commas, with =private after one whose addresses may be private"
      )
    }
    forges.push({ host: host.toLowerCase(), ...(suffix === "" ? {} : { allowPrivateAddresses: true }) })
  }
  return forges
})

const serverOf = (name: string, url: string): Effect.Effect<string, Refusal> =>
  URL.canParse(url) && /^https?:/u.test(url)
    ? Effect.succeed(new URL(url).origin)
    : Effect.fail(refusal("configuration", `${name} is not a URL`, "Write it as https://HOST, or unset it"))
