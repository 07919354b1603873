/** The whole page: its routes, its sign-in, and its links. */
"use client"

import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query"
import {
  createRootRoute,
  createRoute,
  createRouter,
  Outlet,
  RouterProvider,
  useLocation,
  useNavigate,
  useRouter
} from "@tanstack/react-router"
import {
  createContext,
  type ReactElement,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useState
} from "react"
import { RouterProvider as LinkProvider } from "react-aria-components"
import { AccessPanel } from "./AccessPanel.tsx"
import { AgentCatalog } from "./AgentCatalog.tsx"
import { ApiProblem, describe, isSignedOut } from "./ApiProblem.ts"
import { Loading, Problem } from "./Parts.tsx"
import { RunDetail, type RunTab, tabs } from "./RunDetail.tsx"
import * as RunFilter from "./RunFilter.ts"
import { RunList } from "./RunList.tsx"
import type { SignedIn } from "./RunModel.ts"
import * as RunsClient from "./RunsClient.ts"
import * as SearchText from "./SearchText.ts"
import { SandboxProvider } from "./SandboxProvider.tsx"
import { SessionList } from "./SessionList.tsx"
import { Shell } from "./Shell.tsx"
import { SignIn } from "./SignIn.tsx"

interface SandboxPageProps {
  /** Path at which the page is served. Defaults to `/sandbox`. */
  readonly basePath?: string
  /** URL of the server. Defaults to the page's origin. */
  readonly baseUrl?: string
}

interface Session {
  readonly who: SignedIn
  readonly signOut: () => void
}

const SessionContext = createContext<Session | undefined>(undefined)

const useSession = (): Session => {
  const session = useContext(SessionContext)
  if (session === undefined) throw new Error("the page is shown only after a sign-in")
  return session
}

const hrefOfRun = (runId: string) => `/runs/${encodeURIComponent(runId.toWellFormed())}`
const hrefOfSession = (sessionId: string) => `/?session=${encodeURIComponent(sessionId.toWellFormed())}`

/** Titles the tab of the browser. */
const useTitle = (title: string) =>
  useEffect(() => {
    document.title = `${title} · Cogni Sandbox`
  }, [title])

const Root = () => {
  const navigate = useNavigate()
  const router = useRouter()
  const { pathname } = useLocation()
  const { signOut, who } = useSession()
  const base = router.basepath === "/" ? "" : router.basepath
  return (
    <LinkProvider
      navigate={(to) => void navigate({ href: `${base}${to}` })}
      useHref={(to) => (to.startsWith("/") ? `${base}${to}` : to)}
    >
      <Shell
        grant={who.grant}
        onSignOut={signOut}
        path={pathname.startsWith(base) ? pathname.slice(base.length) : pathname}
      >
        <Outlet />
      </Shell>
    </LinkProvider>
  )
}

const rootRoute = createRootRoute({
  component: Root,
  errorComponent: ({ error }) => <Problem error={error} />,
  notFoundComponent: () => <p className="cs-empty">This page does not exist.</p>
})

const listRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/",
  validateSearch: RunFilter.parse,
  component: () => {
    useTitle("Runs")
    const filter = listRoute.useSearch()
    const navigate = listRoute.useNavigate()
    const change = useCallback((search: RunFilter.RunFilter) => void navigate({ search }), [navigate])
    return (
      <>
        <h1>Runs</h1>
        <RunList filter={filter} onFilterChange={change} />
      </>
    )
  }
})

const runRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/runs/$runId",
  validateSearch: (search: Record<string, unknown>): { readonly tab?: RunTab } => {
    const tab = tabs.find((one) => one === search["tab"])
    return tab === undefined ? {} : { tab }
  },
  component: () => {
    const { runId } = runRoute.useParams()
    useTitle(runId)
    const { tab = "output" } = runRoute.useSearch()
    const navigate = runRoute.useNavigate()
    return (
      <RunDetail
        key={runId}
        runId={runId}
        tab={tab}
        onTabChange={(chosen) => void navigate({ search: { tab: chosen }, replace: true })}
      />
    )
  }
})

const agentsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/agents",
  component: () => {
    useTitle("Agents")
    const { who } = useSession()
    const navigate = useNavigate()
    return (
      <>
        <h1>Agents</h1>
        <AgentCatalog
          canStart={who.grant.allowSandbox && who.grant.mayWrite}
          onStarted={(runId) => void navigate({ to: "/runs/$runId", params: { runId } })}
        />
      </>
    )
  }
})

const sessionsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/sessions",
  component: () => {
    useTitle("Sessions")
    return (
      <>
        <h1>Sessions</h1>
        <SessionList hrefOfSession={hrefOfSession} />
      </>
    )
  }
})

const accessRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/access",
  component: () => {
    useTitle("Access")
    return (
      <>
        <h1>Access</h1>
        <AccessPanel grant={useSession().who.grant} />
      </>
    )
  }
})

const routeTree = rootRoute.addChildren([listRoute, runRoute, agentsRoute, sessionsRoute, accessRoute])

/** Queries of addresses are texts. The router's own parser would make numbers of IDs that have only digits. */
const addresses = { parseSearch: SearchText.parse, stringifySearch: SearchText.stringify }

const retriesMax = 2

/** Queries of the page. A failure that only a sign-in can mend is passed to `signedOut`. */
const queriesOf = (signedOut: (problem: Error) => void) => {
  const onError = (error: Error) => {
    if (isSignedOut(error)) signedOut(error)
  }
  return new QueryClient({
    queryCache: new QueryCache({ onError }),
    mutationCache: new MutationCache({ onError }),
    defaultOptions: {
      queries: {
        retry: (failures, error) => error instanceof ApiProblem && error.isRetryable && failures < retriesMax,
        retryDelay: (failures, error) =>
          error instanceof ApiProblem && error.retrySeconds !== undefined
            ? error.retrySeconds * 1000
            : 500 * 2 ** failures
      }
    }
  })
}

export const SandboxPage = ({ basePath = "/sandbox", baseUrl = "" }: SandboxPageProps): ReactElement => {
  const [who, setWho] = useState<SignedIn>()
  const [why, setWhy] = useState<string>()
  const [problem, setProblem] = useState<{ readonly error: unknown; readonly retry: () => void }>()
  const [isChecked, setChecked] = useState(false)
  const anonymous = useMemo(() => RunsClient.make({ baseUrl }), [baseUrl])
  const router = useMemo(() => createRouter({ routeTree, basepath: basePath, ...addresses }), [basePath])
  const leave = useCallback((reason: string | undefined) => {
    setWho(undefined)
    setWhy(reason)
  }, [])
  // New after each sign-in, so that nothing of another account is left in memory.
  const queries = useMemo(
    () => queriesOf(({ message }) => leave(`You are signed out: ${message}`)),
    [who, leave]
  )
  const options = useMemo(
    () => ({ baseUrl, headers: who === undefined ? {} : { [RunsClient.csrfHeader]: who.csrf } }),
    [baseUrl, who]
  )
  const check = useCallback(async () => {
    setProblem(undefined)
    try {
      setWho(await anonymous.whoAmI())
      setChecked(true)
    } catch (error) {
      if (!isSignedOut(error)) return setProblem({ error, retry: () => void check() })
      const { message, reason } = describe(error)
      if (reason !== "GrantMissing") setWhy(message)
      setChecked(true)
    }
  }, [anonymous])
  useEffect(() => {
    void check()
  }, [check])
  const signOut = useCallback(async () => {
    setProblem(undefined)
    try {
      await RunsClient.make(options).signOut()
      leave("You are signed out.")
    } catch (error) {
      setProblem({ error, retry: () => void signOut() })
    }
  }, [options, leave])
  const session = useMemo(
    () => (who === undefined ? undefined : { who, signOut: () => void signOut() }),
    [who, signOut]
  )
  if (problem !== undefined)
    return (
      <main className="cs-sign-in">
        <h1>Cogni Sandbox</h1>
        <Problem error={problem.error} onRetry={problem.retry} />
      </main>
    )
  if (!isChecked)
    return (
      <main className="cs-sign-in">
        <h1 className="cs-hidden">Cogni Sandbox</h1>
        <Loading what="page" />
      </main>
    )
  if (session === undefined)
    return (
      <SignIn
        client={anonymous}
        why={why}
        onSignedIn={(found) => {
          setWhy(undefined)
          setWho(found)
        }}
      />
    )
  return (
    <SessionContext.Provider value={session}>
      <QueryClientProvider client={queries}>
        <SandboxProvider options={options} hrefOfRun={hrefOfRun} mayWrite={session.who.grant.mayWrite}>
          <RouterProvider router={router} />
        </SandboxProvider>
      </QueryClientProvider>
    </SessionContext.Provider>
  )
}
