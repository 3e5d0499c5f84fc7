// The page of the benchmarks in a browser: wide and narrow, light and dark, without a network.

import { access } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';

import { Browser, check } from './dashboard.mjs';
import { same } from './lib.mjs';

/// Checks the page that the last run of the benchmarks wrote.
export async function benchmarks(stage) {
  const file = process.env.REPORT;
  await access(file).catch(() => {
    throw new Error(`${file} is missing: run \`cargo xtask bench stampede --quick\``);
  });
  const browser = await Browser.start(stage);
  const view = await browser.open(pathToFileURL(file).href);
  const sections = await view.page.$$eval('h2', (titles) => titles.length);
  same(sections > 0, true, 'the page shows a benchmark');
  await check('benchmarks', view);
}
