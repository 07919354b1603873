/**
 * A GitHub that is only an API, as GitHub's own description has it: every request is held to that description, and so
 * is every answer. What it does not describe does not exist here.
 */
import { Ajv, type ValidateFunction } from "ajv"
import { Effect } from "effect"
import { createRequire } from "node:module"
import type { IncomingMessage, ServerResponse } from "node:http"

/** One request, as it came. */
export interface ApiRequest {
  readonly method: string
  /** Without the prefix. */
  readonly path: string
  readonly query: Readonly<Record<string, string>>
  readonly authorization: string | undefined
  readonly body: unknown
}

/** Instead of an answer, or of its arrival. */
export type ApiTrouble =
  | {
      readonly _tag: "Answer"
      readonly status: number
      readonly body?: unknown
      readonly headers?: Record<string, string>
    }
  /** It is done, and nobody hears of it. */
  | { readonly _tag: "Lost" }

interface Pull {
  readonly number: number
  readonly repository: string
  readonly head: string
  readonly base: string
  readonly title: string
  readonly body: string
  readonly draft: boolean
}

export interface GitHubDouble {
  readonly requests: ReadonlyArray<ApiRequest>
  readonly pulls: ReadonlyArray<Pull>
  /** What was not as the description has it; of an honest client, nothing. */
  readonly complaints: ReadonlyArray<string>
  trouble: (request: ApiRequest) => ApiTrouble | undefined
  /** True when the request was for this API, and is answered. */
  readonly handle: (request: IncomingMessage, response: ServerResponse) => boolean
}

interface Operation {
  readonly parameters?: ReadonlyArray<{
    readonly $ref?: string
    readonly name?: string
    readonly in?: string
  }>
  readonly requestBody?: { readonly content: Record<string, { readonly schema: object }> }
  readonly responses: Record<string, { readonly content?: Record<string, { readonly schema: object }> }>
}

interface Description {
  readonly paths: Record<string, Record<string, Operation>>
  readonly components: {
    readonly parameters: Record<string, { readonly name: string; readonly in: string }>
    readonly examples: Record<string, { readonly value: Record<string, unknown> }>
  }
}

/** Twelve megabytes: loaded when somebody asks, and kept by Node. */
const description = Effect.sync((): Description =>
  createRequire(import.meta.url)("@octokit/openapi/generated/api.github.com.json")
)

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** `prefix`: where the API lies on its server, such as `/api/v3`. */
export const make = Effect.fnUntraced(function* (options: { readonly prefix?: string } = {}) {
  const api = yield* description
  const ajv = new Ajv({ strict: false, validateFormats: false, logger: false }).addSchema(
    absolute(api) as object,
    "api"
  )
  const requests: Array<ApiRequest> = []
  const pulls: Array<Pull> = []
  const complaints: Array<string> = []

  const holds = (schema: object, value: unknown, what: string) => {
    const check: ValidateFunction = ajv.compile(absolute(schema) as object)
    if (!check(value)) complaints.push(`${what}: ${ajv.errorsText(check.errors)}`)
  }

  const answerOf = (request: ApiRequest, template: string, names: Record<string, string>) => {
    const operation = api.paths[template]![request.method.toLowerCase()]!
    const known = new Set(
      (operation.parameters ?? [])
        .map((one) =>
          one.$ref === undefined ? one : api.components.parameters[one.$ref.split("/").at(-1)!]!
        )
        .filter((one) => one.in === "query")
        .map(({ name }) => name)
    )
    for (const name of Object.keys(request.query))
      if (!known.has(name)) complaints.push(`${request.method} ${template}: no parameter ${name}`)
    const body = operation.requestBody?.content["application/json"]?.schema
    if (body !== undefined) holds(body, request.body, `${request.method} ${template}`)
    const answer = doing({ api, pulls, request, template, names })
    const described = operation.responses[String(answer.status)]?.content?.["application/json"]?.schema
    if (described !== undefined) holds(described, answer.body, `the answer of ${request.method} ${template}`)
    return answer
  }

  const respond = async (incoming: IncomingMessage, response: ServerResponse, url: URL, path: string) => {
    const pieces: Array<Buffer> = []
    for await (const piece of incoming) pieces.push(piece as Buffer)
    const text = Buffer.concat(pieces).toString("utf8")
    const request: ApiRequest = {
      method: incoming.method ?? "",
      path,
      query: Object.fromEntries(url.searchParams),
      authorization: incoming.headers.authorization,
      body: text === "" ? undefined : JSON.parse(text)
    }
    requests.push(request)
    const trouble = double.trouble(request)
    const found = route(api, request)
    const answer =
      trouble?._tag === "Answer"
        ? { status: trouble.status, body: trouble.body ?? { message: "trouble" }, headers: trouble.headers }
        : found === undefined
          ? { status: 404, body: { message: "Not Found", documentation_url: "x", status: "404" } }
          : answerOf(request, found.template, found.names)
    if (trouble?._tag === "Lost") return incoming.socket.destroy()
    response
      .writeHead(answer.status, {
        "content-type": "application/json",
        ...("headers" in answer ? answer.headers : {})
      })
      .end(JSON.stringify(answer.body))
  }

  const double: GitHubDouble = {
    requests,
    pulls,
    complaints,
    trouble: () => undefined,
    handle: (incoming, response) => {
      const url = new URL(incoming.url ?? "/", "http://localhost")
      const prefix = options.prefix ?? ""
      if (!url.pathname.startsWith(`${prefix}/`)) return false
      void respond(incoming, response, url, url.pathname.slice(prefix.length))
      return true
    }
  }
  return double
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const paths = [
  "/repos/{owner}/{repo}/pulls",
  "/repos/{owner}/{repo}/installation",
  "/app/installations/{installation_id}/access_tokens"
]

const route = (api: Description, { method, path }: ApiRequest) => {
  for (const template of paths) {
    const names = [...template.matchAll(/\{([a-z_]+)\}/gu)].map(([, name]) => name!)
    const match = new RegExp(`^${template.replace(/\{[a-z_]+\}/gu, "([^/]+)")}$`, "u").exec(path)
    if (match === null || api.paths[template]?.[method.toLowerCase()] === undefined) continue
    return { template, names: Object.fromEntries(names.map((name, at) => [name, match[at + 1]!])) }
  }
  return undefined
}

/** References within the description, seen from outside it. */
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
  names,
  pulls,
  request,
  template
}: {
  readonly api: Description
  readonly pulls: Array<Pull>
  readonly request: ApiRequest
  readonly template: string
  readonly names: Record<string, string>
}): { readonly status: number; readonly body: unknown } => {
  const example = (name: string) => api.components.examples[name]!.value
  if (template.endsWith("/installation")) return { status: 200, body: { ...example("installation"), id: 77 } }
  if (template.endsWith("/access_tokens")) {
    const asked = request.body as {
      readonly permissions: object
      readonly repositories: ReadonlyArray<string>
    }
    const token = `ghs_77_${Buffer.from(JSON.stringify(asked)).toString("base64url")}.double`
    const body = {
      token,
      expires_at: "2036-01-01T00:00:00Z",
      permissions: asked.permissions,
      repository_selection: "selected"
    }
    return { status: 201, body }
  }
  const repository = `${names["owner"]}/${names["repo"]}`
  const shown = (pull: Pull, full: boolean) => ({
    ...(full
      ? example("pull-request")
      : (example("pull-request-simple-items") as unknown as Array<object>)[0]),
    number: pull.number,
    // The description's own example is not as the description has it here.
    requested_teams: [],
    html_url: `http://127.0.0.1/${repository}/pull/${pull.number}`,
    title: pull.title,
    draft: pull.draft
  })
  if (request.method === "GET") {
    const { base, head } = request.query
    const found = pulls.filter(
      (pull) =>
        pull.repository === repository && `${names["owner"]}:${pull.head}` === head && pull.base === base
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
