export * as GitRelay from "./GitRelay.ts"
