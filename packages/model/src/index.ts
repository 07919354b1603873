export * as AiSdkChatModel from "./AiSdkChatModel.ts"
