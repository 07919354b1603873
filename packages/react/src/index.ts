export * as Agents from "./Agents.ts"
