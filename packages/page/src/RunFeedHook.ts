/** The events of a run as a React hook. */
"use client"

import { useEffect, useState } from "react"
import * as RunFeed from "./RunFeed.ts"
import { useSandbox } from "./SandboxProvider.tsx"

/** Time between two renderings of new events, in milliseconds. */
const renderMillis = 60

/** Follows a run while its component is shown. Renders a few times a second, however many events arrive. */
export const useRunFeed = (runId: string): RunFeed.Feed => {
  const { client } = useSandbox()
  const [shown, setShown] = useState<RunFeed.Feed>(RunFeed.make)
  useEffect(() => {
    const abort = new AbortController()
    let feed = RunFeed.make()
    let frame: ReturnType<typeof setTimeout> | undefined
    const update = (change: (feed: RunFeed.Feed) => RunFeed.Feed) => {
      const after = change(feed)
      if (after !== feed) {
        feed = after
        // Not an animation frame, which a hidden tab would never get.
        frame ??= setTimeout(() => {
          frame = undefined
          if (!abort.signal.aborted) setShown(feed)
        }, renderMillis)
      }
      return feed
    }
    setShown(feed)
    void RunFeed.follow(client, runId, update, abort.signal)
    return () => {
      abort.abort()
      clearTimeout(frame)
    }
  }, [client, runId])
  return shown
}
