/**
 * The port through which a session gets the directory that is its workspace.
 *
 * A temporary one goes with the container. One that is kept is there again, with all that was in it, when the session
 * comes back: after it was idle, after the engine was restarted, after this process was.
 */
import type { WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Context, Effect, Layer } from "effect"
import type { SessionId } from "./SessionId.ts"

export class SessionWorkspaces extends Context.Service<
  SessionWorkspaces,
  {
    /** Made at the first time. */
    readonly of: (
      sessionId: SessionId
    ) => Effect.Effect<NonNullable<SandboxSpecInput["workspace"]>, WorkspaceFailed>
    /** Remove what is kept of a session that has no container. Of one that has nothing: nothing. */
    readonly forget: (sessionId: SessionId) => Effect.Effect<void, WorkspaceFailed>
  }
>()("@cogni/sandbox-sessions/SessionWorkspaces") {}

/** Each container has a fresh one. */
export const layerTemporary: Layer.Layer<SessionWorkspaces> = Layer.succeed(SessionWorkspaces, {
  of: () => Effect.succeed({ type: "temporary" }),
  forget: () => Effect.void
})
