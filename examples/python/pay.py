"""Pays order 42 under a lock: in PostgreSQL, or over HTTP where --store names a service.

With --stall the process stops itself (SIGSTOP), as a long pause would: before its last
look at the hold, or between that look and the write, where no look can help.
"""

import argparse
import contextlib
import json
import os
import signal
import sys

import psycopg

import fenced

LOCK = "orders/42"


@contextlib.contextmanager
def fence(conn, hold, left):
    """A transaction that commits only while nobody newer has written.

    Advance first, then read, then write: what was read before may lack the last
    holder's write. If this process stalls, the server ends the transaction after left
    seconds, so that the next holder does not wait for its row locks.
    """
    limit = str(max(1, int(left * 1000)))
    try:
        with conn.transaction():
            for name in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
                conn.execute("SELECT set_config(%s, %s, true)", [name, limit])
            conn.execute("SELECT fence.advance(%s, %s, false)", [hold.lock, hold.token])
            yield
            if conn.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
                # Its COMMIT would be a ROLLBACK, and say nothing.
                raise psycopg.errors.InFailedSqlTransaction("nothing is written: an error was ignored")
    except psycopg.Error as err:
        if err.diag.sqlstate != "LF001":  # no other error means stale
            raise
        detail = json.loads(err.diag.message_detail)
        raise fenced.Stale(detail["token"], detail["current"]) from None


def pay(conn, token):
    conn.execute(
        "INSERT INTO orders (id, paid_by) VALUES (42, %s)"
        " ON CONFLICT (id) DO UPDATE SET paid_by = EXCLUDED.paid_by",
        [token],
    )


def write(args, hold, left):
    if args.store:  # it compares the token in its own transaction, and answers 412
        fenced.send("PUT", args.store + "/orders/42", headers={"Fencing-Token": str(hold.token)}, timeout=left)
        return
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        with contextlib.nullcontext() if args.no_fence else fence(conn, hold, left):
            pay(conn, hold.token)


def run(args):
    with fenced.acquire(LOCK, args.owner, args.ttl, wait=30) as hold:
        print(f"{args.owner} holds {LOCK} with token {hold.token}", flush=True)
        if args.stall == "look":
            os.kill(os.getpid(), signal.SIGSTOP)
        left = hold.check()
        if args.stall == "write":
            os.kill(os.getpid(), signal.SIGSTOP)
        write(args, hold, left)
        print(f"{args.owner} has paid with token {hold.token}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owner", default="pay.py", help="name of this worker, for people")
    parser.add_argument("--ttl", type=float, default=15, help="seconds without renewal after which the lock is free")
    parser.add_argument("--store", metavar="URL", help="write over HTTP instead of to PostgreSQL")
    parser.add_argument("--stall", choices=("look", "write"), help="where to stop")
    parser.add_argument("--no-fence", action="store_true", help="write without the token, as most programs do")
    args = parser.parse_args()
    try:
        run(args)
    except fenced.Stale as refusal:
        sys.exit(f"{args.owner} is refused by the store: {refusal}")
    except fenced.Lost as loss:
        sys.exit(f"{args.owner} stops before the write: {loss}")


if __name__ == "__main__":
    main()
