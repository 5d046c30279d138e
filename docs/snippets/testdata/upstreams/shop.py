import logging, orders

def application(environ, start_response):
    commit, status = "no", "503 Service Unavailable"
    try:
        orders.place(environ["HTTP_LATCH_KEY"], environ)
        commit = "yes"
        orders.confirm(environ)
        status = "201 Created"
    except Exception as e:
        logging.exception(e)
    start_response(status, [("Latch-Commit", commit), ("Content-Length", "5")])
    return [b"order"]
