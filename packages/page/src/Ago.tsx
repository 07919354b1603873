/** A time in the past, in words that are renewed each second. Only this element is rendered again. */
"use client"

import type { ReactElement } from "react"
import * as Format from "./Format.ts"
import { useNow } from "./SandboxProvider.tsx"

export const Ago = ({ at }: { readonly at: string | undefined }): ReactElement => {
  const now = useNow(true)
  return (
    <time dateTime={at ?? ""} title={Format.time(at)}>
      {Format.ago(at, now)}
    </time>
  )
}
