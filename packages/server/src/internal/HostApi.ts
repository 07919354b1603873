/** Endpoint of the host, for a worker that takes runs on its behalf. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Authentication } from "./Authentication.ts"

/** The host of the server. */
const HostView = Schema.Struct({
  /** ID of its state directory. */
  hostId: Schema.optionalKey(Schema.String),
  /** Graphs whose image is missing. */
  missingGraphIds: Schema.Array(Schema.String)
}).annotate({ identifier: "HostView" })

export class Host extends HttpApiGroup.make("host")
  .add(
    HttpApiEndpoint.get("get", "/host", { success: HostView }).annotateMerge(
      OpenApi.annotations({
        summary: "Get the ID of this host, and which agents it cannot run now",
        description: "For a program that places runs on hosts, such as cogni-sandbox worker."
      })
    )
  )
  .middleware(Authentication) {}
