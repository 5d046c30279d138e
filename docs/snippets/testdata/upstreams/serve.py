"""Serves the application of shop.py with the server of the standard library."""
import os
from wsgiref.simple_server import WSGIRequestHandler, make_server

from shop import application


class Handler(WSGIRequestHandler):
    def log_message(self, *args):
        pass


make_server("127.0.0.1", int(os.environ["PORT"]), application, handler_class=Handler).serve_forever()
