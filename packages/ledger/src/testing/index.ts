export * as LedgerContract from "./LedgerContract.ts"
