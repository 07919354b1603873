/** Signs in with the token of a grant. The token goes to the server once, which keeps it where no script reads it. */
"use client"

import { type ReactElement, useRef, useState } from "react"
import { Button, FieldError, Form, Input, Label, Text, TextField } from "react-aria-components"
import { ApiProblem } from "./ApiProblem.ts"
import { Problem } from "./Parts.tsx"
import type { SignedIn } from "./RunModel.ts"
import type { RunsClient } from "./RunsClient.ts"

const lost = new ApiProblem({
  status: undefined,
  reason: "CookieNotKept",
  message:
    "the browser did not keep the sign-in. Open this page over HTTPS or as http://localhost, and allow cookies for it"
})

const replaced = new ApiProblem({
  status: undefined,
  reason: "CookieReplaced",
  message:
    "the browser sent the sign-in of another grant than this one, so another server of this host set it. Remove the " +
    "cookies of this host in the browser, and sign in again"
})

export const SignIn = ({
  client,
  onSignedIn,
  why
}: {
  readonly client: RunsClient
  readonly onSignedIn: (who: SignedIn) => void
  /** Why the page has no sign-in any more. */
  readonly why?: string | undefined
}): ReactElement => {
  const [problem, setProblem] = useState<unknown>()
  const [isPending, setPending] = useState(false)
  const field = useRef<HTMLInputElement>(null)
  const send = async (token: string) => {
    setPending(true)
    setProblem(undefined)
    try {
      const sent = await client.signIn(token)
      if (field.current !== null) field.current.value = ""
      const kept = await client.whoAmI().catch((error: unknown) => {
        throw error instanceof ApiProblem && error.reason === "GrantMissing" ? lost : error
      })
      if (kept.grant.id !== sent.grant.id) throw replaced
      onSignedIn(kept)
    } catch (error) {
      setProblem(error)
    } finally {
      setPending(false)
    }
  }
  return (
    <main className="cs-sign-in">
      <h1>Cogni Sandbox</h1>
      {why === undefined ? null : (
        <p className="cs-note" role="status">
          {why}
        </p>
      )}
      <Form
        className="cs-card"
        onSubmit={(event) => {
          event.preventDefault()
          void send((field.current?.value ?? "").trim())
        }}
      >
        <TextField
          className="cs-field"
          name="token"
          type="password"
          isRequired
          autoFocus
          validate={(value) =>
            /^\s*cgs_[A-Za-z0-9_-]{43}\s*$/u.test(value)
              ? null
              : "A token begins with cgs_ and has 47 characters."
          }
        >
          <Label>Token of a grant</Label>
          <Input ref={field} autoComplete="current-password" spellCheck="false" placeholder="cgs_…" />
          <Text slot="description" className="cs-note">
            The operator of this server makes one:{" "}
            <code className="cs-mono cs-figure">cogni-sandbox grants create</code>
          </Text>
          <FieldError className="cs-field-error" />
        </TextField>
        {problem === undefined ? null : <Problem error={problem} />}
        <Button type="submit" className="cs-button cs-primary" isPending={isPending}>
          {isPending ? "Signing in…" : "Sign in"}
        </Button>
      </Form>
    </main>
  )
}
