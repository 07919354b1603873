/**
 * Gitbeaker as this package uses it: its resources, over requests of our own. Its own requests follow
 * redirects, read answers of any length, and try ten times within a quarter of a second.
 */
import type { Gitlab as Client } from "@gitbeaker/rest"
import { type Asking, StatusRefused } from "./ForgeAnswers.ts"

export interface GitLabClientOptions {
  /** Scheme, host and port. */
  readonly host: string
  readonly asking: Asking
  readonly token: string
}

export type GitLabClient = InstanceType<typeof Client>

/** What Gitbeaker hands on, as far as it matters here. */
interface Service {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly authHeaders: Readonly<Record<string, () => Promise<string>>>
}

interface Request {
  readonly searchParams?: Readonly<Record<string, unknown>>
  readonly body?: unknown
}

export const make = async ({ asking, host, token }: GitLabClientOptions): Promise<GitLabClient> => {
  const { Gitlab } = await import("@gitbeaker/rest")
  const requesterFn = (service: Service) => {
    const send =
      (method: string) =>
      async (endpoint: string, { body, searchParams = {} }: Request = {}) => {
        const url = new URL(endpoint, service.url)
        for (const [name, value] of Object.entries(searchParams))
          if (value !== undefined) url.searchParams.set(snakeCase(name), String(value))
        const headers = new Headers(service.headers)
        for (const [name, value] of Object.entries(service.authHeaders)) headers.set(name, await value())
        if (body !== undefined) headers.set("content-type", "application/json")
        const response = await asking.fetch(url, {
          method,
          headers,
          ...(body === undefined ? {} : { body: JSON.stringify(renamed(body)) })
        })
        const text = await response.text()
        if (!response.ok) throw new StatusRefused(messageOf(text), response)
        return { status: response.status, headers: Object.fromEntries(response.headers), body: parsed(text) }
      }
    const never = async () => {
      throw new Error("nothing is changed or removed at a GitLab")
    }
    return { get: send("GET"), post: send("POST"), put: never, patch: never, delete: never }
  }
  // Its types promise a body of whatever form is asked for; here each is decoded by a schema.
  return new Gitlab({ host, oauthToken: token, requesterFn: requesterFn as never })
}

const snakeCase = (name: string): string => name.replace(/[A-Z]/gu, (letter) => `_${letter.toLowerCase()}`)

const renamed = (body: unknown): unknown =>
  Object.fromEntries(Object.entries(body ?? {}).map(([name, value]) => [snakeCase(name), value]))

/** What is no JSON is not what GitLab says, whatever it is. */
const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** A text, a list of them, or lists by field. */
const messageOf = (text: string): string => {
  const body = parsed(text)
  if (typeof body !== "object" || body === null) return text
  const said = "error" in body ? body.error : "message" in body ? body.message : text
  return typeof said === "string" ? said : JSON.stringify(said)
}
