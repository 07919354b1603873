/** Port to the executors of sessions: their sandboxes, and the host if the operator configured it. */
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { Sandbox } from "@cogni/sandbox-core/SandboxRunner"
import { Context, type Effect, type Option, type Scope } from "effect"
import type { SessionRefused } from "../sandbox/SandboxManager.ts"

/** A session's sandbox, or a substitute for one. */
export interface SessionExecutor
  extends Executor, Partial<Pick<Sandbox, "runId" | "llmSocketPath" | "ended">> {}

/** Provides the executors of sessions. */
export class Executors extends Context.Service<
  Executors,
  {
    /** Returns the session's sandbox, in use until the scope closes. Creates it if necessary. */
    readonly sandboxFor: (
      key: string
    ) => Effect.Effect<SessionExecutor, SandboxError | SessionRefused, Scope.Scope>
    /** Host executor; absent unless the operator configured one. */
    readonly host: Option.Option<Executor>
  }
>()("@cogni/sandbox-sessions/Executors") {}
