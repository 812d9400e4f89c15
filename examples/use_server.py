"""Send images to a server over HTTP, and download the state of the session.

    ostta serve --backbone embedded --state-dir sessions
    python examples/use_server.py http://127.0.0.1:8000

Without an address, the script starts a server in this process.
"""

import io
import sys
import threading
import time

import ostta
from ostta.client import Client
from ostta.data import open_dataset


def start_server() -> str:
    import uvicorn

    from ostta.server import LocalEngine, create_app
    from ostta.server.logs import log_to

    log_to(io.StringIO())  # no lines about requests
    app = create_app(LocalEngine(ostta.StreamPool("embedded")))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


photos, digits = open_dataset("sample:cifar10"), open_dataset("sample:mnist")
with Client(sys.argv[1] if len(sys.argv) > 1 else start_server()) as client:
    session = client.create(photos.classes, name="door")
    for number in range(20):
        answer = client.send(session["id"], photos.image(number) if number % 2 else digits.image(number))
    print(f"{answer['label'] or 'unknown'}, probability {answer['probability']:.2f}")
    print(f"{client.session(session['id'])['steps']} steps, state of {len(client.state(session['id'])):,} bytes")
