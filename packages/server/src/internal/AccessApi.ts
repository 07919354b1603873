/** Endpoints of who may use an account: its grants, its connections, and the uses of its connections. No secret. */
import { Connection } from "@cogni/sandbox-connections/Connection"
import { ConnectionUse } from "@cogni/sandbox-connections/ConnectionUse"
import { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import { Schema, Struct } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Authentication } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import { pageQuery, Readable } from "./RunsApi.ts"

const State = Schema.Literals(["active", "expired", "revoked"])

const next = Schema.optional(Schema.String)

/** A grant of the caller's account, without its token. */
export const GrantView = ExecutionGrant.mapFields(Struct.omit(["billingAccountId"]))
  .mapFields(
    Struct.assign({
      state: State,
      /** Start of its last run. Absent: it has started none. */
      lastRunAt: Schema.optional(Schema.String)
    })
  )
  .annotate({ identifier: "Grant" })

export type GrantView = typeof GrantView.Encoded

export const GrantPage = Schema.Struct({ grants: Schema.Array(GrantView), next }).annotate({
  identifier: "GrantPage"
})

/** A connection of the caller's account. Its credentials are not even read. */
export const ConnectionView = Connection.mapFields(Struct.omit(["billingAccountId", "means"]))
  .mapFields(
    Struct.assign({
      /** Where its credentials come from, such as `github_app`. */
      kind: Schema.String,
      state: State,
      /** Its last use among the account's last 1000. */
      lastUsedAt: Schema.optional(Schema.String)
    })
  )
  .annotate({ identifier: "Connection" })

export type ConnectionView = typeof ConnectionView.Encoded

export const ConnectionPage = Schema.Struct({ connections: Schema.Array(ConnectionView), next }).annotate({
  identifier: "ConnectionPage"
})

/** A request of a credential, or the end of its lease. */
export const UseView = ConnectionUse.mapFields(Struct.omit(["billingAccountId"])).annotate({
  identifier: "ConnectionUse"
})

export type UseView = typeof UseView.Encoded

export const UsePage = Schema.Struct({ uses: Schema.Array(UseView), next }).annotate({
  identifier: "UsePage"
})

const errors = [Problem.Denied, Problem.NotFound, Problem.Unavailable] as const

const needs = "Needs a grant with the right to see grants (`grants create --see-grants`)."

export class Access extends HttpApiGroup.make("access")
  .add(
    HttpApiEndpoint.get("grants", "/grants", {
      query: pageQuery,
      success: GrantPage,
      error: errors
    }).annotateMerge(
      OpenApi.annotations({
        summary: "List the grants of the grant's account, newest first",
        description: `Also expired and revoked ones, never a token. ${needs}`
      })
    ),
    HttpApiEndpoint.get("connections", "/connections", {
      query: pageQuery,
      success: ConnectionPage,
      error: errors
    }).annotateMerge(
      OpenApi.annotations({
        summary: "List the connections of the grant's account",
        description: `Live ones first, then the newest removed ones, never a credential. ${needs}`
      })
    ),
    HttpApiEndpoint.get("uses", "/connections/:id/uses", {
      params: { id: Schema.String.annotate({ description: "the ID of the connection" }) },
      query: pageQuery,
      success: UsePage,
      error: errors
    }).annotateMerge(
      OpenApi.annotations({
        summary: "List the uses of a connection, newest first",
        description: `Its last 1000 entries of the audit. ${needs}`
      })
    )
  )
  .middleware(Readable)
  .middleware(Authentication) {}
