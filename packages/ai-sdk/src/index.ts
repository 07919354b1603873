export * from "./SandboxSession.ts"
