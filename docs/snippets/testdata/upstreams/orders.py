"""The orders of an upstream: a line of ORDERS for each. X-Do has one of its steps fail."""
import os


def place(key, environ):
    if environ.get("HTTP_X_DO") == "is busy":
        raise RuntimeError("rolled back")
    with open(os.environ["ORDERS"], "r+") as orders:
        if key not in orders.read().split("\n"):
            orders.write(key + "\n")


def confirm(environ):
    if environ.get("HTTP_X_DO") == "sends no mail":
        raise RuntimeError("no mail")
