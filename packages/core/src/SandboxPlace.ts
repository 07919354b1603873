/**
 * Places that a sandbox sees: its workspace, its inputs, and its socket to a model.
 */
import { socketTarget } from "./internal/SocketPlace.ts"

/** Path of the proxy's socket in the sandbox, which the bridge connects to. */
export const socketPath = `${socketTarget}/llm.sock`

/** Base URL of the model, as the agent sees it. */
export const baseUrl = "http://localhost:8080"

export const target = "/workspace"

/** Where inputs are mounted, besides `/workspace/.cogni`. */
export const inputsTarget = "/cogni"
