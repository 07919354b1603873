/** Endpoints of the page's sign-in. */
import { GrantPermissions } from "@cogni/sandbox-graph-provider/grants/GrantPermissions"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Authentication } from "./Authentication.ts"
import * as Problem from "./Problem.ts"

/** The grant of a page, without its token. */
export const SignedIn = Schema.Struct({
  /** Value of the header `x-cogni-csrf`, which each request with the cookie must have. */
  csrf: Schema.String,
  grant: Schema.Struct({
    id: Schema.String,
    userId: Schema.String,
    billingAccountId: Schema.String,
    scopes: Schema.Array(Schema.String),
    allowSandbox: Schema.Boolean,
    permissions: GrantPermissions,
    expiresAt: Schema.NullOr(Schema.String)
  })
}).annotate({ identifier: "SignedIn" })

export class SignIn extends HttpApiGroup.make("signIn")
  .add(
    HttpApiEndpoint.post("signIn", "/sign-in", { success: SignedIn }).annotateMerge(
      OpenApi.annotations({
        summary: "Let a browser keep the token",
        description:
          "Sets a cookie with the token of the Authorization header. Other requests may have the cookie instead of " +
          "that header, if they also have the header x-cogni-csrf with the value that this answer contains."
      })
    ),
    HttpApiEndpoint.get("get", "/sign-in", { success: SignedIn }).annotateMerge(
      OpenApi.annotations({ summary: "Get the grant of the caller, without its token" })
    )
  )
  .middleware(Authentication)
  .add(
    HttpApiEndpoint.delete("signOut", "/sign-in", {
      success: HttpApiSchema.NoContent,
      error: Problem.Denied
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Let the browser remove the token",
        description:
          "Needs the header x-cogni-csrf, and no valid grant: it works for a revoked or expired one too."
      })
    )
  ) {}
