// Cases with other people's servers and clients: one line each, and 1 as the exit code if one fails.
//
// node run.mjs [NAME...]; FOREBAY names the binary.

import { chmod, mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';

import compression from 'compression';
import cors from 'cors';
import express from 'express';

import { benchmarks } from './benchmarks.mjs';
import { dashboard, dashboardDay } from './dashboard.mjs';
import { Stage, ask, freePort, isUp, same, until } from './lib.mjs';

const TEXT = 'hello, this is a page of some length. '.repeat(100);

/// Policies under which a shared cache validates at each request, or does not.
const POLICIES = ['public, max-age=60', 'no-cache', 'public, max-age=0'];

/// Asks with gzip and without in turn: no client gets a coding that it did not offer, or another body.
async function codings(url, text) {
  for (const accepted of ['gzip', null, 'gzip', 'identity', 'br;q=0, gzip', null]) {
    const reply = await ask(url, accepted === null ? {} : { 'Accept-Encoding': accepted });
    const coding = accepted?.includes('gzip') ? 'gzip' : undefined;
    const what = `${url} with Accept-Encoding ${accepted}`;
    same([reply.status, reply.headers['content-encoding']], [200, coding], what);
    same(reply.body === text, true, `${what}: the body`);
  }
}

const cases = {
  benchmarks,

  dashboard,
  'dashboard-day': dashboardDay,

  async 'express-compression'(stage) {
    const app = express();
    app.use(compression({ threshold: 0 }));
    POLICIES.forEach((policy, number) => {
      app.get(`/${number}`, (_, response) => response.set('Cache-Control', policy).send(TEXT));
    });
    const cache = await stage.forebay(await stage.listen(app));
    for (const number of POLICIES.keys()) await codings(`${cache}/${number}`, TEXT);
  },

  async 'express-cors'(stage) {
    const app = express();
    const origins = ['http://a.example', 'http://b.example'];
    app.use(cors({ origin: origins, credentials: true }));
    POLICIES.forEach((policy, number) => {
      app.get(`/${number}`, (_, response) => response.set('Cache-Control', policy).send(TEXT));
    });
    const cache = await stage.forebay(await stage.listen(app));
    const others = [undefined, 'http://evil.example'];
    for (const number of POLICIES.keys()) {
      for (const origin of [...origins, ...others, ...origins, ...others]) {
        const reply = await ask(`${cache}/${number}`, origin ? { Origin: origin } : {});
        const allowed = origins.includes(origin) ? origin : undefined;
        const found = [reply.status, reply.headers['access-control-allow-origin']];
        same(found, [200, allowed], `${POLICIES[number]} for ${origin}`);
      }
    }
  },

  async 'flask-sessions'(stage) {
    const port = await freePort();
    const flask = stage.start('flask', ['--app', 'app', 'run', '--port', `${port}`]);
    const origin = `http://127.0.0.1:${port}`;
    await until('Flask answers', flask, () => isUp(`${origin}/seen/none`));
    const cache = await stage.forebay(origin);
    const sessions = { stranger: {} };
    for (const name of ['ann', 'bob']) {
      const reply = await ask(`${cache}/login/${name}`, {}, 'POST');
      same(reply.status, 200, `login of ${name}`);
      sessions[name] = { Cookie: reply.headers['set-cookie'][0].split(';')[0] };
    }
    const name = (cookie) => JSON.parse(Buffer.from(cookie.split(/[=.]/)[1], 'base64url')).name;
    for (const page of ['me', 'seen']) {
      for (const policy of ['none', 'no-cache', 'max-age=60', 'public, max-age=60', 'private']) {
        const url = `${cache}/${page}/${encodeURIComponent(policy)}`;
        for (const who of ['ann', 'bob', 'stranger', 'bob', 'ann', 'stranger']) {
          for (const condition of [{}, { 'If-None-Match': 'W/"version"' }]) {
            const reply = await ask(url, { ...sessions[who], ...condition });
            const what = `${page} with ${policy} for ${who}, ${JSON.stringify(condition)}`;
            if (reply.status !== 304) {
              same([reply.status, reply.body], [200, `hello ${who}`], what);
            }
            for (const cookie of reply.headers['set-cookie'] ?? []) {
              same(name(cookie) ?? 'stranger', who, `${what}: the cookie`);
            }
          }
        }
      }
    }
  },

  async 'nginx-gzip-vary'(stage) {
    const [folder, port] = [await stage.folder(), await freePort()];
    await mkdir(path.join(folder, 'html'));
    await chmod(folder, 0o755);
    const locations = POLICIES.map((policy, number) => (
      `location /${number}.txt { add_header Cache-Control "${policy}"; }`
    ));
    for (const number of POLICIES.keys()) {
      await writeFile(path.join(folder, 'html', `${number}.txt`), TEXT);
    }
    const file = path.join(folder, 'nginx.conf');
    await writeFile(file, `
      daemon off; pid ${folder}/pid; error_log stderr;
      events {}
      http {
        access_log off; gzip on; gzip_vary on; gzip_min_length 0; gzip_types *;
        gzip_http_version 1.0; gzip_proxied any;
        client_body_temp_path ${folder}/a; proxy_temp_path ${folder}/b;
        fastcgi_temp_path ${folder}/c; uwsgi_temp_path ${folder}/d; scgi_temp_path ${folder}/e;
        server { listen 127.0.0.1:${port}; root ${folder}/html; ${locations.join(' ')} }
      }`);
    const nginx = stage.start('nginx', ['-p', folder, '-c', file]);
    const origin = `http://127.0.0.1:${port}`;
    await until('nginx answers', nginx, () => isUp(`${origin}/0.txt`));
    const cache = await stage.forebay(origin);
    for (const number of POLICIES.keys()) await codings(`${cache}/${number}.txt`, TEXT);
  },

  // Its check is `OPTIONS / HTTP/1.0` without Host.
  async 'haproxy-httpchk'(stage) {
    const app = express();
    app.options('/', (_, response) => response.set('Allow', 'GET, OPTIONS').send());
    app.get('/page', (_, response) => response.set('Cache-Control', 'max-age=60').send(TEXT));
    const cache = await stage.forebay(await stage.listen(app));
    const [folder, port] = [await stage.folder(), await freePort()];
    const file = path.join(folder, 'haproxy.cfg');
    await writeFile(file, `
global
    stats socket ${folder}/stats
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
frontend in
    bind 127.0.0.1:${port}
    default_backend cache
backend cache
    option httpchk OPTIONS /
    default-server inter 200ms rise 2 fall 1 init-addr none
    server forebay ${new URL(cache).host} check
`);
    const haproxy = stage.start('haproxy', ['-db', '-f', file]);
    // A server is up at the start: five checks decide.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    if (/is DOWN/.test(haproxy.output)) throw new Error(`the check failed: ${haproxy.output}`);
    const up = async () => (await ask(`http://127.0.0.1:${port}/page`)).status === 200;
    await until('HAProxy forwards', haproxy, up);
  },

  // If-None-Match is no safelisted field, so that a preflight comes first; and a script may read a
  // 304 only if it allows the script's origin.
  async 'chromium-fetch'(stage) {
    const app = express();
    let results = null;
    const page = await stage.listen(express()
      .get('/', (_, response) => response.type('html').send(script(cache)))
      .post('/result', express.json(), (request, response) => {
        results = request.body;
        response.send();
      }));
    app.use(cors({ origin: page, exposedHeaders: ['ETag', 'Age'] }));
    app.get('/data', (_, response) => response.set('Cache-Control', 'max-age=60').send(TEXT));
    const cache = await stage.forebay(await stage.listen(app));
    const chromium = stage.start('chromium', ['--headless=new', '--no-sandbox', '--disable-gpu',
      '--no-first-run', `--user-data-dir=${await stage.folder()}`, page]);
    await until('the page has its results', chromium, () => results !== null);
    const expected = [[200, TEXT.length], [304, 0], [304, 0], [200, TEXT.length]];
    same(results, expected, 'status and length of each fetch');
  },
};

const script = (cache) => `<!doctype html><script>
  (async () => {
    const results = [];
    const ask = async (headers) => {
      try {
        // Otherwise a fetch with a condition says no-cache.
        const patient = { 'Cache-Control': 'max-age=600', ...headers };
        const reply = await fetch('${cache}/data', { headers: patient, cache: 'no-store' });
        results.push([reply.status, (await reply.text()).length]);
        return reply.headers.get('ETag');
      } catch (error) {
        results.push([String(error), 0]);
        return null;
      }
    };
    const etag = await ask({});
    await ask({ 'If-None-Match': etag ?? '*' });
    await ask({ 'If-None-Match': etag ?? '*' });
    await ask({ 'If-None-Match': '"another"' });
    const headers = { 'Content-Type': 'application/json' };
    await fetch('/result', { method: 'POST', headers, body: JSON.stringify(results) });
  })();
</script>`;

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !(name in cases));
if (unknown.length > 0) {
  console.error(`no such case: ${unknown.join(', ')}; there are ${Object.keys(cases).join(', ')}`);
  process.exit(2);
}
let failed = 0;
for (const [name, play] of Object.entries(cases)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  const stage = new Stage();
  try {
    await play(stage);
    console.log(`ok    ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${name}: ${error.message}`);
  }
  await stage.end();
}
process.exit(failed === 0 ? 0 : 1);
