export * as AccountContract from "./AccountContract.ts"
export * as LedgerContract from "./LedgerContract.ts"
