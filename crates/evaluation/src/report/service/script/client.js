// The service. A key is kept here alone, and is gone with the page.
let key = "";

// The text of an error, in either of the service's shapes.
const reasonOf = (text, status) => {
  try {
    const { error } = JSON.parse(text);
    return error.message ?? String(error);
  } catch {
    return text || `the service answered with status ${status}`;
  }
};

class Refused extends Error {}

// A response, or the error that the service tells. Addresses are relative: a proxy may put the service below a path.
const call = async (route, body, signal) => {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const request = { headers, signal, cache: "no-store", credentials: "same-origin" };
  if (body !== undefined) {
    headers["content-type"] = "application/json";
    Object.assign(request, { method: "POST", body: JSON.stringify(body) });
  }
  let response;
  try {
    response = await fetch(route.replace(/^\//, ""), request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The service does not answer. It may have ended.");
  }
  if (response.status === 401) {
    byId("key").hidden = false;
    byId("key").elements.key.focus();
    throw new Refused(key ? "The service does not know this key." : "The service needs a key.");
  }
  if (!response.ok) throw new Refused(reasonOf(await response.text(), response.status));
  return response;
};

// The data of a stream of server-sent events, as they arrive.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) yield JSON.parse(event.slice("data: ".length));
  }
}
