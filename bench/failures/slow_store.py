#!/usr/bin/env python3
"""A read-only object store: serves the files of a directory by the part of the S3 protocol that inputs need.

usage: slow_store.py ADDRESS PORT DIRECTORY SLOW_ADDRESS BYTES_PER_SECOND

The bucket is `lake`. Clients at SLOW_ADDRESS get at most BYTES_PER_SECOND; other clients have no limit.
"""

import email.utils
import hashlib
import os
import re
import socketserver
import sys
import time
import urllib.parse
import xml.sax.saxutils
from http.server import BaseHTTPRequestHandler

ADDRESS, PORT, DIRECTORY, SLOW_ADDRESS, BYTES_PER_SECOND = (
    sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], float(sys.argv[5]))
BUCKET = "/lake"
PIECE_SECONDS = 0.25


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query, keep_blank_values=True)
        if url.path.rstrip("/") == BUCKET:
            return self.list(query.get("prefix", [""])[0])
        key = urllib.parse.unquote(url.path)[len(BUCKET) + 1:]
        path = os.path.normpath(os.path.join(DIRECTORY, key))
        if not path.startswith(DIRECTORY + "/") or not os.path.isfile(path):
            return self.answer(404, body=b"<Error><Code>NoSuchKey</Code></Error>")
        return self.object(path)

    do_HEAD = do_GET

    def object(self, path):
        size, modified = os.path.getsize(path), os.path.getmtime(path)
        first, last, status = 0, size - 1, 200
        headers = [("ETag", etag(path)), ("Last-Modified", email.utils.formatdate(modified, usegmt=True)),
                   ("Accept-Ranges", "bytes"), ("Content-Type", "application/octet-stream")]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted:
            first = int(wanted[1])
            last = min(int(wanted[2]), last) if wanted[2] else last
            status = 206
            headers.append(("Content-Range", f"bytes {first}-{last}/{size}"))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        if self.command == "HEAD":
            return
        with open(path, "rb") as file:
            file.seek(first)
            left = last - first + 1
            while left > 0:
                slow = self.client_address[0] == SLOW_ADDRESS
                piece = file.read(min(left, max(1, int(BYTES_PER_SECOND * PIECE_SECONDS)) if slow else left))
                if slow:
                    time.sleep(len(piece) / BYTES_PER_SECOND)
                self.wfile.write(piece)
                self.wfile.flush()
                left -= len(piece)

    def list(self, prefix):
        found = []
        for directory, _, names in os.walk(DIRECTORY):
            for name in names:
                path = os.path.join(directory, name)
                key = os.path.relpath(path, DIRECTORY)
                if key.startswith(prefix):
                    found.append((key, path))
        rows = "".join(
            f"<Contents><Key>{xml.sax.saxutils.escape(key)}</Key><Size>{os.path.getsize(path)}</Size>"
            f"<ETag>{xml.sax.saxutils.escape(etag(path))}</ETag><StorageClass>STANDARD</StorageClass>"
            f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(os.path.getmtime(path)))}</LastModified></Contents>"
            for key, path in sorted(found))
        text = (f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                f"<Name>lake</Name><Prefix>{xml.sax.saxutils.escape(prefix)}</Prefix><KeyCount>{len(found)}</KeyCount>"
                f"<MaxKeys>100000</MaxKeys><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>")
        self.answer(200, [("Content-Type", "application/xml")], text.encode())


def etag(path):
    return '"' + hashlib.md5(f"{path} {os.path.getsize(path)} {os.path.getmtime(path)}".encode()).hexdigest() + '"'


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256


with Server((ADDRESS, PORT), Store) as server:
    print("serving", flush=True)
    server.serve_forever()
