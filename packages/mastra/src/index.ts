export * from "./MastraSandbox.ts"
export * from "./MastraSandboxProvider.ts"
