// Starts programs on free loopback ports, ends them by their ids, and asks for raw responses.

import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import zlib from 'node:zlib';

/// Longest wait for a program to be ready, or for one result, in milliseconds.
export const WAIT_MAX = 30_000;

/// Processes that a case started; they are ended in reverse order.
export class Stage {
  #ends = [];

  later(end) {
    this.#ends.unshift(end);
  }

  async end() {
    for (const end of this.#ends) await end();
  }

  async folder() {
    const folder = await mkdtemp(path.join(os.tmpdir(), 'forebay-real-'));
    this.later(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }));
    return folder;
  }

  /// Starts a program; its output is shown if the case fails.
  start(command, args, options = {}) {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    const program = { child, output: '', error: null };
    child.on('error', (error) => { program.error = error; });
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (data) => { program.output += data; });
    }
    const ended = new Promise((resolve) => {
      child.once('exit', resolve);
      child.once('error', resolve);
    });
    this.later(async () => {
      child.kill('SIGTERM');
      const killing = setTimeout(() => child.kill('SIGKILL'), 15_000);
      await ended;
      clearTimeout(killing);
    });
    return program;
  }

  /// Serves with a Node request listener.
  async listen(listener) {
    const server = http.createServer(listener);
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.later(() => { server.closeAllConnections(); server.close(); });
    return `http://127.0.0.1:${server.address().port}`;
  }

  /// Starts the cache in front of an origin, with these lines in its site, and returns its URL.
  async forebay(origin, site = '') {
    return (await this.serve(origin, site)).cache;
  }

  /// Starts the cache in front of an origin, with these lines in its site and at the top, and returns
  /// the URLs of its listeners.
  async serve(origin, site = '', top = '') {
    const file = path.join(await this.folder(), 'forebay.toml');
    await writeFile(file, `listen = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n${top}
      [[site]]\nid = "real"\norigin = "${origin}"\n${site}\n`);
    const program = this.start(process.env.FOREBAY, ['serve', '--config', file]);
    const ready = /forebay ready: (http:\/\/[0-9.:]+) \(admin (http:\/\/[0-9.:]+)/;
    await until('forebay is ready', program, () => ready.test(program.output));
    const [, cache, admin] = program.output.match(ready);
    return { cache, admin, program };
  }
}

/// Waits until `reached` gives true; the output of `program` explains why it did not.
export async function until(what, program, reached) {
  const end = Date.now() + WAIT_MAX;
  while (!(await reached())) {
    const gone = program.error ?? program.child?.exitCode;
    if (Date.now() > end || (gone !== null && gone !== undefined)) {
      throw new Error(`waited in vain until ${what}: ${program.error ?? ''}${program.output}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/// One request on a connection of its own: no cookie jar, no decompression, no cache.
export function ask(url, headers = {}, method = 'GET') {
  return new Promise((resolve, reject) => {
    const request = http.request(url, { method, headers, agent: false }, (response) => {
      const pieces = [];
      response.on('data', (piece) => pieces.push(piece));
      response.on('error', reject);
      response.on('end', () => {
        const raw = Buffer.concat(pieces);
        const coding = response.headers['content-encoding'];
        const body = coding === 'gzip' && raw.length > 0 ? zlib.gunzipSync(raw) : raw;
        resolve({ status: response.statusCode, headers: response.headers, body: body.toString() });
      });
    });
    request.setTimeout(WAIT_MAX, () => request.destroy(new Error(`no response from ${url}`)));
    request.on('error', reject);
    request.end();
  });
}

export function isUp(url) {
  return ask(url).then((reply) => reply.status < 500, () => false);
}

export function same(found, expected, what) {
  const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${what}: expected ${other}, got ${one}`);
}
