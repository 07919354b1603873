export * as AcpRefusal from "./AcpRefusal.ts"
export * as AcpServer from "./AcpServer.ts"
export * as AcpSession from "./AcpSession.ts"
