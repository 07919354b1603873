export * as GrantStoreContract from "./GrantStoreContract.ts"
export * as ThreadStoreContract from "./ThreadStoreContract.ts"
