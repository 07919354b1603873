export * from "./SandboxClient.ts"
