export * from "./Closed.ts"
export * from "./MemoryProgram.ts"
export * from "./Sandbox.ts"
export * from "./SandboxHost.ts"
