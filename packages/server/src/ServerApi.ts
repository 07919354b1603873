/** Definition of the HTTP API, from which the server, its OpenAPI document and clients are derived. */
import { RunId } from "@cogni/sandbox-core/RunId"
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import { AgentDescriptor } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { Effect, type Layer, Schema } from "effect"
import {
  HttpApi,
  HttpApiEndpoint,
  HttpApiGroup,
  HttpApiMiddleware,
  HttpApiSchema,
  OpenApi
} from "effect/http-api"
import { Access } from "./internal/AccessApi.ts"
import { Approvals } from "./internal/ApprovalsApi.ts"
import { Authentication } from "./internal/Authentication.ts"
import { ChatRequest } from "./internal/ChatRequest.ts"
import * as Problem from "./internal/Problem.ts"
import { Host } from "./internal/HostApi.ts"
import { Readable, Runs } from "./internal/RunsApi.ts"
import { Proposals } from "./internal/ProposalsApi.ts"
import { ThreadsGroup } from "./internal/ThreadsApi.ts"
import { SignIn } from "./internal/SignInApi.ts"

export const layerReadable: Layer.Layer<Readable> = HttpApiMiddleware.layerSchemaErrorTransform(
  Readable,
  ({ cause, kind }) =>
    Effect.fail(
      Problem.make(
        "invalid_request",
        "RequestInvalid",
        `invalid ${kind.toLowerCase()} of the request: ${problemsOf(cause).slice(0, 5).join("; ")}`
      )
    )
)

export const AgentList = Schema.Struct({ agents: Schema.Array(AgentDescriptor) }).annotate({
  identifier: "AgentList"
})

const IdempotencyKey = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(255))

export class Agents extends HttpApiGroup.make("agents")
  .add(
    HttpApiEndpoint.get("list", "/ai/agents", { success: AgentList }).annotateMerge(
      OpenApi.annotations({
        summary: "List the agents",
        description: "Sorted by name. Works without an engine. An entry grants no access. Has an ETag."
      })
    )
  )
  .middleware(Authentication) {}

/** A run that lives on without its caller. */
export const StartedRun = Schema.Struct({
  runId: RunId,
  /** The `Idempotency-Key` had started this run before, so nothing was started now. */
  isRepeated: Schema.Boolean
})
  .annotate({ identifier: "StartedRun" })
  .pipe(HttpApiSchema.status(202))

export class Chat extends HttpApiGroup.make("chat")
  .add(
    HttpApiEndpoint.post("run", "/ai/chat", {
      query: { protocol: Schema.optionalKey(Schema.Literals(["events", "ai-sdk"])) },
      headers: { "idempotency-key": Schema.optionalKey(IdempotencyKey) },
      payload: ChatRequest,
      success: HttpApiSchema.StreamSse({ data: AiEvent }),
      error: Problem.all
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Run an agent and stream its events",
        description:
          "Server-sent events, each an AiEvent, the last one `done`. The run ends when its reader disconnects. With " +
          "`protocol=ai-sdk`, the UI message stream of the AI SDK instead."
      })
    ),
    HttpApiEndpoint.post("start", "/runs", {
      headers: { "idempotency-key": Schema.optionalKey(IdempotencyKey) },
      payload: ChatRequest,
      success: StartedRun,
      error: Problem.all
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Start a run that lives on without its caller",
        description:
          "Answers when the run may start, with its address in `Location`. Follow it by its events, and cancel it with " +
          "DELETE. A request with the `Idempotency-Key` of an earlier run starts nothing, whatever its body, and is " +
          "answered with that run."
      })
    )
  )
  .middleware(Readable)
  .middleware(Authentication) {}

export class ServerApi extends HttpApi.make("cogni-sandbox")
  .add(Agents)
  .add(Chat)
  .add(Runs)
  .add(Approvals)
  .add(Access)
  .add(Proposals)
  .add(ThreadsGroup)
  .add(SignIn)
  .add(Host)
  .prefix("/api/v1")
  .annotateMerge(
    OpenApi.annotations({
      title: "Cogni Sandbox",
      version: "1",
      description:
        "Agents in sealed containers. Callers are other systems, and each authenticates with a grant's token."
    })
  ) {}
