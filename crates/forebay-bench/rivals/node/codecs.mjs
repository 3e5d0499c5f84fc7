// Serializers and compressors of Node.js caches on one value, as one line of JSON each.
//
// Arguments: FILE with the value as JSON, SECONDS for each measurement.
import { readFileSync } from 'node:fs'
import zlib from 'node:zlib'

const value = JSON.parse(readFileSync(process.argv[2]))
const millis = Number(process.argv[3]) * 1e3

function rate(work) {
  let count = 0
  const begun = performance.now()
  for (;;) {
    work()
    count += 1
    const took = performance.now() - begun
    if (took >= millis) return (count * 1e3) / took
  }
}

const compressors = {
  none: [(bytes) => bytes, (bytes) => bytes],
  gzip: [(bytes) => zlib.gzipSync(bytes), (bytes) => zlib.gunzipSync(bytes)],
  brotli: [(bytes) => zlib.brotliCompressSync(bytes), (bytes) => zlib.brotliDecompressSync(bytes)],
}
for (const [compressor, [deflate, inflate]] of Object.entries(compressors)) {
  const write = () => deflate(Buffer.from(JSON.stringify(value)))
  const bytes = write()
  const read = () => JSON.parse(inflate(bytes).toString())
  if (JSON.stringify(read()) !== JSON.stringify(value)) throw new Error('another value')
  const row = { serializer: 'JSON', compressor, bytes: bytes.length, write: rate(write), read: rate(read) }
  console.log(JSON.stringify(row))
}
console.log(JSON.stringify({ version: `Node.js ${process.version}, zlib at its default levels` }))
