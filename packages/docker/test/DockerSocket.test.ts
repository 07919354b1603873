import { assert, describe, it } from "@effect/vitest"
import { format, parse } from "@cogni/sandbox-docker/DockerSocket"
import { Schema } from "effect"

describe("DockerSocket", () => {
  it("parses the forms of DOCKER_HOST", () => {
    assert.deepStrictEqual(parse("unix:///var/run/docker.sock"), {
      type: "unix",
      path: "/var/run/docker.sock"
    })
    assert.deepStrictEqual(parse("/run/user/1000/docker.sock"), {
      type: "unix",
      path: "/run/user/1000/docker.sock"
    })
    assert.deepStrictEqual(parse("tcp://10.0.0.5:2375"), { type: "tcp", host: "10.0.0.5", port: 2375 })
    assert.deepStrictEqual(parse("tcp://[::1]:2375"), { type: "tcp", host: "[::1]", port: 2375 })
  })

  it("rejects other schemes and invalid addresses", () => {
    for (const text of [
      "",
      "ssh://host",
      "docker.sock",
      "tcp://host",
      "tcp://host:99999",
      "unix://relative",
      "npipe:////./pipe/docker"
    ]) {
      assert.isUndefined(parse(text), text)
    }
  })

  it.prop("parses each formatted address to the same address", [Schema.String], ([text]) => {
    const address = parse(text)
    if (address !== undefined) assert.deepStrictEqual(parse(format(address)), address)
  })
})
