// Requests to the control port, with the session's token against forged requests.

/// A request that failed. `message` is the server's, for people; `status` is 0 if nothing answered.
export class Failure extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const TIMEOUT_MS = 40000; // the server answers within 30 s
const OPEN = { user: null, role: 'admin', sign_in: false, csrf: null };
const ROLES = ['viewer', 'operator', 'admin'];

export let session = OPEN;

/// Whether the session may do what needs this role. The server checks it again.
export const may = (role) => ROLES.indexOf(session.role) >= ROLES.indexOf(role);

async function send(method, path, body) {
  const headers = {};
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (method !== 'GET' && session.csrf) headers['fondaco-csrf'] = session.csrf;
  let response;
  try {
    response = await fetch(path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin', cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch (error) {
    const slow = error.name === 'TimeoutError';
    throw new Failure(0, 'no_answer', slow ? `no answer to ${method} ${path}` : 'the control port does not answer');
  }
  if (response.ok) return response;
  const text = await response.text();
  let detail = {};
  try {
    detail = JSON.parse(text).error ?? {};
  } catch { /* a proxy's page, not the server's JSON */ }
  throw new Failure(response.status, detail.code ?? '', detail.message ?? `${method} ${path}: status ${response.status}`);
}

async function request(method, path, body) {
  let response;
  try {
    response = await send(method, path, body);
  } catch (failure) {
    if (failure.status === 401 && path !== '/v1/session') document.dispatchEvent(new Event('signed-out'));
    if (failure.status !== 403 || method === 'GET') throw failure;
    // Another tab may have signed in anew, which changes the token: ask once.
    const { csrf } = session;
    await restore();
    if (session.csrf === csrf) throw failure;
    response = await send(method, path, body);
  }
  const text = await response.text();
  return text === '' ? null : JSON.parse(text);
}

export const get = (path) => request('GET', path);
export const post = (path, body = {}) => request('POST', path, body);
export const put = (path, body) => request('PUT', path, body);
export const change = (path, body) => request('PATCH', path, body);
export const remove = (path) => request('DELETE', path);

/// The bytes that a path answers with.
export const raw = async (path) => new Uint8Array(await (await send('GET', path)).arrayBuffer());

/// One segment of a path.
export const segment = (name) => encodeURIComponent(name);

/// The session that the cookie names; a server without sessions lets everybody do everything.
export async function restore() {
  try {
    session = await get('/v1/session');
  } catch (failure) {
    if (failure.status !== 404) throw failure;
    session = OPEN;
  }
}

export async function signIn(credentials) {
  session = await post('/v1/session', credentials);
}

export async function signOut() {
  await remove('/v1/session');
  session = OPEN;
}
