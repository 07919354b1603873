/**
 * Defines the proxy's own errors and the headers that it removes from an upstream's answers.
 *
 * Pure, and the same for every proxy. Errors have OpenAI's shape, so that an agent shows them like those of its model.
 * Each one says what to do.
 */
import * as RoutePolicy from "./RoutePolicy.ts"

export interface ProxyError {
  /** HTTP statuses with this error. The first one is the usual one. */
  readonly statuses: readonly [number, ...Array<number>]
  readonly code: string
  readonly message: string
}

const allowed = RoutePolicy.routes.map(({ method, path }) => `${method} ${path}`).join(", ")

export const errors: ReadonlyArray<ProxyError> = [
  {
    statuses: [400, 414, 431, 494, 501, 505],
    code: "bad_request",
    message: "The sandbox's proxy could not read this request. Send plain HTTP/1.1 with a JSON body."
  },
  {
    statuses: [403, 404],
    code: "path_not_allowed",
    message: `The sandbox's proxy does not allow this path. It allows ${allowed}.`
  },
  {
    statuses: [405],
    code: "method_not_allowed",
    message: `The sandbox's proxy does not allow this method. It allows ${allowed}.`
  },
  {
    statuses: [413],
    code: "request_too_large",
    message: "The request is larger than the sandbox's proxy allows. Shorten the conversation."
  },
  {
    statuses: [408],
    code: "request_timeout",
    message: "The request took too long to arrive at the sandbox's proxy. Send it again."
  },
  {
    statuses: [429],
    code: "too_many_requests",
    message: "The sandbox has too many requests at once. Wait for some to end, then try again."
  },
  {
    statuses: [500, 502, 503],
    code: "upstream_unreachable",
    message:
      "The model's upstream cannot be reached from the host. The operator must check that it is running and that its URL is correct."
  },
  {
    statuses: [504],
    code: "upstream_timeout",
    message: "The model's upstream did not answer in time. Try again, or ask for less."
  }
]

/** Returns the type of OpenAI's error with this status. */
export const typeOf = (status: number): "invalid_request_error" | "rate_limit_error" | "api_error" =>
  status === 429 ? "rate_limit_error" : status < 500 ? "invalid_request_error" : "api_error"

const withPrefix = (prefix: string, names: string): ReadonlyArray<string> =>
  names
    .trim()
    .split(/\s+/u)
    .map((name) => `${prefix}${name}`)

/** Response headers that are removed, because they reveal the upstream, its keys or its costs to the agent. */
export const hiddenHeaders: ReadonlyArray<string> = [
  ...withPrefix(
    "x-litellm-",
    `adapter applied-guardrails applied-policies attempted-fallbacks attempted-retries cache-key call-id
     callback-duration-ms end-user fastest_response_batch_completion key-alias key-max-budget key-rpm-limit key-spend
     key-tpm-limit max-fallbacks max-retries model-api-base model-group model-id model-name model-region
     overhead-duration-ms response-cost response-cost-discount-amount response-cost-margin-amount
     response-cost-margin-percent response-cost-original response-duration-ms semantic-similarity stream-timeout
     team-alias team-id timeout user-id version`
  ),
  ...withPrefix(
    "llm_provider-",
    `anthropic-organization-id cf-ray date openai-organization openai-processing-ms openai-project openai-version
     request-id server set-cookie via x-ratelimit-limit-requests x-ratelimit-limit-tokens
     x-ratelimit-remaining-requests x-ratelimit-remaining-tokens x-ratelimit-reset-requests x-ratelimit-reset-tokens
     x-request-id`
  ),
  ...withPrefix(
    "",
    `anthropic-organization-id location openai-organization openai-project server set-cookie via www-authenticate
     x-powered-by x-request-id`
  )
]
