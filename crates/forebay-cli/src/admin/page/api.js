// Requests to the admin listener. The token is kept in the session storage of the tab.

const KEY = "token";

/** Failure of a request, with the status code; 0 without a response. */
export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const token = {
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

function headers(more = {}) {
  const value = sessionStorage.getItem(KEY);
  return value ? { ...more, Authorization: `Bearer ${value}` } : more;
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    throw new Failure(0, error.message);
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  const { error, errors } = body;
  throw new Failure(answer.status, [error ?? `status ${answer.status}`].concat(errors ?? []).join(" "));
}

/** Value of a GET; `null` for a path that this forebay does not have. */
export async function get(path) {
  return (await ask(path, { headers: headers() })).json();
}

export async function post(path, value) {
  const body = JSON.stringify(value);
  return (await ask(path, { method: "POST", headers: headers({ "Content-Type": "application/json" }), body })).json();
}

/** Calls `onEvent` with each event of a stream until it ends or `signal` aborts it. */
export async function stream(path, signal, onEvent) {
  // `EventSource` cannot send a token.
  const answer = await ask(path, { headers: headers(), signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const data = text.slice(0, end).split("\n").find((line) => line.startsWith("data: "));
      text = text.slice(end + 2);
      if (data) onEvent(JSON.parse(data.slice(6)));
    }
  }
}
