/** The frame of the page: its navigation, its colors, and who is signed in. */
"use client"

import { type ReactElement, type ReactNode, useEffect, useState } from "react"
import { Button, Link, ToggleButton, ToggleButtonGroup } from "react-aria-components"
import type { Grant } from "./RunModel.ts"
import * as VisibleText from "./VisibleText.ts"

const schemes = ["system", "light", "dark"] as const
type Scheme = (typeof schemes)[number]

const storageKey = "cogni-sandbox-scheme"

/** Reads a setting of the browser, which can forbid storage. */
const stored = (): Scheme => {
  try {
    const value = localStorage.getItem(storageKey)
    return schemes.find((scheme) => scheme === value) ?? "system"
  } catch {
    return "system"
  }
}

const SchemeChoice = () => {
  const [scheme, setScheme] = useState<Scheme>(stored)
  useEffect(() => {
    document.documentElement.dataset["scheme"] = scheme
    try {
      localStorage.setItem(storageKey, scheme)
    } catch {
      // The choice then lasts until the page is closed.
    }
  }, [scheme])
  return (
    <ToggleButtonGroup
      aria-label="Colors"
      className="cs-toggle"
      selectionMode="single"
      disallowEmptySelection
      selectedKeys={[scheme]}
      onSelectionChange={(keys) => setScheme(schemes.find((one) => keys.has(one)) ?? "system")}
    >
      {schemes.map((one) => (
        <ToggleButton key={one} id={one}>
          {one === "system" ? "Auto" : one === "light" ? "Light" : "Dark"}
        </ToggleButton>
      ))}
    </ToggleButtonGroup>
  )
}

interface ShellProps {
  readonly grant: Grant
  readonly onSignOut: () => void
  /** Path of the page that is shown. */
  readonly path: string
  readonly children: ReactNode
}

const pages = [
  ["/", "Runs"],
  ["/agents", "Agents"],
  ["/sessions", "Sessions"],
  ["/access", "Access"]
] as const

const isCurrent = (page: string, path: string) =>
  page === "/" ? path === "/" || path === "" || path.startsWith("/runs") : path.startsWith(page)

export const Shell = ({ children, grant, onSignOut, path }: ShellProps): ReactElement => (
  <div className="cs-page">
    <a className="cs-skip" href="#main">
      Skip to the content
    </a>
    <header className="cs-top">
      <span className="cs-brand">Cogni Sandbox</span>
      <nav aria-label="Pages">
        {pages.map(([page, label]) => (
          <Link
            key={page}
            className="cs-nav"
            href={page}
            {...(isCurrent(page, path) ? { "aria-current": "page" as const } : {})}
          >
            {label}
          </Link>
        ))}
      </nav>
      <div className="cs-end cs-who">
        <SchemeChoice />
        <span className="cs-note">
          <bdi>{VisibleText.line(grant.userId, 40)}</bdi> ·{" "}
          <bdi>{VisibleText.line(grant.billingAccountId, 40)}</bdi>
        </span>
        <Button className="cs-button cs-quiet" onPress={onSignOut}>
          Sign out
        </Button>
      </div>
    </header>
    <main id="main" tabIndex={-1}>
      {children}
    </main>
  </div>
)
