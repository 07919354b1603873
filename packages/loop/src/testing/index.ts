export * as ToolContract from "./ToolContract.ts"
