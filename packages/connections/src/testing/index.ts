export * as ConnectionStoreContract from "./ConnectionStoreContract.ts"
