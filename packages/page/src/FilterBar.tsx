/** The filter of a list of runs. */
"use client"

import { useAgents } from "@cogni/sandbox-react/Agents"
import { memo, type ReactElement, useId, useState } from "react"
import {
  Button,
  FieldError,
  Form,
  Input,
  Label,
  ListBox,
  ListBoxItem,
  Popover,
  Select,
  SelectValue,
  TextField
} from "react-aria-components"
import * as RunFilter from "./RunFilter.ts"

const all = "all"

/** A choice of one value, or of all: no value. */
export const Choice = ({
  allLabel = "All",
  choices,
  label,
  onChange,
  value
}: {
  readonly label: string
  readonly allLabel?: string
  readonly choices: ReadonlyArray<readonly [value: string, label: string]>
  readonly value: string | undefined
  readonly onChange: (value: string | undefined) => void
}): ReactElement => (
  <Select
    className="cs-field"
    value={value ?? all}
    onChange={(chosen) => onChange(chosen === all || chosen === null ? undefined : String(chosen))}
  >
    <Label>{label}</Label>
    <Button className="cs-select">
      <SelectValue />
      <span aria-hidden="true">▾</span>
    </Button>
    <Popover className="cs-popover">
      <ListBox className="cs-listbox">
        {[[all, allLabel] as const, ...choices].map(([key, text]) => (
          <ListBoxItem key={key} id={key} textValue={text}>
            {text}
          </ListBoxItem>
        ))}
      </ListBox>
    </Popover>
  </Select>
)

const fields = [
  ["reason", "Reason", "OomKilled"],
  ["model", "Model", "gpt-5"],
  ["repository", "Repository", "https://github.com/acme/app"],
  ["session", "Session", "thread-1"],
  ["minCostUsd", "Cost at least, $", "0.50"]
] as const

type Texts = Readonly<Record<(typeof fields)[number][0], string>>

const textsOf = (filter: RunFilter.RunFilter): Texts =>
  Object.fromEntries(fields.map(([name]) => [name, filter[name] ?? ""])) as Texts

interface FilterBarProps {
  readonly filter: RunFilter.RunFilter
  readonly onChange: (filter: RunFilter.RunFilter) => void
}

/** Memoized: the list below it is rendered again with each page and each reading. */
export const FilterBar = memo(({ filter, onChange }: FilterBarProps): ReactElement => {
  const { data: agents = [] } = useAgents()
  const [texts, setTexts] = useState(() => textsOf(filter))
  // The address can change without these fields, such as with the browser's button for the last page.
  const applied = JSON.stringify(textsOf(filter))
  const [last, setLast] = useState(applied)
  if (last !== applied) {
    setLast(applied)
    setTexts(textsOf(filter))
  }
  const headingId = useId()
  const change = (part: RunFilter.RunFilter) => onChange(RunFilter.parse({ ...filter, ...part }))
  return (
    <Form
      className="cs-filter"
      aria-labelledby={headingId}
      onSubmit={(event) => {
        event.preventDefault()
        change(texts)
      }}
    >
      <h2 id={headingId} className="cs-hidden">
        Filter
      </h2>
      <Choice
        label="Status"
        value={filter.status}
        choices={RunFilter.statusChoices}
        onChange={(status) => change({ status })}
      />
      <Choice
        label="Agent"
        value={filter.agent}
        choices={agents.map(({ graphId, name }) => [graphId.split(":").at(-1) ?? graphId, name])}
        onChange={(agent) => change({ agent })}
      />
      <Choice
        label="Started"
        value={filter.since}
        choices={RunFilter.periods.map(([value, label]) => [value, label])}
        onChange={(since) => change({ since })}
      />
      {fields.map(([name, label, example]) => (
        <TextField
          key={name}
          className="cs-field"
          name={name}
          value={texts[name]}
          maxLength={200}
          validate={(value) =>
            name === "minCostUsd" && value !== "" && !/^\d{1,6}(?:\.\d{1,8})?$/u.test(value)
              ? "An amount such as 0.50"
              : null
          }
          onChange={(value) => setTexts({ ...texts, [name]: value })}
        >
          <Label>{label}</Label>
          <Input placeholder={example} spellCheck="false" />
          <FieldError className="cs-field-error" />
        </TextField>
      ))}
      <div className="cs-actions">
        <Button type="submit" className="cs-button">
          Filter
        </Button>
        {RunFilter.isEmpty(filter) ? null : (
          <Button
            className="cs-button cs-quiet"
            onPress={() => {
              setTexts(textsOf({}))
              onChange({})
            }}
          >
            Clear
          </Button>
        )}
      </div>
    </Form>
  )
})
