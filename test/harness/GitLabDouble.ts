/**
 * A fake of GitLab's API: the merge requests of a project, by branch, and the token of a request. GitLab publishes
 * documentation without a schema, so this fake validates nothing. Tests check the recorded requests instead.
 *
 * @see {@link https://docs.gitlab.com/api/merge_requests/}
 */
import { Effect, type Scope } from "effect"
import type { IncomingMessage, ServerResponse } from "node:http"
import { type ApiRequest, received, respond, serve } from "./LocalServer.ts"

/** Response that replaces the normal one. */
export interface ApiTrouble {
  readonly status: number
  readonly text?: string
  readonly headers?: Record<string, string>
}

export interface MergeRequest {
  readonly iid: number
  readonly web_url: string
  readonly source_project_id: number
  readonly target_project_id: number
  readonly source_branch: string
  readonly target_branch: string
}

export interface GitLabDouble {
  readonly url: string
  readonly requests: ReadonlyArray<ApiRequest>
  readonly opened: Array<MergeRequest>
  /** Description of the token of a request. */
  token: {
    readonly active: boolean
    readonly scopes: ReadonlyArray<string>
    readonly expires_at: string | null
  }
  trouble: (request: ApiRequest) => ApiTrouble | undefined
}

const path = /^\/api\/v4\/projects\/[^/]+\/merge_requests$/u

export const acquire: Effect.Effect<GitLabDouble, never, Scope.Scope> = Effect.gen(function* () {
  const requests: Array<ApiRequest> = []
  const opened: Array<MergeRequest> = []

  const answer = (request: ApiRequest): readonly [status: number, body: unknown] => {
    if (request.path === "/api/v4/personal_access_tokens/self") return [200, { id: 1, ...double.token }]
    if (!path.test(request.path)) return [404, { message: "404 Project Not Found" }]
    if (request.method === "GET") {
      const { source_branch, target_branch } = request.query
      return [
        200,
        opened.filter((one) => one.source_branch === source_branch && one.target_branch === target_branch)
      ]
    }
    const asked = request.body as Pick<MergeRequest, "source_branch" | "target_branch">
    const there = opened.find(
      (one) => one.source_branch === asked.source_branch && one.source_project_id === one.target_project_id
    )
    if (there !== undefined) {
      const said = `Another open merge request already exists for this source branch: !${there.iid}`
      return [409, { message: [said] }]
    }
    const made: MergeRequest = {
      ...asked,
      iid: opened.length + 1,
      web_url: `https://gitlab.example/acme/app/-/merge_requests/${opened.length + 1}`,
      source_project_id: 5,
      target_project_id: 5
    }
    opened.push(made)
    return [201, made]
  }

  const handle = async (incoming: IncomingMessage, response: ServerResponse) => {
    const request = await received(incoming)
    requests.push(request)
    const trouble = double.trouble(request)
    if (trouble !== undefined) return respond(response, trouble.status, {}, trouble)
    return respond(response, ...answer(request))
  }

  const url = yield* serve((incoming, response) => {
    handle(incoming, response).catch(() => response.destroy())
  })
  const double: GitLabDouble = {
    url,
    requests,
    opened,
    token: { active: true, scopes: ["api"], expires_at: null },
    trouble: () => undefined
  }
  return double
})
