// Runs the suite against a cache and writes down what each case is, and what became of it.
//
//   node drive.mjs INSTALLED SUITE OUT [BASE [ONLY]]
//
// INSTALLED is the folder of the suite's package. SUITE is where the cases are: the same folder,
// or a checkout of the suite, or a folder that has nothing but `tests/`. Whatever of the engine
// SUITE does not have is taken from the package. Without BASE the cases are only listed.

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [installed, suite, out, base, only] = process.argv.slice(2)

const engines = [join(suite, 'test-engine'), suite, installed]
const engine = engines.find(folder => existsSync(join(folder, 'client', 'runner.mjs')))

const files = (await load(join(suite, 'tests', 'index.mjs'))).default
const parts =
  ['client/test', 'client/fetching', 'client/utils', 'lib/header-fixup', 'server/handle-test']
const source = parts.map(part => readFileSync(join(engine, `${part}.mjs`), 'utf8')).join('\n')

const cases = files.flatMap(file => file.tests.map(test => ({
  id: test.id,
  file: file.id,
  kind: test.kind ?? 'required',
  depends_on: test.depends_on ?? [],
  browser_only: test.browser_only === true
})))

// A case that asks for more than the engine can do would pass or fail for no reason.
const beyond = {}
for (const test of files.flatMap(file => file.tests)) {
  const missing = test.requests.flatMap(request => Object.entries(request)).find(unknown)
  if (missing !== undefined) beyond[test.id] = ['Beyond', `the engine knows no ${missing[0]}`]
}

function unknown ([key, value]) {
  if (key === 'expected_status' && value === null) {
    return !source.includes('expected_status !== null')
  }
  return !new RegExp(`\\b${key}\\b`).test(source)
}

let results = {}
if (base !== undefined) {
  const { runTests, getResults } = await load(join(engine, 'client', 'runner.mjs'))
  const fetch = createRequire(join(installed, 'cli.mjs'))('node-fetch')
  const chosen = files.map(file => ({ ...file, tests: file.tests.filter(isChosen) }))
  if (only !== undefined) chosen.flatMap(file => file.tests).forEach(test => { test.dump = true })
  // Later editions use the runtime's own `fetch`, and take none.
  const client = runTests.length < 4 ? [] : [fetch]
  await runTests(chosen, ...client, false, base)
  results = { ...beyond, ...getResults() }
}
writeFileSync(out, JSON.stringify({ cases, results }))
// Connections that an engine leaves open would keep the process alive.
process.exit(0)

function isChosen (test) {
  return !(test.id in beyond) && (only === undefined || test.id === only)
}

function load (file) {
  return import(pathToFileURL(file))
}
