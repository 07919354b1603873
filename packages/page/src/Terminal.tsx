/**
 * Shows output in a terminal. It only displays: nothing that the output contains is sent, opened or copied by itself.
 *
 * Loaded when it is shown, because the terminal needs a browser.
 */
"use client"

import { type ReactElement, useEffect, useRef, useState } from "react"
import type { Terminal as Xterm } from "@xterm/xterm"
import type { Piece } from "./RunFeed.ts"
import * as TerminalDocument from "./TerminalDocument.ts"

/** Lines that can be scrolled back to. */
const linesMax = 10_000

const dark = {
  background: "#0d1117",
  foreground: "#e6e9ee",
  cursor: "#0d1117",
  cursorAccent: "#0d1117",
  selectionBackground: "#3b5070",
  black: "#484f58",
  brightBlack: "#8b949e"
}

/** Maximum number of characters that are written at once. More would scroll out of the terminal. */
const writtenCharsMax = 2 * 1024 * 1024

interface TerminalProps {
  readonly label: string
  /** Output in order. The first pieces may be dropped, and new ones are at the end. */
  readonly pieces: ReadonlyArray<Piece>
}

/** Returns the text of the pieces after a number: of the last ones that fit, and at least of one. */
const textAfter = (pieces: ReadonlyArray<Piece>, seq: number): string => {
  let first = pieces.length
  let chars = 0
  while (first > 0 && pieces[first - 1]!.seq > seq) {
    chars += pieces[first - 1]!.text.length
    if (chars > writtenCharsMax && first < pieces.length) break
    first -= 1
  }
  return pieces
    .slice(first)
    .map(({ text }) => text)
    .join("")
}

const make = async (element: HTMLElement) => {
  const [{ Terminal }, { FitAddon }] = await Promise.all([import("@xterm/xterm"), import("@xterm/addon-fit")])
  const terminal = new Terminal({
    allowProposedApi: true,
    convertEol: true,
    cursorBlink: false,
    cursorInactiveStyle: "none",
    disableStdin: true,
    documentOverride: TerminalDocument.make(document),
    fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace",
    fontSize: 13,
    // An agent may write links whose text is not their address.
    linkHandler: { activate: () => {}, allowNonHttpProtocols: false },
    minimumContrastRatio: 4.5,
    screenReaderMode: true,
    scrollback: linesMax,
    theme: dark,
    windowOptions: {}
  })
  const fit = new FitAddon()
  terminal.loadAddon(fit)
  // A program could ask the terminal to put a text into the input, or to set the title.
  for (const code of [0, 1, 2, 8, 52]) terminal.parser.registerOscHandler(code, () => true)
  const release = TerminalDocument.hold(document)
  TerminalDocument.during(document, () => terminal.open(element))
  const observer = new ResizeObserver(() => {
    // Hidden elements have no size.
    if (element.clientWidth > 0) fit.fit()
  })
  observer.observe(element)
  return {
    terminal,
    dispose: () => {
      observer.disconnect()
      terminal.dispose()
      release()
    }
  }
}

export const Terminal = ({ label, pieces }: TerminalProps): ReactElement => {
  const element = useRef<HTMLDivElement>(null)
  const [terminal, setTerminal] = useState<Xterm>()
  const [problem, setProblem] = useState<string>()
  const written = useRef(0)
  const isBusy = useRef(false)
  const [, setWrites] = useState(0)

  useEffect(() => {
    let isGone = false
    let dispose = () => {}
    const open = async (place: HTMLElement) => {
      try {
        const made = await make(place)
        dispose = made.dispose
        if (isGone) dispose()
        else setTerminal(made.terminal)
      } catch (cause) {
        if (!isGone) setProblem(cause instanceof Error ? cause.message : String(cause))
      }
    }
    if (element.current !== null) void open(element.current)
    return () => {
      isGone = true
      dispose()
    }
  }, [])

  useEffect(() => {
    // One write at a time: the terminal drops what it cannot hold, and a seek bar asks for much in a moment.
    if (terminal === undefined || isBusy.current) return
    const text = textAfter(pieces, written.current)
    written.current = pieces.at(-1)?.seq ?? written.current
    if (text === "") return
    isBusy.current = true
    terminal.write(text, () => {
      isBusy.current = false
      setWrites((count) => count + 1)
    })
  })

  return (
    <>
      {problem === undefined ? null : <p role="alert">The terminal could not be loaded: {problem}</p>}
      <div ref={element} className="cs-terminal" role="group" aria-label={label} />
    </>
  )
}
