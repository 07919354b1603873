/** Methods that the endpoints of an API have, to answer a request with another one. Pure. */
import { HttpApi, type HttpApiGroup } from "effect/http-api"

/** Returns the methods of a path, such as `/api/v1/runs/run-000000000001`: none if no endpoint has it. */
export type MethodsOf = (path: string) => ReadonlyArray<string>

export const ofApi = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>
): MethodsOf => {
  const endpoints: Array<{ readonly method: string; readonly form: RegExp }> = []
  HttpApi.reflect(api, {
    onGroup: () => undefined,
    onEndpoint: ({ endpoint: { method, path } }) => {
      endpoints.push({ method, form: new RegExp(`^${path.replaceAll(/:\w+/gu, "[^/]+")}$`, "u") })
    }
  })
  return (path) => {
    const methods = endpoints.flatMap(({ form, method }) => (form.test(path) ? [method] : []))
    // The router answers HEAD where it answers GET.
    return [...new Set(methods.includes("GET") ? [...methods, "HEAD"] : methods)].toSorted()
  }
}
