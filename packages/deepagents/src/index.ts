export * from "./DeepAgentsBackend.ts"
