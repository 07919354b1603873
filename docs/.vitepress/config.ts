/**
 * The documentation site.
 *
 * Serves the pages of this repository at the paths that they have here, so that a link works in both. `docs/README.md`
 * is the index: the sidebar is made from it. The build fails at a dead link.
 */
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname, join, posix } from "node:path"
import { fileURLToPath } from "node:url"
import { defineConfig, type DefaultTheme } from "vitepress"
import { anchorOf } from "./anchor.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const read = (path: string) => readFileSync(join(root, path), "utf8")

/** Pages outside docs/. */
const outside = /^(?:README|AGENTS|SECURITY|CONTRIBUTING|(?:images|test|packages\/[a-z-]+)\/README)\.md$/u

/** The page of a path in this repository, if the site has it. */
const isPage = (path: string) =>
  (outside.test(path) || /^docs\/.*\.md$/u.test(path)) && existsSync(join(root, path))

/** A folder's README is its index page. */
const rewrite = (path: string) => path.replace(/(^|\/)README\.md$/u, "$1index.md")

/** Where links to source files lead: the repository that CI builds. Elsewhere they lead nowhere. */
const { GITHUB_REPOSITORY, GITHUB_SERVER_URL = "https://github.com", GITHUB_SHA = "main" } = process.env
const repository = GITHUB_REPOSITORY === undefined ? undefined : `${GITHUB_SERVER_URL}/${GITHUB_REPOSITORY}`

const sectionOf = (index: string) =>
  index
    .split(/^## /mu)
    .slice(1)
    .map((section): DefaultTheme.SidebarItem => {
      const [heading = ""] = section.split("\n")
      return {
        text: heading,
        collapsed: heading === "Decisions",
        items: [...section.matchAll(/^(?:\| |- )\[([^\]]+)\]\(([^)#]+\.md)\)(: .*)?/gmu)].map(
          ([, text, link, title = ""]) => ({
            text: `${text}${title}`,
            link: `/${rewrite(posix.join("docs", link!)).replace(/(?:index)?\.md$/u, "")}`
          })
        )
      }
    })

/** Pages of the API reference, a group for each package. */
const apiSection = (): DefaultTheme.SidebarItem => {
  const index = existsSync(join(root, "docs/api-reference/index.md"))
    ? read("docs/api-reference/index.md")
    : ""
  return {
    text: "API reference",
    collapsed: true,
    items: [...index.matchAll(/^- \[([^\]]+)\]\(([^)]+)index\.md\)/gmu)].map(([, name, folder]) => ({
      text: name!.replace("@cogni/sandbox-", ""),
      link: `/docs/api-reference/${folder}`,
      collapsed: true,
      items: [
        ...read(`docs/api-reference/${folder}index.md`).matchAll(/^- \[([^\]]+)\]\(([^)]+)\.md\)/gmu)
      ].map(([, text, link]) => ({ text: text!, link: `/docs/api-reference/${folder}${link}` }))
    }))
  }
}

export default defineConfig({
  title: "Cogni Sandbox",
  description: "Run untrusted AI agents in sealed Docker containers",
  base: process.env["DOCS_BASE"] ?? "/",
  srcDir: "..",
  srcExclude: [
    "**/node_modules/**",
    "**/dist/**",
    ".changeset/**",
    ".github/**",
    "examples/**",
    "test/harness/**",
    "test/bench/results/**",
    "packages/*/CHANGELOG.md",
    "CLAUDE.md"
  ],
  outDir: "./.vitepress/dist",
  cacheDir: "./.vitepress/cache",
  cleanUrls: true,
  lastUpdated: false,
  rewrites: rewrite,
  markdown: {
    anchor: { slugify: anchorOf },
    config: (markdown) => {
      const fallback =
        markdown.renderer.rules.link_open ??
        ((tokens, index, options, _env, self) => self.renderToken(tokens, index, options))
      markdown.renderer.rules.link_open = (tokens, index, options, env, self) => {
        const token = tokens[index]!
        const [path = "", fragment] = (token.attrGet("href") ?? "").split("#")
        if (path !== "" && !/^[a-z]+:|^\//iu.test(path)) {
          const target = posix.join(posix.dirname(env.relativePath), path)
          const end = fragment === undefined ? "" : `#${fragment}`
          if (isPage(target)) token.attrSet("href", `${rewrite(path)}${end}`)
          else if (existsSync(join(root, target))) {
            token.attrSet(
              "href",
              repository === undefined ? `#` : `${repository}/blob/${GITHUB_SHA}/${target}${end}`
            )
          }
        }
        return fallback(tokens, index, options, env, self)
      }
    }
  },
  vite: {
    build: { chunkSizeWarningLimit: 2_000 }
  },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Guides", link: "/docs/" },
      { text: "API", link: "/docs/api-reference/" },
      ...(repository === undefined ? [] : [{ text: "Source", link: repository }])
    ],
    sidebar: [...sectionOf(read("docs/README.md")), apiSection()]
  },
  // Programs read Markdown: every page is served as it is too, beside the one for people.
  buildEnd: ({ outDir, pages }) => {
    for (const page of pages) {
      const to = join(outDir, page)
      mkdirSync(dirname(to), { recursive: true })
      copyFileSync(join(root, page), to)
    }
    const llms = read("docs/llms.txt")
    writeFileSync(
      join(outDir, "llms.txt"),
      llms.replaceAll(/\]\((?!https?:)(?:(\.\.\/)|)/gu, (_, up) => (up === undefined ? "](docs/" : "]("))
    )
  }
})
