/** A table to read: plain, so that it is fast with hundreds of rows, and that readers of screens know how to read it. */
"use client"

import type { ReactElement, ReactNode } from "react"

export interface DataColumn {
  readonly name: string
  /** Figures are aligned at their end. */
  readonly isFigure?: boolean
}

interface DataRow {
  readonly id: string
  /** The first cell is the header of the row. */
  readonly cells: ReadonlyArray<ReactNode>
}

const classOf = ({ isFigure }: DataColumn) => (isFigure === true ? "cs-figure" : "")

export const DataTable = ({
  className = "",
  columns,
  label,
  rows
}: {
  readonly label: string
  readonly columns: ReadonlyArray<DataColumn>
  readonly rows: ReadonlyArray<DataRow>
  readonly className?: string
}): ReactElement => (
  // Without the mouse, only what has the focus can be scrolled.
  <div className="cs-scroll" tabIndex={0} role="group" aria-label={label}>
    <table aria-label={label} className={`cs-table ${className}`}>
      <thead>
        <tr>
          {columns.map((column) => (
            <th key={column.name} scope="col" className={classOf(column)}>
              {column.name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map(({ cells: [first, ...others], id }) => (
          <tr key={id}>
            <th scope="row">{first}</th>
            {columns.slice(1).map((column, index) => (
              <td key={column.name} className={classOf(column)}>
                {others[index]}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  </div>
)
