/** Programs that attributes select for a file's content: filters, text conversions, external diffs, merge drivers. */
import type { Context, Workspace } from "./Corpus.ts"
import { after, configure, put, work } from "./Making.ts"

const touch = ({ marker }: Context) => `touch ${marker}`

/** Defines a workspace with committed attributes and a driver in the configuration. */
const committed = (name: string, attributes: string, text: (context: Context) => string): Workspace => ({
  name,
  attack: "execution",
  wants: "delivered",
  make: async (context) => {
    put(context, ".gitattributes", `${attributes}\n`)
    const tip = await work(context)
    // An uncommitted change to show and to add.
    put(context, "src/module-02.ts", "export const module = 'not committed'\n")
    configure(context, text(context))
    return tip
  }
})

export const drivers: ReadonlyArray<Workspace> = [
  {
    name: "diff.external",
    attack: "execution",
    wants: "delivered",
    make: after((context) => configure(context, `[diff]\n\texternal = "${touch(context)};:"`))
  },
  committed(
    "diff.<driver>.textconv",
    "*.ts diff=x",
    (context) => `[diff "x"]\n\ttextconv = "${touch(context)};cat"`
  ),
  committed(
    "diff.<driver>.command",
    "*.ts diff=x",
    (context) => `[diff "x"]\n\tcommand = "${touch(context)};:"`
  ),
  committed(
    "filter.<x>.clean",
    "*.ts filter=x",
    (context) => `[filter "x"]\n\tclean = "${touch(context)};cat"`
  ),
  committed(
    "filter.<x>.smudge",
    "*.ts filter=x",
    (context) => `[filter "x"]\n\tsmudge = "${touch(context)};cat"`
  ),
  committed(
    "filter.<x>.process",
    "*.ts filter=x",
    (context) => `[filter "x"]\n\tprocess = "${touch(context)};false"`
  ),
  committed(
    "merge.<driver>.driver",
    "*.ts merge=x",
    (context) => `[merge "x"]\n\tdriver = "${touch(context)};false"`
  ),
  {
    name: "merge.default",
    attack: "execution",
    wants: "delivered",
    make: after((context) =>
      configure(context, `[merge]\n\tdefault = x\n[merge "x"]\n\tdriver = "${touch(context)};false"`)
    )
  },
  {
    name: "filter in info/attributes",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      put(context, ".git/info/attributes", "* filter=innocent diff=innocent\n")
      put(context, "left.txt", "left\n")
      configure(context, `[filter "innocent"]\n\tclean = "${touch(context)};cat"`)
    })
  },
  {
    name: "textconv in info/attributes",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      put(context, ".git/info/attributes", "* diff=innocent\n")
      configure(context, `[diff "innocent"]\n\ttextconv = "${touch(context)};cat"`)
    })
  },
  {
    name: "filter in core.attributesFile",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      put(context, "attributes", "* filter=innocent\n")
      configure(
        context,
        `[core]\n\tattributesFile = ${context.repository}/attributes
[filter "innocent"]\n\tclean = "${touch(context)};cat"`
      )
    })
  }
]
