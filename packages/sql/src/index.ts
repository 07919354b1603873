export * as Database from "./Database.ts"
export * as DatabaseAddress from "./DatabaseAddress.ts"
export * as SqlGrantStore from "./SqlGrantStore.ts"
export * as SqlRunStore from "./SqlRunStore.ts"
