"""Locks of fenced for Python, with nothing but the standard library: copy this file.

The lease is for efficiency: ask check() before each step, and stop when it raises. The
fence is for correctness: send token with every write, and let the store compare it.
"""

import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request
import uuid

SERVER = os.environ.get("FENCED_ADDR", "http://127.0.0.1:7420")
API_KEY = os.environ.get("FENCED_API_KEY")


class Refused(Exception):
    """A service said no. code is the stable name of the reason: branch on it."""

    def __init__(self, problem):
        self.code, self.problem = problem.get("code"), problem
        super().__init__(f"{self.code}: {problem.get('detail') or problem.get('title')}")


class Stale(Exception):
    """The store has seen a newer holder and wrote nothing. Do not repeat it."""

    def __init__(self, token, current):
        super().__init__(f"token {token} is stale, the current one is {current}")
        self.token, self.current = token, current


class Lost(Exception):
    """The lease may be over and the lock another's: stop."""


class Unavailable(Exception):
    """No answer, or "not now". What was asked for may have happened: repeat it."""


def send(method, url, body=None, headers=(), timeout=30.0):
    """Makes one request and returns the JSON of the answer, None where it is empty."""
    data = None if body is None else json.dumps(body).encode()
    headers = dict(headers, **{"Content-Type": "application/json"})
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read()
        return json.loads(text) if text else None
    except urllib.error.HTTPError as no:
        raise refusal(no) from None
    except BROKEN as err:
        raise Unavailable(str(err)) from None  # without the URL: a hold's id is secret


BROKEN = (OSError, http.client.HTTPException, ValueError)  # ValueError: no JSON


def refusal(answer):
    """Returns what to raise for an answer that is an error. A fault of the service, or
    half of an answer, does not say that nothing has happened."""
    unclear = Unavailable(str(answer))
    if answer.headers.get_content_type() != "application/problem+json" or answer.code == 429 or answer.code >= 500:
        return unclear
    try:
        problem = json.load(answer)
    except BROKEN:
        return unclear
    if problem.get("code") == "stale_token":
        return Stale(problem.get("presented"), problem.get("current"))
    return Refused(problem)


def api(method, path, body=None, key=None, timeout=30.0):
    """Calls the lock server."""
    headers = {"Authorization": "Bearer " + API_KEY} if API_KEY else {}
    if key:
        headers["Idempotency-Key"] = key
    return send(method, SERVER + path, body, headers, timeout)


def now():
    """Seconds on a clock that goes on while the machine sleeps, as the lease does."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def acquire(lock, owner, ttl=15.0, wait=20.0):
    """Waits for the lock, at most wait seconds (30 is the most), and returns a Hold.

    Raises Refused with code lock_held when another has it still, Unavailable when no
    server could answer; what that may have left behind ends with its TTL.
    """
    body = {"lock": lock, "owner": owner, "ttl": f"{ttl}s", "wait": f"{wait}s"}
    key = str(uuid.uuid4())  # names this attempt: a repeat finds the same hold
    for pause in (0.5, 1, 2, 4, 0):
        sent = now()
        try:
            return Hold(api("POST", "/v1/holds", body, key, wait + 10), sent)
        except Unavailable:
            if not pause:
                raise
        except Refused as no:
            if no.code != "hold_gone" or not pause:
                raise
            key = str(uuid.uuid4())  # it ended before its answer was heard: ask anew
        time.sleep(pause)


class Hold:
    """A lock that is held, and renewed by a thread until it is released or lost."""

    def __init__(self, answer, sent):
        self.lock, self.token = answer["lock"], answer["token"]
        self._path, self._ttl = "/v1/holds/" + answer["hold"], answer["ttl_ms"] / 1000
        self._over = threading.Event()
        self._confirm(answer, sent)
        if self._until - now() < self._ttl / 2:  # it was waited for: ask for time anew
            self._renew(timeout=5)
        threading.Thread(target=self._keep, daemon=True).start()

    def check(self):
        """Returns the seconds that are left. Raises Lost once the lease may be over."""
        left = self._until - now()
        if left <= 0:
            self._over.set()  # for good: an answer that comes now revives nothing
        if self._over.is_set():
            raise Lost(f"the hold of {self.lock} with token {self.token} is over")
        return left

    def _confirm(self, answer, sent):
        # Counted from the sending: the server's own count began later. A tenth is
        # kept back for clocks that do not run alike.
        self._until = sent + answer["expires_in_ms"] / 1000 - self._ttl / 10

    def _renew(self, timeout):
        sent = now()
        self._confirm(api("POST", self._path + "/renew", timeout=timeout), sent)

    def _keep(self):
        pause = self._ttl / 3
        while not self._over.wait(pause):
            try:
                self.check()
                self._renew(timeout=self._ttl / 5)
                pause = self._ttl / 3
            except (Refused, Lost):
                self._over.set()  # the server says that it has ended, or the clock does
            except Unavailable:
                pause = self._ttl / 20

    def release(self):
        """Gives the lock back. If no answer comes, it ends with its TTL."""
        self._over.set()
        try:
            api("DELETE", self._path, timeout=5)
        except (Refused, Unavailable):
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
