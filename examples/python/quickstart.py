"""Takes a lock, does its work under it, and gives it back."""

import fenced

with fenced.acquire("orders/42", owner="quickstart.py") as hold:
    print("I hold orders/42 with token", hold.token)  # send it with every write
    hold.check()  # before each step: raises fenced.Lost once the lease may be over
