/**
 * Whether an endpoint changes something, and so refuses a read-only grant. Pure.
 *
 * An endpoint that is not a `GET` changes something, unless it says otherwise. So a new endpoint is closed to read-only
 * grants by default.
 */
import * as ExecutionGrant from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import { Context, Effect } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"
import * as Problem from "./Problem.ts"

/** Annotation of an endpoint: `read` if a read-only grant may use it. */
export const Access = Context.Reference<"read" | undefined>("@cogni/sandbox-server/EndpointAccess", {
  defaultValue: () => undefined
})

export const isReading = ({
  annotations,
  method
}: Pick<HttpApiEndpoint.Top, "annotations" | "method">): boolean =>
  method === "GET" || Context.get(annotations, Access) === "read"

/** Fails if the endpoint changes something and the grant is read-only. */
export const check = (grant: ExecutionGrant.ExecutionGrant, endpoint: HttpApiEndpoint.Top) =>
  isReading(endpoint)
    ? Effect.void
    : Effect.fromResult(ExecutionGrant.checkWriting(grant)).pipe(
        Effect.mapError(({ _tag, message }) => Problem.make("authz_denied", _tag, message))
      )
