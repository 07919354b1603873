/** The port to what sessions execute in: their sandboxes, and the host where somebody has chosen to have it. */
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { Sandbox } from "@cogni/sandbox-core/SandboxRunner"
import { Context, type Effect, type Option, type Scope } from "effect"
import type { SessionRefused } from "../sandbox/SandboxManager.ts"

/** A sandbox of a session, or anything that stands for one. */
export interface SessionExecutor
  extends Executor, Partial<Pick<Sandbox, "runId" | "llmSocketPath" | "ended">> {}

/** Where sessions execute. */
export class Executors extends Context.Service<
  Executors,
  {
    /** The session's own sandbox, in use until the scope closes; made where there is none. */
    readonly sandboxFor: (
      key: string
    ) => Effect.Effect<SessionExecutor, SandboxError | SessionRefused, Scope.Scope>
    /** Absent unless somebody has chosen to have one. */
    readonly host: Option.Option<Executor>
  }
>()("@cogni/sandbox-sessions/Executors") {}
