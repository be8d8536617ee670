"""Runs one scenario on one HTTP/2 connection to a port. The library, python3-h2, checks every frame that it receives.

Prints the reply of each stream, and the events of the connection, as JSON. Does not check the certificate.
"""

import json
import socket
import ssl
import sys

import h2.config
import h2.connection
import h2.events
import h2.settings

port, scenario = int(sys.argv[1]), sys.argv[2]

context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
context.set_alpn_protocols(["h2"])
sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 10))
connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
streams = {}
seen = []


def send():
    sock.sendall(connection.data_to_send())


def head(method, path, *others):
    pseudo = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
    return pseudo + list(others)


def request(stream, method, path, *others, ends=True, **more):
    streams[stream] = {"status": None, "bytes": 0, "text": "", "ended": False}
    connection.send_headers(stream, head(method, path, *others), end_stream=ends, **more)
    send()


def take(event, credits):
    stream = streams.get(getattr(event, "stream_id", None))
    if isinstance(event, h2.events.ResponseReceived):
        stream["status"] = dict(event.headers)[":status"]
    elif isinstance(event, h2.events.DataReceived):
        stream["bytes"] += len(event.data)
        stream["text"] = (stream["text"] + event.data.decode())[:40]
        if credits and event.flow_controlled_length > 0:
            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
    elif isinstance(event, h2.events.StreamEnded):
        stream["ended"] = True
    elif isinstance(event, h2.events.StreamReset):
        stream["reset"] = int(event.error_code)
    elif isinstance(event, h2.events.SettingsAcknowledged):
        seen.append("settings")
    elif isinstance(event, h2.events.ConnectionTerminated):
        seen.append("goaway")


def until(is_done, credits=True):
    while not is_done():
        data = sock.recv(65536)
        if not data:
            seen.append("closed")
            return
        for event in connection.receive_data(data):
            take(event, credits)
        send()


def ended(*numbers):
    return lambda: all(streams[each]["ended"] or "reset" in streams[each] for each in numbers)


connection.initiate_connection()
send()
item = "/api/work-items/5"

if scenario == "priorities":
    request(1, "GET", item, priority_weight=1, priority_depends_on=0, priority_exclusive=True)
    connection.prioritize(3, weight=256, depends_on=1)
    request(3, "GET", item, priority_weight=200, priority_depends_on=1)
    connection.prioritize(1, depends_on=3)
    send()
    until(ended(1, 3))
elif scenario == "trailers":
    request(1, "PUT", item, ends=False)
    connection.send_data(1, b'{"a":')
    connection.send_data(1, b"1}", pad_length=200)
    connection.send_headers(1, [("x-checksum", "1"), ("x-request-id", "late")], end_stream=True)
    send()
    until(ended(1))
elif scenario == "windows":
    # The window starts at 0, grows in small steps, falls below 0 during the reply, and opens at the end.
    def window(size):
        connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: size})
        count = seen.count("settings") + 1
        send()
        until(lambda: seen.count("settings") == count, credits=False)

    until(lambda: "settings" in seen)
    window(0)
    request(1, "GET", item)
    request(3, "GET", item)
    until(lambda: streams[1]["status"] and streams[3]["status"])
    for _ in range(20):
        before = streams[1]["bytes"]
        connection.increment_flow_control_window(100, 1)
        send()
        until(lambda: streams[1]["bytes"] == before + 100, credits=False)
    window(1000)
    window(0)
    window(65535)
    until(ended(1, 3))
elif scenario == "table":
    for size in (0, 4096, 100, 65536):
        connection.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: size})
        for _ in range(3):
            stream = connection.get_next_available_stream_id()
            request(stream, "GET", item)
            until(ended(stream))

print(json.dumps({"streams": streams, "seen": [each for each in seen if each != "settings"]}))
