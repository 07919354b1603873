export * as RelayRepositories from "./RelayRepositories.ts"
export * as SandboxServer from "./SandboxServer.ts"
export * as ServerLimits from "./ServerLimits.ts"
