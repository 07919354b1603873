export * as Agents from "./Agents.ts"
export * as AgentsClient from "./AgentsClient.ts"
