/**
 * A fake of GitHub's API. It validates every request and every response against GitHub's own OpenAPI description. An
 * operation outside of the description does not exist here.
 */
import { Ajv, type ValidateFunction } from "ajv"
import { Effect } from "effect"
import { createRequire } from "node:module"
import type { IncomingMessage, ServerResponse } from "node:http"
import { type ApiRequest, received, respond } from "./LocalServer.ts"

/** Fault that replaces a response, or affects its delivery. */
export type ApiTrouble =
  | {
      readonly _tag: "Answer"
      readonly status: number
      readonly body?: unknown
      /** Sent unchanged, instead of a JSON body. */
      readonly text?: string
      readonly headers?: Record<string, string>
    }
  /** The request is executed, but its response is lost. */
  | { readonly _tag: "Lost" }
  /** The request waits first. */
  | { readonly _tag: "Hold"; readonly until: Promise<void> }

interface Pull {
  readonly number: number
  readonly repository: string
  readonly head: string
  readonly base: string
  readonly title: string
  readonly body: string
  readonly draft: boolean
}

/** A token of an installation. */
export interface InstallationToken {
  readonly token: string
  readonly installationId: number
  readonly repositories: ReadonlyArray<string>
  readonly permissions: Readonly<Record<string, string>>
  revoked: boolean
}

/** A comment that was written. */
export interface IssueComment {
  readonly repository: string
  readonly number: number
  readonly body: string
  readonly token: string
}

export interface GitHubDouble {
  readonly comments: ReadonlyArray<IssueComment>
  /** All tokens that were issued. */
  readonly tokens: ReadonlyArray<InstallationToken>
  readonly requests: ReadonlyArray<ApiRequest>
  readonly pulls: ReadonlyArray<Pull>
  /** Violations of the description. A correct client causes none. */
  readonly complaints: ReadonlyArray<string>
  trouble: (request: ApiRequest) => ApiTrouble | undefined
  /** Answers a request to this API. Returns false for other requests. */
  readonly handle: (request: IncomingMessage, response: ServerResponse) => boolean
}

interface Parameter {
  readonly name: string
  readonly in: string
  readonly required?: boolean
  readonly schema: object
}

interface Operation {
  readonly parameters?: ReadonlyArray<Parameter | { readonly $ref: string }>
  readonly requestBody?: { readonly content: Record<string, { readonly schema: object }> }
  readonly responses: Record<string, Response>
}

interface Response {
  readonly $ref?: string
  readonly content?: Record<string, { readonly schema: object }>
}

interface Description {
  readonly paths: Record<string, Record<string, Operation>>
  readonly components: {
    readonly parameters: Record<string, Parameter>
    readonly responses: Record<string, Response>
    readonly examples: Record<string, { readonly value: Record<string, unknown> }>
  }
}

/** GitHub's OpenAPI description: twelve megabytes, loaded on first use and cached by Node. */
const description = Effect.sync((): Description =>
  createRequire(import.meta.url)("@octokit/openapi/generated/api.github.com.json")
)

export interface Options {
  /** Path on the server, such as `/api/v3`. */
  readonly prefix?: string
  /** Owners of the App's installations, by ID. Default: one installation of `acme`. */
  readonly installations?: Readonly<Record<number, string>>
}

/** Makes a fake API. */
export const make = Effect.fnUntraced(function* (options: Options = {}) {
  const api = yield* description
  const complaints: Array<string> = []
  const requests: Array<ApiRequest> = []
  const pulls: Array<Pull> = []
  const tokens: Array<InstallationToken> = []
  const comments: Array<IssueComment> = []
  const { installations = { 77: "acme" } } = options
  const judge = judgeOf(api, complaints)

  const prefix = options.prefix ?? ""

  const answer = async (incoming: IncomingMessage, response: ServerResponse) => {
    const whole = await received(incoming)
    const request = { ...whole, path: whole.path.slice(prefix.length) }
    requests.push(request)
    const found = route(api, request)
    if (found !== undefined) judge.request(request, found)
    const trouble = double.trouble(request)
    if (trouble?._tag === "Hold") await trouble.until
    if (trouble?._tag === "Answer") {
      return respond(response, trouble.status, trouble.body ?? { message: "trouble" }, trouble)
    }
    const { body, status } =
      found === undefined
        ? { status: 404, body: { message: "Not Found", documentation_url: "x", status: "404" } }
        : found.template.includes("/issues") || found.template.endsWith("{pull_number}")
          ? issuesOf({ api, comments, request, tokens, ...found })
          : doing({ api, installations, pulls, request, tokens, ...found })
    if (found !== undefined) judge.answer({ body, status }, request, found)
    if (trouble?._tag === "Lost") return void incoming.socket.destroy()
    return respond(response, status, body)
  }

  const double: GitHubDouble = {
    tokens,
    comments,
    requests,
    pulls,
    complaints,
    trouble: () => undefined,
    handle: (incoming, response) => {
      if (incoming.url?.startsWith(`${prefix}/`) !== true) return false
      answer(incoming, response).catch((thrown: unknown) => {
        // A closed connection explains the error; any other error is a fault of this fake.
        if (!incoming.socket.destroyed) complaints.push(String(thrown))
        response.destroy()
      })
      return true
    }
  }
  return double
})

interface Found {
  readonly template: string
  readonly names: Readonly<Record<string, string>>
}

/** Validates requests and responses against the description, and records violations. */
const judgeOf = (api: Description, complaints: Array<string>) => {
  const described = absolute(api) as object
  const settings = { strict: false, validateFormats: false, logger: false } as const
  const ajv = new Ajv(settings).addSchema(described, "api")
  // In a URL, a number is text.
  const lenient = new Ajv({ ...settings, coerceTypes: true }).addSchema(described, "api")

  const holds = (by: Ajv, schema: object, value: unknown, what: string) => {
    const check: ValidateFunction = by.compile(absolute(schema) as object)
    if (!check(value)) complaints.push(`${what}: ${by.errorsText(check.errors)}`)
  }
  const operationOf = ({ method }: ApiRequest, { template }: Found) =>
    api.paths[template]![method.toLowerCase()]!

  return {
    request: (request: ApiRequest, found: Found) => {
      const operation = operationOf(request, found)
      const what = `${request.method} ${found.template}`
      const known = (operation.parameters ?? []).map((one) =>
        "$ref" in one ? api.components.parameters[one.$ref.split("/").at(-1)!]! : one
      )
      for (const [place, values] of [
        ["query", request.query],
        ["path", found.names]
      ] as const) {
        const here = known.filter((one) => one.in === place)
        for (const [name, value] of Object.entries(values)) {
          const parameter = here.find((one) => one.name === name)
          if (parameter === undefined) complaints.push(`${what}: no parameter ${name}`)
          // Wrapped in an object, because Ajv coerces only values inside a parent.
          else
            holds(lenient, { properties: { [name]: parameter.schema } }, { [name]: value }, `${what} ${name}`)
        }
        for (const { name, required } of here)
          if (required === true && !(name in values)) complaints.push(`${what}: ${name} is missing`)
      }
      const body = operation.requestBody?.content["application/json"]?.schema
      if (body !== undefined) holds(ajv, body, request.body, what)
      else if (request.body !== undefined) complaints.push(`${what}: unexpected body`)
    },
    answer: (
      answer: { readonly status: number; readonly body: unknown },
      request: ApiRequest,
      found: Found
    ) => {
      const what = `the answer ${answer.status} of ${request.method} ${found.template}`
      const responses = operationOf(request, found).responses
      const described = api.components.responses
      const one = responses[String(answer.status)]
      if (one === undefined) return void complaints.push(`${what}: the description has no such response`)
      const { content } = one.$ref === undefined ? one : described[one.$ref.split("/").at(-1)!]!
      const schema = content?.["application/json"]?.schema
      if (schema !== undefined) holds(ajv, schema, answer.body, what)
    }
  }
}

const paths = [
  "/repos/{owner}/{repo}/issues",
  "/repos/{owner}/{repo}/issues/{issue_number}",
  "/repos/{owner}/{repo}/issues/{issue_number}/comments",
  "/repos/{owner}/{repo}/pulls",
  "/repos/{owner}/{repo}/pulls/{pull_number}",
  "/repos/{owner}/{repo}/installation",
  "/app/installations/{installation_id}/access_tokens",
  "/installation/token"
]

const route = (api: Description, { method, path }: ApiRequest): Found | undefined => {
  for (const template of paths) {
    const names = [...template.matchAll(/\{([a-z_]+)\}/gu)].map(([, name]) => name!)
    const match = new RegExp(`^${template.replace(/\{[a-z_]+\}/gu, "([^/]+)")}$`, "u").exec(path)
    if (match === null || api.paths[template]?.[method.toLowerCase()] === undefined) continue
    return { template, names: Object.fromEntries(names.map((name, at) => [name, match[at + 1]!])) }
  }
  return undefined
}

/** Makes the references of the description absolute. */
const absolute = (schema: unknown): unknown => {
  if (Array.isArray(schema)) return schema.map(absolute)
  if (typeof schema !== "object" || schema === null) return schema
  if ("nullable" in schema && !("type" in schema)) {
    const { nullable, ...rest } = schema
    return nullable === true ? { anyOf: [{ type: "null" }, absolute(rest)] } : absolute(rest)
  }
  return Object.fromEntries(
    Object.entries(schema).map(([name, inner]) => [
      name,
      name === "$ref" && typeof inner === "string" ? `api${inner}` : absolute(inner)
    ])
  )
}

const doing = ({
  api,
  installations,
  names,
  pulls,
  request,
  template,
  tokens
}: {
  readonly api: Description
  readonly tokens: Array<InstallationToken>
  readonly installations: Readonly<Record<number, string>>
  readonly pulls: Array<Pull>
  readonly request: ApiRequest
  readonly template: string
  readonly names: Record<string, string>
}): { readonly status: number; readonly body: unknown } => {
  const example = (name: string) => api.components.examples[name]!.value
  if (template.endsWith("/installation")) return { status: 200, body: { ...example("installation"), id: 77 } }
  if (template.endsWith("/access_tokens")) {
    return issued({ api, installations, request, tokens }, Number(names["installation_id"]))
  }
  if (template === "/installation/token") {
    const found = tokens.find(({ token }) => request.authorization === `Bearer ${token}`)
    if (found !== undefined) found.revoked = true
    return { status: 204, body: undefined }
  }
  const repository = `${names["owner"]}/${names["repo"]}`
  const shown = (pull: Pull, full: boolean) => ({
    ...(full
      ? example("pull-request")
      : (example("pull-request-simple-items") as unknown as Array<object>)[0]),
    number: pull.number,
    // The description's own example violates the description here.
    requested_teams: [],
    html_url: `http://127.0.0.1/${repository}/pull/${pull.number}`,
    title: pull.title,
    draft: pull.draft
  })
  if (request.method === "GET") {
    const { base, head, state = "open" } = request.query
    const found = pulls.filter(
      (pull) =>
        state !== "closed" &&
        pull.repository === repository &&
        (head === undefined || `${names["owner"]}:${pull.head}` === head) &&
        (base === undefined || pull.base === base)
    )
    return { status: 200, body: found.map((pull) => shown(pull, false)) }
  }
  const asked = request.body as Omit<Pull, "number" | "repository">
  if (
    pulls.some(
      (pull) => pull.repository === repository && pull.head === asked.head && pull.base === asked.base
    )
  )
    return { status: 422, body: alreadyThere(names["owner"]!, asked.head) }
  const pull = { ...asked, number: pulls.length + 1, repository }
  pulls.push(pull)
  return { status: 201, body: shown(pull, true) }
}

/** Issues and their comments, for tokens with the right to them. Number 2 is a pull request. */
const issuesOf = ({
  api,
  comments,
  names,
  request,
  template,
  tokens
}: Pick<Parameters<typeof doing>[0], "api" | "names" | "request" | "template" | "tokens"> & {
  readonly comments: Array<IssueComment>
}) => {
  const repository = `${names["owner"]}/${names["repo"]}`
  const token = tokens.find((one) => request.authorization === `Bearer ${one.token}`)
  const right = token?.permissions["issues"]
  const mayUse = request.method === "GET" ? right !== undefined : right === "write"
  if (token === undefined || token.revoked || !mayUse || !token.repositories.includes(repository)) {
    return { status: 404, body: { message: "Not Found", documentation_url: "x", status: "404" } }
  }
  const example = (name: string) => api.components.examples[name]!.value
  const { pull_request, ...issue } = example("issue")
  const shown = (number: number) => ({
    ...issue,
    number,
    title: `${repository} ${number}`,
    ...(number === 2 ? { pull_request } : {})
  })
  if (template.endsWith("{pull_number}")) {
    return { status: 200, body: { ...example("pull-request"), requested_teams: [], number: 2 } }
  }
  if (template.endsWith("/issues")) return { status: 200, body: [shown(1), shown(2)] }
  const number = Number(names["issue_number"])
  if (template.endsWith("{issue_number}")) return { status: 200, body: shown(number) }
  if (request.method === "GET") return { status: 200, body: example("issue-comment-items") }
  const { body } = request.body as { readonly body: string }
  comments.push({ repository, number, body, token: token.token })
  return { status: 201, body: { ...example("issue-comment"), body } }
}

/** Issues a token for repositories of the owner of an installation. */
const issued = (
  {
    api,
    installations,
    request,
    tokens
  }: Pick<Parameters<typeof doing>[0], "api" | "installations" | "request" | "tokens">,
  installationId: number
) => {
  const owner = installations[installationId]
  if (owner === undefined) return { status: 404, body: { message: "Not Found" } }
  const { permissions, repositories } = request.body as {
    readonly permissions: Record<string, string>
    readonly repositories: ReadonlyArray<string>
  }
  const [example] = api.components.examples["installation-token"]!.value["repositories"] as [object]
  // As long as GitHub's tokens, and with dots.
  const scope = Buffer.from(JSON.stringify(request.body)).toString("base64url")
  const token = `ghs_${installationId}_${tokens.length}_${scope}.${"double".repeat(70)}`
  const names = repositories.map((name) => `${owner}/${name}`)
  tokens.push({ token, installationId, repositories: names, permissions, revoked: false })
  const body = {
    token,
    expires_at: "2036-01-01T00:00:00Z",
    permissions: { ...permissions, metadata: "read" },
    repository_selection: "selected",
    repositories: names.map((full_name) => ({ ...example, full_name, name: full_name.split("/")[1] }))
  }
  return { status: 201, body }
}

const alreadyThere = (owner: string, head: string) => ({
  message: "Validation Failed",
  errors: [
    {
      resource: "PullRequest",
      code: "custom",
      message: `A pull request already exists for ${owner}:${head}.`
    }
  ],
  documentation_url: "https://docs.github.com/rest/pulls/pulls#create-a-pull-request",
  status: "422"
})
