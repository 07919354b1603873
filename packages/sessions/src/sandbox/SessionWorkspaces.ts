/**
 * Port that provides the workspace directory of a session.
 *
 * A temporary workspace ends with its container. A persistent one is available again, with its content, when the
 * session returns: after it was idle, or after the engine or this process was restarted.
 */
import type { HostFailed } from "@cogni/sandbox-core/SandboxReason"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Context, Effect, Layer } from "effect"
import type { SessionId } from "./SessionId.ts"

export class SessionWorkspaces extends Context.Service<
  SessionWorkspaces,
  {
    /** Returns the workspace of a session, and creates it on first use. */
    readonly of: (
      sessionId: SessionId
    ) => Effect.Effect<NonNullable<SandboxSpecInput["workspace"]>, HostFailed>
    /** Removes the workspace of a session without a container. Has no effect if it does not exist. */
    readonly forget: (sessionId: SessionId) => Effect.Effect<void, HostFailed>
  }
>()("@cogni/sandbox-sessions/SessionWorkspaces") {}

/** Each container gets a new, temporary workspace. */
export const layerTemporary: Layer.Layer<SessionWorkspaces> = Layer.succeed(SessionWorkspaces, {
  of: () => Effect.succeed({ type: "temporary" }),
  forget: () => Effect.void
})
