// One cache in Node.js that reads commands from its standard input, one on each line:
//
//   load KEY CALLERS LOAD_MS SIZE   simultaneous reads of a key whose load takes this long
//   set KEY SIZE                    stores a value
//   fill COUNT SIZE [TAG]           stores key:0, key:1, …
//   remove KEY, tag TAG             invalidates
//   reads KEYS TASKS MILLIS SEED    reads stored keys by Zipf's law
//
// Arguments: SUBJECT TTL_MS MEMORY_BYTES [REDIS_URL]. Every answer is one line of JSON; the first
// line names version and settings.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const [subject, ttlText, memoryText, redisUrl] = process.argv.slice(2)
const ttl = Number(ttlText)
const maxSize = Number(memoryText)

const versionOf = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version

async function bentocache(withRedis) {
  const { BentoCache, bentostore } = await import('bentocache')
  const { memoryDriver } = await import('bentocache/drivers/memory')
  const settings = { ttl, memoryDriver: { maxSize } }
  let store = bentostore().useL1Layer(memoryDriver(settings.memoryDriver))
  if (withRedis) {
    const { redisDriver, redisBusDriver } = await import('bentocache/drivers/redis')
    const { hostname: host, port } = new URL(redisUrl)
    const connection = { host, port: Number(port) }
    // Recommended by its documentation for a remote layer that may fail.
    settings.l2CircuitBreakerDuration = '30s'
    settings.connection = { maxRetriesPerRequest: 1, commandTimeout: 200, enableOfflineQueue: false }
    const { Redis } = await import('ioredis')
    const client = new Redis({ ...connection, ...settings.connection, enableOfflineQueue: true })
    client.on('error', () => {})
    store = store.useL2Layer(redisDriver({ connection: client }))
    store = store.useBus(redisBusDriver({ connection: { ...connection } }))
  }
  const { l2CircuitBreakerDuration } = settings
  const cache = new BentoCache({
    default: 'main',
    ttl,
    stores: { main: store },
    ...(l2CircuitBreakerDuration && { l2CircuitBreakerDuration }),
  })
  return {
    version: versionOf('bentocache'),
    settings,
    load: (key, factory) => cache.getOrSet({ key, ttl, factory }),
    set: (key, value, tags) => cache.set({ key, value, ttl, ...(tags && { tags }) }),
    get: (key) => cache.get({ key }),
    remove: (key) => cache.delete({ key }),
    tag: (tag) => cache.deleteByTag({ tags: [tag] }),
  }
}

async function cacheManager(withRedis) {
  const { createCache } = await import('cache-manager')
  const { Keyv } = await import('keyv')
  const { CacheableMemory } = await import('cacheable')
  // It bounds numbers and no bytes: as many as there are values of 256 KiB in a small bound.
  const lruSize = maxSize < 16 << 20 ? Math.floor(maxSize / (256 << 10)) : 200_000
  const settings = { ttl, memory: { ttl, lruSize } }
  const stores = [new Keyv({ store: new CacheableMemory(settings.memory) })]
  if (withRedis) {
    const { default: KeyvRedis } = await import('@keyv/redis')
    settings.redis = { connectionTimeout: 1_000, throwOnErrors: false }
    const store = new KeyvRedis(redisUrl, settings.redis)
    store.on('error', () => {})
    stores.push(new Keyv({ store, useKeyPrefix: false }))
    stores.at(-1).on('error', () => {})
  }
  const cache = createCache({ ttl, stores })
  return {
    version: versionOf('cache-manager'),
    settings,
    load: (key, factory) => cache.wrap(key, factory, ttl),
    set: (key, value) => cache.set(key, value, ttl),
    get: (key) => cache.get(key),
    remove: (key) => cache.del(key),
  }
}

const SUBJECTS = {
  bentocache: () => bentocache(false),
  'bentocache+redis': () => bentocache(true),
  'cache-manager': () => cacheManager(false),
  'cache-manager+redis': () => cacheManager(true),
}

const cache = await SUBJECTS[subject]()

async function load(key, callers, loadMillis, size) {
  let loads = 0
  let errors = 0
  const factory = async () => {
    loads += 1
    await sleep(loadMillis)
    return 'x'.repeat(size)
  }
  const read = async () => {
    const begun = performance.now()
    try {
      const value = await cache.load(key, factory)
      if (value?.length !== size) errors += 1
    } catch {
      errors += 1
    }
    return Math.round((performance.now() - begun) * 1e3)
  }
  const micros = await Promise.all(Array.from({ length: callers }, read))
  return { loads, errors, micros }
}

// Numbers from 0 to 1, the same for the same seed (mulberry32).
function random(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}

async function reads(keys, tasks, millis, seed) {
  const weights = Array.from({ length: keys }, (_, rank) => 1 / (rank + 1))
  let sum = 0
  const bounds = weights.map((weight) => (sum += weight))
  const next = random(seed)
  const ranks = Array.from({ length: 65536 }, () => {
    const at = next() * sum
    let [low, high] = [0, keys - 1]
    while (low < high) {
      const middle = (low + high) >> 1
      if (bounds[middle] < at) low = middle + 1
      else high = middle
    }
    return `key:${low}`
  })
  let [done, misses, at] = [0, 0, 0]
  const micros = []
  const end = performance.now() + millis
  const task = async () => {
    while (performance.now() < end) {
      const key = ranks[at++ % ranks.length]
      const begun = performance.now()
      if ((await cache.get(key)) == null) misses += 1
      if (done++ % 16 === 0) micros.push((performance.now() - begun) * 1e3)
    }
  }
  const begun = performance.now()
  await Promise.all(Array.from({ length: tasks }, task))
  return { done, misses, seconds: (performance.now() - begun) / 1e3, micros }
}

const COMMANDS = {
  load: (key, callers, millis, size) => load(key, +callers, +millis, +size),
  set: async (key, size, tag) => {
    await cache.set(key, 'x'.repeat(+size), tag && [tag])
    return {}
  },
  remove: async (key) => ({ removed: await cache.remove(key) }),
  tag: async (tag) => ({ removed: await cache.tag(tag) }),
  reads: (keys, tasks, millis, seed) => reads(+keys, +tasks, +millis, +seed),
  fill: async (count, size, tag) => {
    for (let number = 0; number < +count; number += 1) {
      await cache.set(`key:${number}`, 'x'.repeat(+size), tag && [tag])
    }
    return {}
  },
}

const answer = (value) => process.stdout.write(`${JSON.stringify(value)}\n`)
answer({ version: cache.version, settings: cache.settings })
for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...words] = line.split(' ')
  try {
    answer(await COMMANDS[command](...words))
  } catch (error) {
    answer({ failed: String(error?.message ?? error) })
  }
}
process.exit(0)
