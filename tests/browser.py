# SPDX-License-Identifier: Apache-2.0
"""
browser.py - a page in Chromium without a window, spoken to through two pipes

The protocol is that of its developer tools: objects of JSON, each ended by a zero byte.
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="kvt-browser-")
        self.next, self.events, self.rest = 0, [], b""
        ours, theirs = os.pipe(), os.pipe()

        def wire():
            # high numbers first: 3 and 4 may be ends of these pipes
            a, b = os.dup(ours[0]), os.dup(theirs[1])
            a, b = os.dup2(a, 20), os.dup2(b, 21)
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder}", "--no-first-run", "--force-device-scale-factor=1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=wire, close_fds=False,
            env={**os.environ, "HOME": self.folder})
        os.close(ours[0])
        os.close(theirs[1])
        self.out, self.into = ours[1], theirs[0]
        self.session = None

    def _read(self):
        while b"\0" not in self.rest:
            more = os.read(self.into, 1 << 20)
            if not more:
                raise EOFError("the browser ended")
            self.rest += more
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **params):
        self.next += 1
        message = {"id": self.next, "method": method, "params": params}
        if self.session and not method.startswith("Target."):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            got = self._read()
            if got.get("id") == self.next:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self.events.append(got)

    def open(self, path, width=1200, height=900, dark=False, zoom=1):
        """A new page; what it says on its console is in messages()."""
        self.session, self.events = None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=int(width / zoom), height=int(height / zoom),
                  deviceScaleFactor=zoom, mobile=False)
        self.call("Emulation.setScrollbarsHidden", hidden=True)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        end = time.monotonic() + 30
        while self.run("document.readyState") != "complete":
            if time.monotonic() > end:
                raise TimeoutError(path)
            time.sleep(0.05)

    def run(self, script):
        r = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(r["exceptionDetails"].get("exception", {}).get("description", str(r)))
        return r["result"].get("value")

    def run_in_frames(self, script):
        """In each sandboxed frame, which has a process of its own; of the only page."""
        page, out = self.session, []
        for target in self.call("Target.getTargets")["targetInfos"]:
            if target["type"] == "iframe":
                self.session = self.call("Target.attachToTarget", targetId=target["targetId"],
                                         flatten=True)["sessionId"]
                out.append(self.run(script))
        self.session = page
        return out

    def messages(self):
        self.run("0")
        return [e for e in self.events if e.get("method") in (
            "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")]

    def hover(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode={"ArrowRight": 39, "ArrowDown": 40, "ArrowLeft": 37,
                                             "ArrowUp": 38, "Enter": 13, "Tab": 9}[key])

    def picture(self, path, whole=True):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole,
                         **({"clip": clip} if whole else {}))["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (OSError, EOFError, RuntimeError):
            pass
        self.process.wait(timeout=20)
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.folder, ignore_errors=True)
