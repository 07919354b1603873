export * as GrantStoreContract from "./GrantStoreContract.ts"
