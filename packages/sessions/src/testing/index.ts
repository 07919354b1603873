export * as ExecutorContract from "./ExecutorContract.ts"
