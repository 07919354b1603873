/** Configures package managers for the host's mirror, through their environment and files. Pure. */
import type { Registry } from "../PackagePattern.ts"
import type { PlantedDirectory } from "../Workspace.ts"

/** Variables for the package managers of these registries. `base` is the mirror's URL, as the sandbox sees it. */
export const make = (registries: ReadonlyArray<Registry>, base: string): Record<string, string> =>
  Object.assign({}, ...registries.map((registry) => variables[registry](`${base}/${registry}`)))

const variables: Readonly<Record<Registry, (url: string) => Readonly<Record<string, string>>>> = {
  npm: (url) => ({
    npm_config_registry: `${url}/`,
    // A lockfile may name another registry. npm then takes the files from the mirror.
    npm_config_replace_registry_host: "always",
    // A lockfile that is made here must not name the mirror, which exists only in this sandbox.
    npm_config_omit_lockfile_registry_resolved: "true",
    npm_config_audit: "false",
    npm_config_fund: "false",
    npm_config_update_notifier: "false",
    pnpm_config_registry: `${url}/`,
    pnpm_config_update_notifier: "false"
  }),
  pypi: (url) => ({
    PIP_INDEX_URL: `${url}/simple/`,
    PIP_TRUSTED_HOST: "localhost",
    PIP_DISABLE_PIP_VERSION_CHECK: "1",
    UV_DEFAULT_INDEX: `${url}/simple/`
  }),
  cargo: () => ({})
}

/**
 * Directories for package managers that cannot be configured by their environment. cargo reads no source replacement
 * from it. It looks for files in all directories above its working directory, up to the root.
 */
export const directories = (
  registries: ReadonlyArray<Registry>,
  base: string
): ReadonlyArray<PlantedDirectory> =>
  registries.includes("cargo")
    ? [
        {
          target: "/.cargo",
          name: "cargo",
          files: [
            {
              name: "config.toml",
              content: `[source.crates-io]\nreplace-with = "mirror"\n\n[source.mirror]\nregistry = "sparse+${base}/cargo/index/"\n`
            }
          ]
        }
      ]
    : []
