/**
 * Tools for issues and pull requests on GitHub: list, read, comment.
 *
 * Each call gets a credential of its own from the broker, for one repository, on behalf of the user of the run. The
 * sandbox never sees it. Anyone can write an issue: texts are passed on as data, and long ones are shortened.
 */
import { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import * as ToolUse from "@cogni/sandbox-connections/ToolUse"
import * as Excerpt from "@cogni/sandbox-loop/Excerpt"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { Effect, Schema } from "effect"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import type { GitCredential } from "../GitCredentials.ts"
import * as ForgeApi from "../internal/forge/ForgeApi.ts"
import { apiUrlOf } from "../internal/forge/GitHubPullRequests.ts"
import { serverOf } from "../Refs.ts"

interface GitHubToolsOptions {
  /** Server whose repositories the tools name. Defaults to `https://github.com`. */
  readonly server?: string | undefined
  /** Address of its API. Defaults to the standard address for the server. */
  readonly apiUrl?: string | undefined
}

/** Entries of one page of a list. */
const pageEntries = 30

/** Longest text of an issue, and of one comment, in bytes. */
const textBytesMax = 16 * 1024
const commentBytesMax = 4 * 1024

/** Time limit of a call, in seconds: for its credential, and for requests with their retries. */
const callSecondsMax = 100

const resultBytesMax = 256 * 1024

const Repository = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9_-]{0,99}\/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}$/u, {
    expected: "OWNER/NAME"
  })
).annotate({ description: "Repository, as OWNER/NAME" })

const Count = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2_000_000_000 }))

const IssueNumber = Count.annotate({ description: "Number of the issue or pull request" })

const Page = Schema.optionalKey(
  Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1000 })).annotate({
    description: `Page of ${pageEntries} entries (default 1)`
  })
)

const User = Schema.NullOr(Schema.Struct({ login: Schema.String }))

/** An issue as GitHub returns it. Pull requests are issues there. */
const GitHubIssue = Schema.Struct({
  number: Schema.Int,
  title: Schema.String,
  state: Schema.String,
  html_url: ForgeApi.PageUrl,
  user: User,
  body: Schema.optionalKey(Schema.NullOr(Schema.String)),
  labels: Schema.Array(
    Schema.Union([Schema.String, Schema.Struct({ name: Schema.optionalKey(Schema.NullOr(Schema.String)) })])
  ),
  comments: Schema.Int,
  updated_at: Schema.String,
  pull_request: Schema.optionalKey(Schema.Unknown)
})

const GitHubComment = Schema.Struct({
  html_url: ForgeApi.PageUrl,
  user: User,
  body: Schema.optionalKey(Schema.String),
  created_at: Schema.String
})

const GitHubPull = Schema.Struct({
  draft: Schema.optionalKey(Schema.Boolean),
  merged: Schema.Boolean,
  base: Schema.Struct({ ref: Schema.String }),
  head: Schema.Struct({ ref: Schema.String, sha: Schema.String })
})

const Summary = Schema.Struct({
  number: Schema.Int,
  title: Schema.String,
  state: Schema.String,
  author: Schema.NullOr(Schema.String),
  labels: Schema.Array(Schema.String),
  comments: Schema.Int,
  updatedAt: Schema.String,
  isPullRequest: Schema.Boolean,
  url: Schema.String
})

const Comment = Schema.Struct({
  author: Schema.NullOr(Schema.String),
  body: Schema.String,
  createdAt: Schema.String,
  url: Schema.String
})

const PullRequest = Schema.Struct({
  baseBranch: Schema.String,
  branch: Schema.String,
  commit: Schema.String,
  draft: Schema.Boolean,
  merged: Schema.Boolean
})

const summaryOf = (issue: typeof GitHubIssue.Type): typeof Summary.Type => ({
  number: issue.number,
  title: Excerpt.excerpt(issue.title, commentBytesMax).text,
  state: issue.state,
  author: issue.user?.login ?? null,
  labels: issue.labels.flatMap((label) => (typeof label === "string" ? label : (label.name ?? []))),
  comments: issue.comments,
  updatedAt: issue.updated_at,
  isPullRequest: issue.pull_request !== undefined,
  url: issue.html_url
})

const commentOf = ({ body = "", created_at, html_url, user }: typeof GitHubComment.Type) => ({
  author: user?.login ?? null,
  body: Excerpt.excerpt(body, commentBytesMax).text,
  createdAt: created_at,
  url: html_url
})

/** The API for one repository, with the credential of one call. */
interface Api {
  readonly url: string
  readonly credential: GitCredential
}

type Call = <A>(
  use: Pick<ToolUse.ToolRequest, "purpose" | "toolId"> & { readonly repository: string },
  ask: (api: Api) => Effect.Effect<A, ForgeApi.Refusal>
) => Effect.Effect<A, Tool.ToolFailed>

/** Returns the tools. The sandbox calls those that its run names. */
export const make = (
  options: GitHubToolsOptions = {}
): Effect.Effect<ReadonlyArray<Tool.Tool>, never, ConnectionBroker> =>
  Effect.map(ConnectionBroker, (broker) => {
    const call = callOf(broker, options)
    return [listIssues(call), readIssue(call), comment(call)]
  })

const callOf = (
  broker: ConnectionBroker["Service"],
  { apiUrl, server = "https://github.com" }: GitHubToolsOptions
): Call => {
  const origin = serverOf(server)
  return ({ repository, ...use }, ask) =>
    ToolUse.call(broker, { ...use, repository: `${origin}/${repository}` }, ({ secret, username }) =>
      Effect.mapError(
        ForgeApi.inTime(
          ask({
            url: `${apiUrlOf(origin, apiUrl)}/repos/${repository}`,
            credential: { username, password: secret }
          })
        ),
        ({ detail, isRetryable }): ToolUse.ToolProblem => ({
          code: isRetryable ? "unavailable" : "execution",
          detail
        })
      )
    ).pipe(Effect.mapError((problem) => new Tool.ToolFailed(problem)))
}

const limits = { runtimeSecondsMax: callSecondsMax, resultBytesMax }

const listIssues = (call: Call) =>
  Tool.make({
    ...limits,
    name: "github__list_issues",
    description: "List issues and pull requests of a repository on GitHub, the latest change first.",
    effect: "read_only",
    input: Schema.Struct({
      repository: Repository,
      state: Schema.optionalKey(
        Schema.Literals(["open", "closed", "all"]).annotate({ description: "Default: open" })
      ),
      page: Page
    }),
    output: Schema.Struct({ issues: Schema.Array(Summary), hasMore: Schema.Boolean }),
    execute: ({ page = 1, repository, state = "open" }) =>
      call({ toolId: "github__list_issues", purpose: "tool_read", repository }, ({ credential, url }) => {
        const urlParams = { state, page, sort: "updated", per_page: pageEntries }
        const request = HttpClientRequest.get(`${url}/issues`, { urlParams })
        return Effect.map(ForgeApi.ask(credential, request, Schema.Array(GitHubIssue)), (found) => ({
          issues: found.map(summaryOf),
          hasMore: found.length === pageEntries
        }))
      })
  })

const readIssue = (call: Call) =>
  Tool.make({
    ...limits,
    name: "github__read_issue",
    description: "Read an issue or a pull request on GitHub, with a page of its comments, the oldest first.",
    effect: "read_only",
    input: Schema.Struct({ repository: Repository, number: IssueNumber, page: Page }),
    output: Schema.Struct({
      ...Summary.fields,
      body: Schema.String,
      pullRequest: Schema.NullOr(PullRequest),
      commentsOfPage: Schema.Array(Comment)
    }),
    execute: ({ number, page = 1, repository }) =>
      call({ toolId: "github__read_issue", purpose: "tool_read", repository }, ({ credential, url }) =>
        Effect.gen(function* () {
          const get = <S extends Schema.ConstraintDecoder<unknown>>(
            path: string,
            answer: S,
            urlParams: Record<string, number> = {}
          ) => ForgeApi.ask(credential, HttpClientRequest.get(`${url}/${path}`, { urlParams }), answer)
          const issue = yield* get(`issues/${number}`, GitHubIssue)
          const comments = yield* get(`issues/${number}/comments`, Schema.Array(GitHubComment), {
            page,
            per_page: pageEntries
          })
          const pull =
            issue.pull_request === undefined ? undefined : yield* get(`pulls/${number}`, GitHubPull)
          return {
            ...summaryOf(issue),
            body: Excerpt.excerpt(issue.body ?? "", textBytesMax).text,
            pullRequest: pull === undefined ? null : pullOf(pull),
            commentsOfPage: comments.map(commentOf)
          }
        })
      )
  })

const pullOf = ({ base, draft = false, head, merged }: typeof GitHubPull.Type) => ({
  baseBranch: base.ref,
  branch: head.ref,
  commit: head.sha,
  draft,
  merged
})

const comment = (call: Call) =>
  Tool.make({
    ...limits,
    name: "github__comment",
    description: "Comment on an issue or a pull request on GitHub. Everyone who can see it sees the comment.",
    effect: "external_side_effect",
    input: Schema.Struct({
      repository: Repository,
      number: IssueNumber,
      body: Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(60_000)).annotate({
        description: "Text in Markdown"
      })
    }),
    output: Schema.Struct({ url: Schema.String }),
    execute: ({ body, number, repository }) =>
      call({ toolId: "github__comment", purpose: "tool_write", repository }, ({ credential, url }) => {
        const request = HttpClientRequest.post(`${url}/issues/${number}/comments`)
        // Not repeated: after a lost answer, it would be there twice.
        return ForgeApi.askOnce(
          credential,
          HttpClientRequest.bodyJsonUnsafe(request, { body }),
          GitHubComment
        ).pipe(
          Effect.map(({ html_url }) => ({ url: html_url })),
          Effect.mapError((refusal) =>
            refusal.isRetryable ? { ...refusal, detail: `${refusal.detail}. ${maybeThere}` } : refusal
          )
        )
      })
  })

const maybeThere = "The comment may be there: read the issue before you comment again"
