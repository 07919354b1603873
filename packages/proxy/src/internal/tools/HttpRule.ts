/**
 * Decides which HTTP requests a tool may send, by an allowlist of the operator. Pure.
 *
 * A request must match the origin, the method and the path of one rule. URLs that two programs
 * could read differently are not allowed: those with users and, if the rule has paths, those with ambiguous paths. The
 * query is not compared.
 */
import * as GrantPattern from "@cogni/sandbox-core/GrantPattern"
import { Result, Schema } from "effect"

export const Method = Schema.Literals(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])

export type Method = typeof Method.Type

/** Maximum rules of one host. */
const rulesMax = 64

/** Scheme, host and port of a server. */
export const Origin = Schema.String.check(
  Schema.makeFilter((text: string) =>
    /^https?:\/\//u.test(text) && URL.canParse(text) && new URL(text).origin === text
      ? undefined
      : "Expected https://HOST or https://HOST:PORT in lower case"
  )
)

/** Header that carries a credential. */
export const HeaderName = Schema.String.check(
  Schema.isPattern(/^(?:authorization|private-token|x-[a-z0-9-]{1,60}|api-key)$/u, {
    expected: "authorization, api-key, private-token or x-NAME, in lower case"
  })
)

/** One permission: an origin, and what may be requested there. */
export const HttpRule = Schema.Struct({
  /** Such as `https://api.example.com`. `http` needs {@link HttpRule.allowPrivateAddresses}. */
  origin: Origin,
  methods: Schema.Array(Method).check(Schema.isMinLength(1), Schema.isMaxLength(6)),
  /** Patterns for paths: `*` matches any characters except `/`, and `**` any. Default: all paths. */
  paths: Schema.optionalKey(
    Schema.Array(
      Schema.String.check(
        Schema.isMaxLength(500),
        Schema.isPattern(/^\/[\x21-\x7e]*$/u, { expected: "a path that begins with /" })
      )
    ).check(Schema.isMinLength(1), Schema.isMaxLength(64))
  ),
  /** Connection whose credential the host adds. Its server must be the origin. Default: none. */
  connection: Schema.optionalKey(Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))),
  /** Header of the credential. Default: `authorization`, as a bearer token. Others get the credential as it is. */
  header: Schema.optionalKey(HeaderName),
  /** Whether its addresses may be private or belong to this host (default false). */
  allowPrivateAddresses: Schema.optionalKey(Schema.Boolean)
}).check(
  Schema.makeFilter(({ allowPrivateAddresses = false, connection, header, origin }) => {
    if (origin.startsWith("http:") && !allowPrivateAddresses) return "http needs allowPrivateAddresses"
    return header !== undefined && connection === undefined ? "header needs connection" : undefined
  })
)

export type HttpRule = typeof HttpRule.Type

export const HttpRules = Schema.Array(HttpRule).check(Schema.isMaxLength(rulesMax))

/** A request that a rule allows. */
export interface Allowed {
  readonly rule: HttpRule
  readonly url: URL
}

/** Returns the rule that allows a request, or why it is not allowed. */
export const find = (
  rules: ReadonlyArray<HttpRule>,
  method: Method,
  text: string
): Result.Result<Allowed, string> => {
  if (!URL.canParse(text)) return Result.fail("the URL is invalid")
  const url = new URL(text)
  if (url.username !== "" || url.password !== "") return Result.fail("the URL contains a user")
  url.hash = ""
  const rule = rules.find(
    (one) => one.origin === url.origin && one.methods.includes(method) && allowsPath(one, url.pathname)
  )
  if (rule === undefined)
    return Result.fail(`this host does not allow ${method} for this URL. Allowed: ${describe(rules)}`)
  // A person may have to approve what the agent wrote. It must be what is sent.
  return url.href === text
    ? Result.succeed({ rule, url })
    : Result.fail(`write the URL as it is requested: ${url.href}`)
}

const allowsPath = ({ paths }: HttpRule, path: string): boolean =>
  paths === undefined || (!isAmbiguous(path) && GrantPattern.matchesAny(paths, path))

/**
 * Whether a server may resolve a path to another one after it was compared: it decodes escapes, removes parameters
 * after `;` or control characters, or takes similar characters for dots and slashes.
 */
const isAmbiguous = (path: string): boolean => {
  const decoded = Result.try(() => decodeURIComponent(path))
  // Invalid UTF-8, such as an overlong dot.
  if (Result.isFailure(decoded)) return true
  const text = decoded.success.normalize("NFKC")
  return (
    /[\p{Cc}\p{Cf};%\\]|\/\//u.test(text) ||
    /%2[ef]/iu.test(path) ||
    text.split("/").length !== path.split("/").length ||
    text.split("/").some((segment) => /^\s*(?:\.\s*)(?:\.|$)/u.test(segment))
  )
}

/** Longest description of all rules, in characters. */
const describedCharactersMax = 2000

/** Describes the rules for an agent. */
export const describe = (rules: ReadonlyArray<HttpRule>): string => {
  const text = rules
    .map(
      ({ methods, origin, paths = ["/**"] }) =>
        `${methods.join(" ")} ${paths.map((path) => origin + path).join(" ")}`
    )
    .join("; ")
  return text.length > describedCharactersMax ? `${text.slice(0, describedCharactersMax)}…` : text
}
