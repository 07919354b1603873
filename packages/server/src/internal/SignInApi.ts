/** Endpoints of the page's sign-in. */
import { GrantPermissions } from "@cogni/sandbox-graph-provider/grants/GrantPermissions"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Authentication } from "./Authentication.ts"
import { Access } from "./EndpointAccess.ts"
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
    /** Whether the grant may start, cancel, deliver and decide. Its other permissions decide about each. */
    mayWrite: Schema.Boolean,
    expiresAt: Schema.NullOr(Schema.String)
  })
}).annotate({ identifier: "SignedIn" })

export class SignIn extends HttpApiGroup.make("signIn")
  .add(
    HttpApiEndpoint.post("signIn", "/sign-in", { success: SignedIn })
      .annotateMerge(
        OpenApi.annotations({
          summary: "Sign a browser in",
          description:
            "Opens a sign-in for the token of the Authorization header, and sets a cookie with its own secret. Other " +
            "requests may have the cookie instead of that header, if they also have the header x-cogni-csrf with the " +
            "value that this answer contains."
        })
      )
      .annotate(Access, "read"),
    HttpApiEndpoint.get("get", "/sign-in", { success: SignedIn }).annotateMerge(
      OpenApi.annotations({ summary: "Get the grant of the caller, without its token" })
    )
  )
  .middleware(Authentication)
  .add(
    HttpApiEndpoint.delete("signOut", "/sign-in", {
      success: HttpApiSchema.NoContent,
      error: [Problem.Denied, Problem.Unavailable]
    })
      .annotateMerge(
        OpenApi.annotations({
          summary: "Sign the browser out",
          description:
            "Ends the sign-in, and removes its cookie whatever the answer. Needs the header x-cogni-csrf, and no " +
            "valid grant: it works for a revoked or expired one too."
        })
      )
      .annotate(Access, "read")
  ) {}
