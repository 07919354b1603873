/** The rules of the HTTP tools, from a JSON file that `COGNI_HTTP_TOOLS_FILE` names. */
import * as HttpTools from "@cogni/sandbox-proxy/tools/HttpTools"
import { Effect } from "effect"
import type { Refusal } from "./Failure.ts"
import * as JsonFile from "./JsonFile.ts"

const fileBytesMax = 256 * 1024

/** Reads the rules of the HTTP tools; none without a file. */
export const make = (file: string | undefined): Effect.Effect<HttpTools.HttpRules, Refusal> =>
  file === undefined
    ? Effect.succeed([])
    : JsonFile.read(
        {
          variable: "COGNI_HTTP_TOOLS_FILE",
          file,
          bytesMax: fileBytesMax,
          describes: "rules of HTTP tools",
          page: "docs/guides/connections.md"
        },
        HttpTools.HttpRules
      )
