// Requests to the server: answers are lines of JSON, each handed on when it comes.

async function ask(name, data, signal, receive) {
  const response = await fetch(`ask/${name}`, {
    method: "POST", signal, headers: { "Content-Type": "application/json" },
    body: JSON.stringify(data),
  });
  if (!response.ok) return receive(await response.json());
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return undefined;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) receive(JSON.parse(line));
  }
}

export const work = {};  // by name the request that runs; a new one of the same name ends it

export async function start(name, data, receive) {
  work[name]?.abort();
  const own = (work[name] = new AbortController());
  try {
    await ask(name, data, own.signal, (answer) => own.signal.aborted || receive(answer));
  } catch (error) {
    if (error.name !== "AbortError" && !own.signal.aborted)
      receive({ error: "Connection", text: "the server does not answer; is derivatrix playground still running?" });
  }
  if (work[name] === own) delete work[name];
}
