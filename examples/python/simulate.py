"""Two workers, one lock, one database: worker-a stalls past its lease, worker-b pays,
and worker-a goes on. Three times: without a fence, with one, and with a look in time.
"""

import os
import signal
import subprocess
import sys

import psycopg

PAY = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "pay.py")]


def play(title, *stalled):
    """Runs both workers and returns how the stalled one exited."""
    print(f"\n{title}", flush=True)
    a = subprocess.Popen([*PAY, "--owner", "worker-a", "--ttl", "2", *stalled])
    _, status = os.waitpid(a.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        sys.exit("worker-a did not stall")
    try:
        subprocess.run([*PAY, "--owner", "worker-b"], check=True)
    finally:
        os.kill(a.pid, signal.SIGCONT)
    return a.wait()


def paid_by(conn):
    return conn.execute("SELECT paid_by FROM orders WHERE id = 42").fetchone()[0]


def main():
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, paid_by bigint NOT NULL)")
        ended = play("no fence: the late write lands", "--no-fence", "--stall", "write")
        late = paid_by(conn)
        print(f"the order is paid by {late}, the worker that had lost the lock")

        refused = play("a fence: the database refuses it", "--stall", "write")
        newer = paid_by(conn)
        print(f"the order is paid by {newer}, the newest holder")

        stopped = play("a look at the hold in time: nothing is sent", "--stall", "look")
        newest = paid_by(conn)
        print(f"the order is paid by {newest}, the newest holder")
    if (ended, refused, stopped) != (0, 1, 1) or not late < newer < newest:
        sys.exit("this is not what should happen")


if __name__ == "__main__":
    main()
